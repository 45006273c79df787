"""An endpoint that does all the wrong there is, goes away and comes back: every row gets what is its own."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

import pytest
from tests.proof import chaos
from tests.proof.material import ASK
from tests.proof.valve import Valve

import corpusmill
from corpusmill.errors import EndpointDownError
from corpusmill.testing.faults import KINDS

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.engine.engine import Progress


def test_no_kind_of_fault_is_left_out() -> None:
    """What the fake endpoint can do wrong is proved here or in the tests of what ends a run."""
    assert chaos.PASSING | chaos.HARMLESS | set(chaos.OF_THE_ROW) | chaos.OF_THE_RUN | {"reply"} == set(KINDS)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_under_all_faults_at_once_each_row_has_its_own_answer_after_as_many_attempts_as_predicted(
    tmp_path: Path, *, stream: bool
) -> None:
    """None is lost, swapped or asked without need; what was paid twice is at most what the report says."""
    case = chaos.Chaos(rows=300, permanent=0.1, read_timeout=1.0)
    fates = case.fates()
    with case.endpoint() as endpoint:
        report = chaos.run(case, endpoint, tmp_path, stream=stream)
        stats = endpoint.stats()
    assert set(stats.by_fault) == chaos.PASSING | chaos.HARMLESS | set(chaos.OF_THE_ROW)
    chaos.check_rows(case, report, tmp_path / "out", fates)
    chaos.check_attempts(case, report, stats, fates)


def test_an_endpoint_that_restarts_amid_faults_costs_attempts_and_no_row(tmp_path: Path) -> None:
    """The breaker opens, a probe finds it back, and every row is answered."""
    case = chaos.Chaos(rows=250, share=0.05, permanent=0.0, read_timeout=1.0)
    fates = case.fates()
    report, stats, outages = chaos.through_restarts(case, tmp_path, at=[40], stream=True)
    assert outages == 1
    chaos.check_rows(case, report, tmp_path / "out", fates)
    chaos.check_attempts(case, report, stats, fates, torn=outages * case.concurrency)


def test_a_line_that_swallows_everything_for_a_while_costs_attempts_and_no_row(tmp_path: Path) -> None:
    """Connections stand and nothing comes: each request in flight runs into its time-out, then one at a time asks."""
    case = chaos.Chaos(rows=250, share=0.05, permanent=0.0, read_timeout=1.0)
    fates = case.fates()
    report, stats, outages = chaos.through_silence(case, Valve(), tmp_path, at=[40], mended=chaos.is_down)
    assert outages == 1
    chaos.check_rows(case, report, tmp_path / "out", fates)
    chaos.check_attempts(case, report, stats, fates, torn=outages * case.concurrency)
    assert report.retries["read_timeout"] > sum(fate.stalls for fate in fates.values())


def test_a_name_that_does_not_resolve_for_a_while_costs_attempts_and_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was never sent is never counted as paid."""
    case = chaos.Chaos(rows=250, share=0.05, permanent=0.0, read_timeout=1.0)
    fates = case.fates()
    names = chaos.Names()
    monkeypatch.setattr(socket, "getaddrinfo", names)
    monkeypatch.setenv("NO_PROXY", chaos.NAME)
    monkeypatch.setenv("no_proxy", chaos.NAME)
    report, stats, outages = chaos.through_lost_names(case, names, tmp_path, at=[40])
    assert outages == 1
    assert names.asked_in_vain > 0
    chaos.check_rows(case, report, tmp_path / "out", fates)
    chaos.check_attempts(case, report, stats, fates, torn=outages * case.concurrency)


def test_a_name_that_never_resolves_ends_the_run_after_its_patience(tmp_path: Path) -> None:
    """The message names the URL and why; nothing is paid and nothing is committed. The end is foretold."""
    shown: list[Progress] = []
    with pytest.raises(EndpointDownError, match=r"nowhere\.invalid") as caught:
        corpusmill.enrich(
            chaos.Chaos(rows=5).table(),
            tmp_path / "out",
            ASK,
            endpoint=corpusmill.OpenAICompatible("http://nowhere.invalid/v1", "any"),
            store=f"sqlite:///{tmp_path / 'store.db'}",
            limits=corpusmill.Limits(concurrency=2, patience=1.5),
            retry=chaos.POLICY,
            progress=shown.append,
        )
    assert "has not answered for" in str(caught.value)
    assert any(
        re.search(r"is down: .*; unless it answers, the run ends in [12] s \(limits\.patience\)", said)
        for said in (progress.waiting or "" for progress in shown)
    )
    assert not (tmp_path / "out").exists()
    assert caught.value.report is not None
    assert caught.value.report.possibly_paid_twice == 0
