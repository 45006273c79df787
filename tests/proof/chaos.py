"""All faults at once, and outages in mid-run: what has to hold, and how many attempts the policy predicts.

The fake endpoint draws faults from the request and the number of the attempt alone, so that every row's way is known
before it is asked. `tests/proof/test_chaos.py` runs a few hundred rows, `benchmarks/chaos.py` as many as it is told to.
"""

from __future__ import annotations

import itertools
import socket
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.proof.material import ASK, answer_to, digest_of, rows_of

import corpusmill
from corpusmill.testing import FakeEndpoint, Faults, Latency
from corpusmill.testing.faults import fault_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.proof.valve import Valve

    from corpusmill.report import RunReport
    from corpusmill.testing.stats import Stats

REFUSALS = {"429", "429_bare", "429_queue_full"}
"""Faults that say "too fast": they cost a try and none of the attempts of the policy."""

PASSING = REFUSALS | {
    "408", "500", "500_model_output", "502", "503", "504", "reset", "stall", "200_error", "200_html", "empty_body",
    "error_in_stream", "reset_after_compute", "cut_body", "cut_stream", "malformed_json",
}  # fmt: skip
HARMLESS = {"odd_sse", "no_usage", "prompt_cut"}
OF_THE_ROW = {
    "400": "failed",
    "overflow": "failed",
    "null_content": "failed",
    "empty_answer": "failed",
    "length": "truncated",
}
"""Faults that no other try cures, and what becomes of their rows."""

OF_THE_RUN = {"401", "402", "403", "404_model", "410", "quota"}
UNPARSED = "500_model_output"
"""An answer that the server could not parse: worth one more try, however many the policy allows."""

POLICY = corpusmill.RetryPolicy(attempts=12, backoff=0.01, backoff_max=0.05)
"""A policy that waits for no test, and gives no row up by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What a row has to come to: its status, and how many attempts at it the endpoint sees."""

    status: str
    attempts: int
    stalls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chaos:
    """So many rows, and the share of the attempts at them that meet some fault."""

    rows: int
    seed: int = 4
    share: float = 0.3
    permanent: float = 0.02
    concurrency: int = 24
    read_timeout: float = 2.0

    @property
    def faults(self) -> Faults:
        """All kinds that end no run, each as likely as any other."""
        kinds = sorted(PASSING | HARMLESS)
        return Faults(
            shares=dict.fromkeys(kinds, self.share / len(kinds)),
            permanent=dict.fromkeys(OF_THE_ROW, self.permanent / len(OF_THE_ROW)),
            retry_after="0.05",
        )

    @property
    def limits(self) -> corpusmill.Limits:
        """Short enough for a test, long enough for an answer that takes its time."""
        return corpusmill.Limits(
            concurrency=self.concurrency, read_timeout=self.read_timeout, connect_timeout=self.read_timeout
        )

    def table(self) -> pa.Table:
        """Give so many different texts, the same in every Python, so that a seed means the same everywhere."""
        found = (
            f"{row}. Of all texts of the corpus this one alone begins with {row}." for row in range(self.rows)
        )
        return pa.table({"id": range(self.rows), "text": list(found)})

    def endpoint(self, **options: Any) -> FakeEndpoint:
        """Make the endpoint that does all this."""
        return FakeEndpoint(
            faults=self.faults, latency=Latency(mean=0.005, sigma=1.0), seed=self.seed, **options
        )

    def fates(self) -> dict[str, Fate]:
        """Say what the policy makes of each text, knowing nothing of the engine."""
        return {text: self._fate(digest_of(text)) for text in self.table()["text"].to_pylist() if text}

    def _fate(self, digest: str) -> Fate:
        failures = stalls = unparsed = 0
        for attempt in itertools.count(1):
            fault = fault_of(self.faults, seed=self.seed, digest=digest, attempt=attempt)
            kind = fault.kind if fault is not None else ""
            if kind in OF_THE_ROW:
                return Fate(status=OF_THE_ROW[kind], attempts=attempt, stalls=stalls)
            if kind not in PASSING:
                return Fate(status="completed", attempts=attempt, stalls=stalls)
            failures += kind not in REFUSALS
            stalls += kind == "stall"
            unparsed += kind == UNPARSED
            if failures >= POLICY.attempts or unparsed > 1:
                return Fate(status="failed", attempts=attempt, stalls=stalls)
        raise AssertionError


def run(
    chaos: Chaos, endpoint: FakeEndpoint, folder: Path, *, base_url: str = "", **options: Any
) -> RunReport:
    """Ask all rows into `folder`, through `base_url` where that leads to the endpoint."""
    stream = options.pop("stream", False)
    return corpusmill.enrich(
        chaos.table(),
        folder / "out",
        ASK,
        endpoint=corpusmill.OpenAICompatible(base_url or endpoint.base_url, "any", stream=stream),
        store=f"sqlite:///{folder / 'store.db'}",
        limits=chaos.limits,
        retry=POLICY,
        failures=corpusmill.FailurePolicy(max_failed=1.0),
        **options,
    )


def check_rows(chaos: Chaos, report: RunReport, sink: Path, fates: dict[str, Fate]) -> None:
    """Each row is there, in its place, with its own answer or its own error."""
    assert report.rows == chaos.rows
    assert sum(report.outcomes.values()) == chaos.rows
    assert (
        report.live + report.cached + report.deduplicated + report.skipped + report.unanswered == chaos.rows
    )
    rows = rows_of(sink)
    assert [row["id"] for row in rows] == list(range(chaos.rows))
    for row in rows:
        outcome, text = row["topic_outcome"], row["text"]
        assert outcome["status"] == fates[text].status, (text, outcome)
        if outcome["status"] == "completed":
            assert row["topic"] == answer_to(text)
        elif outcome["status"] == "truncated":
            assert answer_to(text).startswith(row["topic"])
        else:
            assert row["topic"] is None
            assert outcome["error"]


