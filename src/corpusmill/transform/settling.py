"""What a job has come to, told from the words of the service and from the outputs that are there, and what follows.

A job may fail by its lines, for a reason that passes, or for one that stays; only the first counts against a shard. A
reason that is not known is taken for the lines', because the service says no more than "see job logs" when a container
has refused one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal

from corpusmill.errors import EndpointError, JobStoppedError
from corpusmill.transform.records import Settled

if TYPE_CHECKING:
    from corpusmill.errors import RunEndedError
    from corpusmill.transform.collecting import Collected
    from corpusmill.transform.records import Ended, JobPlan

MOST_TRIES: Final = 3
"""Jobs in a row that may fail for passing reasons of the service before the run ends."""

MANY_SHARDS: Final = 3
"""Shards of which surely not each one holds a bad line."""

TERMINAL: Final = frozenset({"Completed", "Failed", "Stopped"})
"""What the service calls the states of a job that has ended."""

Blame = Literal["lines", "passing", "lasting"]

_RULES: Final[tuple[tuple[Blame, re.Pattern[str]], ...]] = (
    (
        "lasting",
        re.compile(
            r"access ?denied|not authorized|unauthorized|permission|NoSuchBucket|NoSuchKey|kms|ResourceLimitExceeded"
            r"|service limit|quota|image.{0,40}(?:not exist|could not be pulled|pull)|model data|unsupported instance"
            r"|could not find model",
            re.IGNORECASE,
        ),
    ),
    (
        "passing",
        re.compile(
            r"capacity|InternalServerError|internal error|internal server error|try again|throttl|rate exceeded"
            r"|health ?check|ping|primary container.{0,40}(?:did not|failed)|spot|interrupt|out of memory|timed? ?out"
            r" (?:waiting|while) (?:for )?(?:the )?(?:container|instance|model)|network",
            re.IGNORECASE,
        ),
    ),
)


def blame_for(reason: str) -> Blame:
    """Say what a failure was caused by."""
    return next((blame for blame, pattern in _RULES if pattern.search(reason)), "lines")


def settlement(plan: JobPlan, described: dict[str, Any], sofar: Collected) -> Settled:
    """Give what a job has come to that has ended, and of which so much was taken in."""
    status = described["TransformJobStatus"]
    failure = described.get("FailureReason")
    reason = str(failure or f"the job ended as {status}")
    missing = {number: places for number, places in sofar.missing.items() if places}
    reasons = dict(sofar.reasons)
    for number, shard in enumerate(plan.shards):
        if number not in sofar.missing:
            missing[number] = list(range(shard.rows))
            reasons[number] = reason
    return Settled(
        ended=_ended(status, reason, missing=bool(missing)),
        status=status,
        # A job that has completed may lack lines all the same, and knows nothing of it.
        reason=reason if failure else next(iter(reasons.values()), reason),
        missing=missing,
        reasons=reasons,
    )


def what_ends(plan: JobPlan, settled: Settled) -> RunEndedError | None:
    """Give the error that a job ends the run with; None when the run goes on."""
    name = plan.name
    again = "What it had answered is kept; when the cause is mended, the same command goes on"
    if settled.ended == "lasting" or (settled.ended == "passing" and plan.tries + 1 >= MOST_TRIES):
        times = f" ({plan.tries + 1} jobs in a row)" if plan.tries else ""
        return EndpointError(
            f"the transform job {name} has failed{times}, and not by its lines: {settled.reason}. {again}"
        )
    if settled.ended == "stopped":
        return JobStoppedError(
            f"the transform job {name} was stopped, and the service stores nothing of a stopped job; the same command "
            "starts a new one"
        )
    nothing_came = len(settled.missing) == len(plan.shards) >= MANY_SHARDS
    if settled.ended == "lines" and nothing_came and all(shard.fails == 1 for shard in plan.shards):
        return EndpointError(
            f"no shard of the transform job {name} was answered, for the second time: {settled.reason}. Look at its "
            "logs (CloudWatch, /aws/sagemaker/TransformJobs); if single rows are to blame, make shard_rows smaller or "
            f"give real_time. {again}"
        )
    return None


def _ended(status: str, reason: str, *, missing: bool) -> Ended:
    if status == "Stopped":
        return "stopped"
    if not missing:
        return "completed"
    if status == "Failed":
        return blame_for(reason)
    return "lines"
