"""What one run leaves of itself when it ends early."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from corpusmill import Ask, Limits, OpenAICompatible, enrich
from corpusmill.ending import keep_report
from corpusmill.errors import AuthenticationError, SinkError, TooManyFailuresError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from corpusmill.engine.engine import Progress
    from corpusmill.testing import FakeEndpoint


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (
            SinkError("cannot write the report x: No space left"),
            "SinkError: cannot write the report x: No space left",
        ),
        (ValueError("words of a row"), "ValueError"),
    ],
)
def test_a_report_that_cannot_be_written_is_a_warning_and_does_not_hide_what_ended_the_run(
    tmp_path: Path,
    fake_endpoint_factory: Callable[..., FakeEndpoint],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    trouble: Exception,
    said: str,
) -> None:
    """The error has no address then; only our own words are in the log, for others may quote a row."""

    def refuse(*_: object, **__: object) -> str:
        raise trouble

    monkeypatch.setattr("corpusmill.ending.write_failed_report", refuse)
    endpoint = fake_endpoint_factory(api_key="sk-right")
    with pytest.raises(AuthenticationError) as ended:
        enrich(
            pa.table({"text": ["a", "b"]}),
            tmp_path / "out",
            Ask("Say {text}", into="said"),
            endpoint=OpenAICompatible(endpoint.base_url, "any", api_key="sk-wrong"),
            store=f"sqlite:///{tmp_path / 'store.db'}",
        )
    assert ended.value.report is not None
    assert ended.value.report_address is None
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [f"there will be no report of this run: {said}"]


def test_an_error_without_a_report_leaves_nothing(tmp_path: Path) -> None:
    """A run that ended before its first row has done nothing, and what is no end of a run has no report."""
    ended = TooManyFailuresError("all of them")
    for error in (ended, SinkError("full"), KeyboardInterrupt()):
        keep_report(tmp_path / "out", error)
    assert ended.report_address is None
    assert list(tmp_path.iterdir()) == []


def test_what_fails_to_show_the_progress_ends_the_run_at_once(
    tmp_path: Path, fake_endpoint_factory: Callable[..., FakeEndpoint]
) -> None:
    """By its own error, not after all rows have been asked."""
    endpoint = fake_endpoint_factory(latency=0.1)

    def show(progress: Progress) -> None:
        if progress.live:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        enrich(
            pa.table({"text": [str(row) for row in range(400)]}),
            tmp_path / "out",
            Ask("Say {text}", into="said"),
            endpoint=OpenAICompatible(endpoint.base_url, "any"),
            store=f"sqlite:///{tmp_path / 'store.db'}",
            limits=Limits(concurrency=4),
            progress=show,
        )
    assert endpoint.stats().requests < 200