def check_attempts(
    chaos: Chaos, report: RunReport, stats: Stats, fates: dict[str, Fate], *, torn: int = 0
) -> tuple[int, int]:
    """Compare what the endpoint saw with what the policy predicts; give both numbers.

    At most `torn` requests may have been cut off from outside. Beyond those, a row is asked as often as predicted, to
    the attempt: an answer that a loaded machine brought too late shows as a time-out more than there were stalls.
    """
    assert stats.details is not None
    assert stats.max_in_flight <= chaos.concurrency or torn
    assert stats.distinct == chaos.rows
    assert stats.computed_again <= report.possibly_paid_twice <= report.attempts
    predicted = sum(fate.attempts for fate in fates.values())
    late = report.retries.get("read_timeout", 0) - sum(fate.stalls for fate in fates.values())
    other = [text for text, fate in fates.items() if stats.details[digest_of(text)].received != fate.attempts]
    assert len(other) <= max(late, 0) + torn, (len(other), late, torn)
    if not torn:
        assert report.attempts == stats.requests
    return stats.requests, predicted


def said(progress: object) -> dict[str, Any]:
    """Give the values of a progress by their names."""
    return {field.name: getattr(progress, field.name) for field in fields(progress)}  # type: ignore[arg-type]


class Outages:
    """Breaks something off when so many rows are live, and mends it when `mended` says so.

    To be handed to a run as its `progress`, which is called about four times a second.
    """

    def __init__(
        self,
        at: list[int],
        *,
        breaks: Callable[[], object],
        mends: Callable[[], object],
        mended: Callable[[dict[str, Any]], bool],
    ) -> None:
        self._at = list(at)
        self._breaks = breaks
        self._mends = mends
        self._mended = mended
        self.seen = 0
        self.broken = False

    def __call__(self, progress: object) -> None:
        values = said(progress)
        if self.broken and self._mended(values):
            self.broken = False
            self._mends()
        elif not self.broken and self._at and values["live"] >= self._at[0]:
            self._at.pop(0)
            self.seen += 1
            self.broken = True
            self._breaks()


def is_down(values: dict[str, Any]) -> bool:
    """Tell whether the run waits for its endpoint to come back."""
    return bool(values["waiting"]) and "down" in values["waiting"]


def free_port() -> int:
    """Find a port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def through_restarts(
    chaos: Chaos, folder: Path, *, at: list[int], **options: Any
) -> tuple[RunReport, Stats, int]:
    """Let the endpoint stop, and start again at the same port when the run has noticed."""
    endpoint = chaos.endpoint(port=free_port())
    with endpoint:
        outages = Outages(
            at, breaks=lambda: endpoint.__exit__(None, None, None), mends=endpoint.__enter__, mended=is_down
        )
        report = run(chaos, endpoint, folder, progress=outages, **options)
        return report, endpoint.stats(), outages.seen


def through_silence(
    chaos: Chaos,
    valve: Valve,
    folder: Path,
    *,
    at: list[int],
    mended: Callable[[dict[str, Any]], bool],
    **options: Any,
) -> tuple[RunReport, Stats, int]:
    """Let what lies between run and endpoint swallow everything until `mended`, and refuse nothing."""
    with chaos.endpoint() as endpoint, valve.before(endpoint.base_url) as base_url:
        outages = Outages(at, breaks=valve.shut, mends=valve.open, mended=mended)
        report = run(chaos, endpoint, folder, base_url=base_url, progress=outages, **options)
        return report, endpoint.stats(), outages.seen


NAME = "endpoint.invalid"


class Names:
    """A name that leads to this machine, and to nowhere while it is `lost`; stands in for `socket.getaddrinfo`."""

    def __init__(self) -> None:
        self._real = socket.getaddrinfo
        self.lost = False
        self.asked_in_vain = 0

    def __call__(self, host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        if host not in (NAME, NAME.encode()):
            return self._real(host, port, *arguments, **options)
        if self.lost:
            self.asked_in_vain += 1
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return self._real("127.0.0.1", port, *arguments, **options)


def through_lost_names(
    chaos: Chaos, names: Names, folder: Path, *, at: list[int], **options: Any
) -> tuple[RunReport, Stats, int]:
    """Let the endpoint's name stop resolving, and its connections break, until the run has noticed."""
    endpoint = chaos.endpoint(port=free_port())

    def lose() -> None:
        names.lost = True
        endpoint.__exit__(None, None, None)
        endpoint.__enter__()

    def find() -> None:
        names.lost = False

    with endpoint:
        outages = Outages(at, breaks=lose, mends=find, mended=is_down)
        base_url = endpoint.base_url.replace("127.0.0.1", NAME)
        report = run(chaos, endpoint, folder, base_url=base_url, progress=outages, **options)
        return report, endpoint.stats(), outages.seen


def numbers(report: RunReport, stats: Stats, fates: dict[str, Fate]) -> Iterator[tuple[str, object]]:
    """Give what a run came to, for a reader."""
    predicted = sum(fate.attempts for fate in fates.values())
    yield "rows", report.rows
    yield "outcomes", dict(report.outcomes)
    yield "attempts", report.attempts
    yield "attempts predicted without outages", predicted
    yield "attempts that met a fault", f"{sum(stats.by_fault.values()) / max(stats.requests, 1):.1%}"
    yield "kinds of fault met", len(stats.by_fault)
    yield "answers computed again", stats.computed_again
    yield "stated as possibly paid twice", report.possibly_paid_twice
    yield "seconds", round(report.seconds, 1)
