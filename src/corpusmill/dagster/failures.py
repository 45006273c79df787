"""What becomes of an error that ends a run, in Dagster's terms: asked again soon, or a failure that says what to do."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

from corpusmill.errors import (
    AuthenticationError,
    BrokenEndpointError,
    BudgetUsedUpError,
    ComeBackLaterError,
    CountsError,
    EndpointError,
    JobStoppedError,
    ModelUnavailableError,
    PromptError,
    RunEndedError,
    SinkError,
    SourceChangedError,
    SourceError,
    StoreMissError,
    TooManyFailuresError,
    UsageError,
)

if TYPE_CHECKING:
    from corpusmill.errors import CorpusmillError

SOON = 600.0
"""Seconds that a step may wait for a quota; beyond them it gives its place to others, and the sensor resumes it."""

MOST_WAITS = 20
"""How often in a row a step waits for a quota before it fails."""

WAITS_FOR = "corpusmill/waits_for"
"""The tag of such a run: `quota`, and `resumed` once another run has taken its place."""

RESETS_AT = "corpusmill/resets_at"
"""The tag of a run that a used-up quota has ended: the moment (ISO 8601, UTC) from which it may be resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to do about an error. `wait` seconds and ask again, or else fail.

    `again` says whether the asset's own retry policy may try again. `resets_at` is set where the sensor shall resume.
    """

    wait: float | None = None
    again: bool = False
    advice: str = ""
    resets_at: dt.datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def verdict_on(  # noqa: C901, PLR0912 - a table of cases
    error: CorpusmillError, *, now: dt.datetime, waits: int
) -> Verdict:
    """Decide about an error at the moment `now` (UTC), after so many `waits` for a quota."""
    metadata: dict[str, Any] = {}
    report = error.report if isinstance(error, RunEndedError) else None
    if report is not None:
        metadata = {"corpusmill/answers_kept": report.live, "corpusmill/rows_read": report.rows}
    if (page := page_of(error)) is not None:
        metadata["corpusmill/report"] = dg.MetadataValue.path(page)
    match error:
        case ComeBackLaterError(resets_at=dt.datetime() as resets_at):
            left = max(0.0, (resets_at - now).total_seconds())
            metadata["corpusmill/resets_at"] = dg.MetadataValue.timestamp(resets_at)
            if left <= SOON and waits < MOST_WAITS:
                return Verdict(wait=left + 1.0, metadata=metadata)
            return Verdict(
                advice="What was answered is kept. The sensor resumes this run when the quota resets, if it is "
                "switched on; or run it again then.",
                resets_at=resets_at,
                metadata=metadata,
            )
        case ComeBackLaterError():
            return Verdict(
                advice="What was answered is kept. The endpoint does not say when its quota resets: run it again "
                "later.",
                metadata=metadata,
            )
        case AuthenticationError():
            return Verdict(
                advice="Check the key: the variable that the endpoint's resource or the job names must be set where "
                "runs run, and its key must be allowed to use the model. Then run it again: what was answered is kept.",
                metadata=metadata,
            )
        case ModelUnavailableError():
            return Verdict(advice="Name a model that the endpoint serves.", metadata=metadata)
        case BrokenEndpointError():
            return Verdict(
                advice="Look at the endpoint: nearly all requests fail in one way. What was answered is kept.",
                metadata=metadata,
            )
        case EndpointError():
            return Verdict(advice="Check the endpoint's address and settings.", metadata=metadata)
        case BudgetUsedUpError():
            return Verdict(
                advice="Raise the budget and run it again: what was answered is kept.", metadata=metadata
            )
        case JobStoppedError():
            # Somebody has stopped its transform job, and would not thank us for another one.
            return Verdict(advice="What was answered is kept.", metadata=metadata)
        case TooManyFailuresError() | UsageError() | StoreMissError() | CountsError():
            return Verdict(again=error.may_pass, metadata=metadata)
        case _:
            return Verdict(
                again=error.may_pass,
                advice="Run it again: it goes on from what was answered.",
                metadata=metadata,
            )


def page_of(error: CorpusmillError) -> str | None:
    """Give the address of the page of a run that ended early; None where there is none."""
    from corpusmill.tables.reports import page_address

    address = error.report_address if isinstance(error, RunEndedError) else None
    return None if address is None else page_address(address)


def is_of_one_partition(error: CorpusmillError) -> bool:
    """Whether an error says something of a partition's own rows only, so that other partitions may go on."""
    return isinstance(
        error, TooManyFailuresError | SourceError | SourceChangedError | SinkError | PromptError
    )


def as_failure(error: CorpusmillError, verdict: Verdict) -> dg.Failure | dg.RetryRequested:
    """Give what the step raises."""
    if verdict.wait is not None:
        return dg.RetryRequested(max_retries=MOST_WAITS, seconds_to_wait=verdict.wait)
    description = f"{error} {verdict.advice}".strip()
    return dg.Failure(description=description, metadata=verdict.metadata, allow_retries=verdict.again)
