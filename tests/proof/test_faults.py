"""An endpoint that does all the wrong there is, and every row gets its own answer or its own error."""

from __future__ import annotations

import itertools
from dataclasses import fields
from typing import TYPE_CHECKING, Literal

import pytest
from tests.proof.material import ASK, QUICK, answer_to, digest_of, endpoint_at, rows_of, store_in, table

import corpusmill
from corpusmill.testing import FakeEndpoint, Faults, Latency, RateLimits
from corpusmill.testing.faults import KINDS, fault_of

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.report import RunReport

PASSING = {
    "408", "429", "429_bare", "429_queue_full", "500", "500_model_output", "502", "503", "504", "reset", "stall",
    "200_error", "200_html", "empty_body", "error_in_stream", "reset_after_compute", "cut_body", "cut_stream",
    "malformed_json",
}  # fmt: skip
HARMLESS = {"odd_sse", "no_usage", "prompt_cut"}
OF_THE_ROW = {
    "400": "failed",
    "overflow": "failed",
    "null_content": "failed",
    "empty_answer": "failed",
    "length": "truncated",
}
OF_THE_RUN = {"401", "402", "403", "404_model", "410", "quota"}
ROWS = 400


def check_counts(report: RunReport, rows: int) -> None:
    """Every row is counted once by what became of it, and once by where its answer came from."""
    assert report.rows == rows
    assert sum(report.outcomes.values()) == rows
    assert report.live + report.cached + report.deduplicated + report.skipped + report.unanswered == rows


def test_no_kind_of_fault_is_left_out() -> None:
    """What the fake endpoint can do wrong is proved here or in the tests of what ends a run."""
    assert PASSING | HARMLESS | set(OF_THE_ROW) | OF_THE_RUN | {"reply"} == set(KINDS)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_under_all_faults_at_once_each_row_has_its_own_answer_or_its_own_error(
    tmp_path: Path, *, stream: bool
) -> None:
    """None is lost, swapped or asked without need; what was paid twice is at most what the report says."""
    faults = Faults(
        shares=dict.fromkeys(sorted(PASSING | HARMLESS), 0.02),
        permanent=dict.fromkeys(OF_THE_ROW, 0.02),
        first_attempts=1,
        retry_after="0.05",
    )
    source = table(ROWS)
    with FakeEndpoint(faults=faults, latency=Latency(mean=0.005, sigma=1.0), seed=4) as endpoint:
        report = corpusmill.enrich(
            source,
            tmp_path / "out",
            ASK,
            endpoint=endpoint_at(endpoint, stream=stream),
            store=store_in(tmp_path),
            limits=corpusmill.Limits(concurrency=24, read_timeout=0.5),
            retry=QUICK,
            failures=corpusmill.FailurePolicy(max_failed=1.0),
        )
        stats = endpoint.stats()
    check_counts(report, ROWS)
    met = set(stats.by_fault)
    assert met == PASSING | HARMLESS | set(OF_THE_ROW)
    for row in rows_of(tmp_path / "out"):
        outcome = row["topic_outcome"]
        fault = fault_of(faults, seed=4, digest=digest_of(row["text"]), attempt=1)
        wanted = OF_THE_ROW.get(fault.kind if fault else "", "completed")
        assert outcome["status"] == wanted, (fault, outcome)
        if wanted == "completed":
            assert row["topic"] == answer_to(row["text"])
        elif wanted == "failed":
            assert row["topic"] is None
            assert outcome["error"]
        else:
            assert answer_to(row["text"]).startswith(row["topic"])
    assert stats.max_in_flight <= 24
    assert stats.computed_again <= report.possibly_paid_twice <= ROWS
    assert stats.distinct == ROWS


def test_what_failed_is_listed_and_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    """Above `max_failed` nothing is committed; the next run, at an endpoint that is well, asks the failed rows."""
    source, sink = table(60), tmp_path / "out"
    options = {
        "store": store_in(tmp_path),
        "retry": corpusmill.RetryPolicy(attempts=2, backoff=0.001, backoff_max=0.002),
    }
    with FakeEndpoint(faults=Faults(permanent={"400": 0.2})) as endpoint:
        asked = endpoint_at(endpoint)
        with pytest.raises(corpusmill.CorpusmillError, match=r"nothing was committed.*out\.failed\.jsonl"):
            corpusmill.enrich(source, sink, ASK, endpoint=asked, **options)  # type: ignore[arg-type]
        assert not sink.exists()
        failed = (tmp_path / "out.failed.jsonl").read_text("utf-8").splitlines()
        before = endpoint.stats(details=False)
        assert before.computed == 60 - len(failed)
        endpoint.configure(faults={})
        report = corpusmill.enrich(source, sink, ASK, endpoint=asked, **options)  # type: ignore[arg-type]
        assert report.live == len(failed)
        assert report.cached == 60 - len(failed)
        assert endpoint.stats(details=False).requests == before.requests + len(failed)
    assert not (tmp_path / "out.failed.jsonl").exists()
    assert all(row["topic"] == answer_to(row["text"]) for row in rows_of(sink))


