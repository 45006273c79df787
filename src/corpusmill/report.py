"""What a run did: counts that add up to its rows, what it spent, and where the output is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from corpusmill.errors import CountsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LATENCY_BOUNDS = tuple(round(0.001 * 2 ** (step / 2), 6) for step in range(41))
"""Upper bounds in seconds of the bins of the latency histogram: 1 ms to about 17 minutes, two bins an octave."""

SAMPLES = 12
SLOWEST = 10
FAILURES = 50
"""Rows that the report shows at most, each of its three lists; the samples are divided among the prompts."""

STATED = "the job"
"""The origin of prices that the user has stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReport:
    """The counts of one prompt, which fills the column `into`.

    `outcomes` counts its rows by status; `live` to `unanswered` count the same rows by where their answers are from.
    `notes` counts what was found in answers, `errors` the rows without a usable answer, both by kind. Tokens are those
    of the answers that this run fetched for it, of rows that were finished.
    """

    into: str
    outcomes: Mapping[str, int]
    live: int = 0
    cached: int = 0
    deduplicated: int = 0
    skipped: int = 0
    unanswered: int = 0
    notes: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One row shown in the report: what went in, what came out, and how."""

    row: int
    into: str
    inputs: Mapping[str, str]
    output: str | None
    status: str
    error: str | None = None
    seconds: float | None = None
    attempts: int = 0
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One point of the timeline: seconds since the start, totals until then, and what was out at that moment."""

    seconds: float
    rows: int
    live: int
    in_flight: int
    rate_limited: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What `enrich` returns and `report.json` holds.

    `outcomes`, `live`, `cached`, `deduplicated`, `skipped` and `unanswered` count a row once for each prompt, so
    that the last five add up to rows times prompts. `answers` counts the answers that this run fetched and kept, also
    those of rows that were not finished; tokens and cost are theirs, and what came from the store cost nothing. `cost`
    is in US dollars, None where the price is not known; `prices` says where prices are from: `the job`, or the name of
    a public list. `possibly_paid_twice` is the most requests that may have been paid more than once since this run key
    was first started, over kills and retries. `seconds` is wall time. What a notebook shows of it (`repr`) are the
    counts; rows of the corpus are in `samples`, `slowest` and `failures`.
    """

    rows: int
    outcomes: Mapping[str, int]
    live: int
    cached: int
    deduplicated: int
    skipped: int
    unanswered: int
    attempts: int
    possibly_paid_twice: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    seconds: float
    output: str | None
    skipped_run: bool
    run_key: str | None = None
    model: str | None = None
    endpoint: str | None = None
    prompts: Sequence[PromptReport] = ()
    retries: Mapping[str, int] = field(default_factory=dict)
    rate_limited: int = 0
    answers: int = 0
    prices: str | None = None
    changed_types: Sequence[str] = ()
    warnings: Sequence[str] = ()
    latency: Sequence[int] = field(default=(), repr=False)
    timeline: Sequence[Moment] = field(default=(), repr=False)
    samples: Sequence[Sample] = field(default=(), repr=False)
    slowest: Sequence[Sample] = field(default=(), repr=False)
    failures: Sequence[Sample] = field(default=(), repr=False)
    job: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Give the report as JSON-ready values."""
        return asdict(self)

    def check(self) -> None:
        """Raise `CountsError` unless every row of every prompt is accounted for exactly once."""
        for prompt in self.prompts:
            origins = prompt.live + prompt.cached + prompt.deduplicated + prompt.skipped + prompt.unanswered
            outcomes = sum(prompt.outcomes.values())
            if not origins == outcomes == self.rows:
                raise CountsError(
                    f"the counts of {prompt.into!r} do not add up: {self.rows} rows, {outcomes} outcomes, "
                    f"{prompt.live} live + {prompt.cached} cached + {prompt.deduplicated} deduplicated + "
                    f"{prompt.skipped} skipped + {prompt.unanswered} unanswered = {origins}; nothing was committed"
                )


def report_of(values: Mapping[str, Any]) -> RunReport:
    """Give the report that `as_dict` gave these values of."""
    made = dict(values)
    made["prompts"] = [PromptReport(**prompt) for prompt in made.get("prompts", ())]
    made["timeline"] = [Moment(**moment) for moment in made.get("timeline", ())]
    for name in ("samples", "slowest", "failures"):
        made[name] = [Sample(**sample) for sample in made.get(name, ())]
    return RunReport(**made)


SUMMARY = (
    "rows",
    "outcomes",
    "live",
    "cached",
    "deduplicated",
    "skipped",
    "unanswered",
    "attempts",
    "possibly_paid_twice",
    "prompt_tokens",
    "completion_tokens",
    "cost",
    "seconds",
    "output",
    "skipped_run",
)
"""The fields that a manifest, an XCom or a line of a log carries; the rest is for the report's reader."""


def summary(report: RunReport) -> dict[str, Any]:
    """Give the small part of a report, JSON-ready."""
    whole = report.as_dict()
    return {name: whole[name] for name in SUMMARY}


_ORIGINS = ("live", "cached", "deduplicated", "skipped", "unanswered")


def merged(reports: Sequence[RunReport], *, output: str | None) -> RunReport:
    """Give the report of a whole run from those of its shards.

    Counts add up; `seconds` is the longest, because shards run side by side; `possibly_paid_twice` is the highest,
    because each counts for the whole run. The timeline is left out: the shards' clocks have nothing in common.
    """
    if not reports:
        raise CountsError("there is no shard to make a report of")
    first = reports[0]
    costs = [report.cost for report in reports]
    counts = (*_ORIGINS, "attempts", "answers", "prompt_tokens", "completion_tokens", "rate_limited")
    return replace(
        first,
        rows=sum(report.rows for report in reports),
        outcomes=added(report.outcomes for report in reports),
        **{name: sum(getattr(report, name) for report in reports) for name in counts},
        possibly_paid_twice=max(report.possibly_paid_twice for report in reports),
        cost=None if None in costs else sum(cost for cost in costs if cost is not None),
        seconds=max(report.seconds for report in reports),
        output=output,
        skipped_run=False,
        prompts=[
            _merged_prompt(prompts) for prompts in zip(*(report.prompts for report in reports), strict=True)
        ],
        retries=added(report.retries for report in reports),
        warnings=list(dict.fromkeys(warning for report in reports for warning in report.warnings)),
        latency=[sum(bin_) for bin_ in zip(*(report.latency for report in reports), strict=True)],
        timeline=[],
        samples=[sample for report in reports for sample in report.samples][:SAMPLES],
        slowest=sorted(
            (sample for report in reports for sample in report.slowest),
            key=lambda sample: -(sample.seconds or 0.0),
        )[:SLOWEST],
        failures=[sample for report in reports for sample in report.failures][:FAILURES],
    )


def _merged_prompt(prompts: Sequence[PromptReport]) -> PromptReport:
    return replace(
        prompts[0],
        outcomes=added(prompt.outcomes for prompt in prompts),
        notes=added(prompt.notes for prompt in prompts),
        errors=added(prompt.errors for prompt in prompts),
        **{
            name: sum(getattr(prompt, name) for prompt in prompts)
            for name in (*_ORIGINS, "prompt_tokens", "completion_tokens")
        },
    )


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add counts up, name by name."""
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total
