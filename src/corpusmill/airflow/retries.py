"""Whether a failed task is worth another try, and when: the outer of two layers.

Within a task the engine tries each row again. What leaves the task has a type that says whether trying again can
help; this policy reads the type, and never a text.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import RetryDecision, RetryPolicy

from corpusmill.errors import ComeBackLaterError, CorpusmillError, ShardChangedError, SinkError

if TYPE_CHECKING:
    from airflow.sdk import Context

_QUOTA_WAIT = timedelta(hours=1)
_MARGIN = timedelta(seconds=5)


class EnrichRetryPolicy(RetryPolicy):
    """Wait as long as the endpoint said, and do not try what cannot work.

    A used-up quota waits until it resets, or `quota_wait` where the endpoint did not say when. A wrong key, an unknown
    model, a budget that is used up and a job that cannot work end the task. A sink that another run holds,
    a source or a store that cannot be reached, and anything that is not ours is tried again as the task itself says.
    """

    def __init__(self, *, quota_wait: timedelta = _QUOTA_WAIT) -> None:
        """Take the wait for a quota whose reset is not known."""
        self.quota_wait = quota_wait

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,  # noqa: ARG002 - the number of tries is Airflow's to bound
        max_tries: int,  # noqa: ARG002
        context: Context | None = None,  # noqa: ARG002
    ) -> RetryDecision:
        """Decide by the type of the exception."""
        return decision(exception, now=datetime.now(UTC), quota_wait=self.quota_wait)

    def serialize(self) -> dict[str, Any]:
        """Give what tells this policy from another."""
        return {"quota_wait": self.quota_wait.total_seconds()}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> EnrichRetryPolicy:
        """Undo `serialize`."""
        return cls(quota_wait=timedelta(seconds=data["quota_wait"]))


def decision(
    exception: BaseException, *, now: datetime, quota_wait: timedelta = _QUOTA_WAIT
) -> RetryDecision:
    """Say what becomes of a task that ended with this exception at `now` (UTC)."""
    if isinstance(exception, ComeBackLaterError):
        if exception.resets_at is None:
            return RetryDecision.retry(delay=quota_wait, reason="a quota is used up; until when is not known")
        wait = max(timedelta(0), exception.resets_at - now) + _MARGIN
        return RetryDecision.retry(delay=wait, reason="a quota is used up; it resets then")
    if isinstance(exception, ShardChangedError):
        return RetryDecision.fail(reason="the source changed since the shards were planned: clear the plan")
    if isinstance(exception, SinkError):
        return RetryDecision.default()  # where it cannot be written, a disk or a network may come back
    if isinstance(exception, CorpusmillError) and not exception.may_pass:
        return RetryDecision.fail(
            reason=f"{type(exception).__name__}: trying again would fail in the same way"
        )
    return RetryDecision.default()