def test_a_run_with_failed_rows_is_rebuilt_and_only_those_are_asked(tmp_path: Path) -> None:
    """Within `max_failed` the sink is committed; the same job again asks what failed, and nothing when all is well."""
    source, sink = table(50), tmp_path / "out"
    with FakeEndpoint(faults=Faults(permanent={"overflow": 0.1})) as endpoint:
        asked = endpoint_at(endpoint)

        def run() -> RunReport:
            return corpusmill.enrich(
                source,
                sink,
                ASK,
                endpoint=asked,
                store=store_in(tmp_path),
                failures=corpusmill.FailurePolicy(max_failed=0.5),
            )

        first = run()
        assert 0 < first.unanswered < 25
        lines = (sink / "_corpusmill" / "failures.jsonl").read_text("utf-8").splitlines()
        assert len(lines) == first.unanswered
        endpoint.configure(faults={})
        second = run()
        assert (second.live, second.cached) == (first.unanswered, 50 - first.unanswered)
        assert run().skipped_run
        assert endpoint.stats(details=False).computed == 50


def test_a_run_that_goes_on_may_find_nothing_but_failures_among_what_is_left(tmp_path: Path) -> None:
    """What failed before fails again, more often in a row than may be at a run's start: the endpoint is not broken."""
    source, sink = table(300), tmp_path / "out"
    with FakeEndpoint(faults=Faults(permanent={"400": 0.4})) as endpoint:

        def run() -> RunReport:
            return corpusmill.enrich(
                source,
                sink,
                ASK,
                endpoint=endpoint_at(endpoint),
                store=store_in(tmp_path),
                failures=corpusmill.FailurePolicy(max_failed=0.9),
            )

        first = run()
        second = run()
    assert first.unanswered == second.unanswered > 100
    assert second.cached == first.live == 300 - first.unanswered


@pytest.mark.parametrize("window", ["bucket", "fixed"])
def test_at_a_rate_far_below_the_number_of_rows_every_row_is_right(
    tmp_path: Path, window: Literal["bucket", "fixed"]
) -> None:
    """The limits that a server states are kept to: hardly a request is refused, and no row is lost."""
    limits = RateLimits(requests_per_minute=25, window=window, minute_seconds=0.5)
    with FakeEndpoint(limits=limits) as endpoint:
        report = corpusmill.enrich(
            table(80),
            tmp_path / "out",
            ASK,
            endpoint=endpoint_at(endpoint),
            store=store_in(tmp_path),
            limits=corpusmill.Limits(concurrency=32),
            retry=corpusmill.RetryPolicy(attempts=1),
        )
        assert endpoint.stats(details=False).computed == 80
    assert report.outcomes == {"completed": 80}
    assert all(row["topic"] == answer_to(row["text"]) for row in rows_of(tmp_path / "out"))


def test_a_server_that_only_says_too_fast_loses_no_row(tmp_path: Path) -> None:
    """A refusal is never fatal to a row and uses up no attempt: each waits its turn."""
    number = itertools.count()
    with FakeEndpoint() as endpoint:
        endpoint.script(lambda _request, _attempt: "429_bare" if next(number) % 3 == 0 else None)
        report = corpusmill.enrich(
            table(60),
            tmp_path / "out",
            ASK,
            endpoint=endpoint_at(endpoint),
            store=store_in(tmp_path),
            retry=corpusmill.RetryPolicy(attempts=1, backoff=0.01, backoff_max=0.02),
        )
    assert report.rate_limited >= 20
    assert report.outcomes == {"completed": 60}
    assert all(row["topic"] == answer_to(row["text"]) for row in rows_of(tmp_path / "out"))


def test_a_server_that_restarts_in_mid_run_costs_attempts_and_no_row(tmp_path: Path) -> None:
    """The breaker opens, a probe finds it back, and every row is answered."""
    first = FakeEndpoint(latency=Latency(mean=0.004, sigma=0.0))
    events: list[str] = []
    with first:
        port = int(first.base_url.rsplit(":", 1)[1].split("/")[0])
        second = FakeEndpoint(port=port)

        def watch(progress: object) -> None:
            values = {field.name: getattr(progress, field.name) for field in fields(progress)}  # type: ignore[arg-type]
            if values["live"] > 20 and not events:
                events.append("stopped")
                first.__exit__(None, None, None)
            elif events == ["stopped"] and values["waiting"] and "down" in values["waiting"]:
                events.append("started")
                second.__enter__()

        try:
            report = corpusmill.enrich(
                table(2_000),
                tmp_path / "out",
                ASK,
                endpoint=endpoint_at(first),
                store=store_in(tmp_path),
                limits=corpusmill.Limits(concurrency=8, connect_timeout=2.0),
                retry=QUICK,
                progress=watch,
            )
        finally:
            if "started" in events:
                second.__exit__(None, None, None)
    assert events == ["stopped", "started"]
    assert report.outcomes == {"completed": 2_000}
    assert all(row["topic"] == answer_to(row["text"]) for row in rows_of(tmp_path / "out"))
