"""What failed and what did not, in this run and the next; and endpoints that say "too fast"."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

import pytest
from tests.proof.material import ASK, answer_to, digest_of, endpoint_at, rows_of, store_in, table, texts

import corpusmill
from corpusmill.testing import FakeEndpoint, Faults, RateLimits, request_digest

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.report import RunReport


def test_what_failed_is_listed_and_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    """Above `max_failed` nothing is committed; the next run, at an endpoint that is well, asks the failed rows."""
    source, sink = table(60), tmp_path / "out"
    options = {
        "store": store_in(tmp_path),
        "retry": corpusmill.RetryPolicy(attempts=2, backoff=0.001, backoff_max=0.002),
    }
    with FakeEndpoint(faults=Faults(permanent={"400": 0.2})) as endpoint:
        asked = endpoint_at(endpoint)
        with pytest.raises(
            corpusmill.CorpusmillError,
            match=r"max_failed is 5.0% of them \(.* share 0\.05\): nothing was committed.*out\.failed\.jsonl",
        ):
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


@pytest.mark.parametrize(("kind", "bad"), [("500", 2), ("503", 1), ("reset", 1)])
def test_a_few_rows_that_break_their_server_fail_and_the_endpoint_is_not_called_down(
    tmp_path: Path, kind: str, bad: int
) -> None:
    """Among rows that are answered, and in the next run, which asks them alone, each as often as the policy says."""
    source, sink = table(200), tmp_path / "out"
    broken = {digest_of(text) for text in texts(200)[50 : 50 + bad]}
    with FakeEndpoint() as endpoint:
        endpoint.script(lambda request, _attempt: kind if request_digest(request) in broken else None)
        for run in (1, 2):
            report = corpusmill.enrich(
                source,
                sink,
                ASK,
                endpoint=endpoint_at(endpoint),
                store=store_in(tmp_path),
                limits=corpusmill.Limits(patience=1.0),
                retry=corpusmill.RetryPolicy(attempts=6, backoff=0.01, backoff_max=0.05),
            )
            assert report.outcomes == {"completed": 200 - bad, "failed": bad}
            stats = endpoint.stats()
            assert stats.details is not None
            asked = [stats.details[digest].received for digest in broken]
            assert all(6 * run <= each <= 8 * run for each in asked), asked
        rows = rows_of(sink)
    assert [row["id"] for row in rows if row["topic"] is None] == list(range(50, 50 + bad))
    assert all("6 attempts" in row["topic_outcome"]["error"] for row in rows[50 : 50 + bad])


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
