"""What becomes of a task, by the type of what ended it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from airflow.sdk import RetryAction

from corpusmill.airflow.retries import EnrichRetryPolicy, decision
from corpusmill.errors import (
    AuthenticationError,
    BrokenEndpointError,
    BudgetUsedUpError,
    ComeBackLaterError,
    CountsError,
    EndpointDownError,
    InterruptedRunError,
    JobError,
    ModelUnavailableError,
    ShardChangedError,
    SinkError,
    SourceChangedError,
    SourceUnreachableError,
    StoreError,
    TooManyFailuresError,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "hopeless",
    [
        AuthenticationError("x"),
        ModelUnavailableError("x"),
        BrokenEndpointError("x"),
        BudgetUsedUpError("x"),
        JobError("x"),
        CountsError("x"),
        ShardChangedError("x"),
    ],
)
def test_what_cannot_work_is_not_tried_again(hopeless: Exception) -> None:
    """A wrong key, an unknown model, a used-up budget, a job that is wrong, shards of another source."""
    assert decision(hopeless, now=NOW).action is RetryAction.FAIL


@pytest.mark.parametrize(
    "passing",
    [
        EndpointDownError("x"),
        InterruptedRunError("x"),
        TooManyFailuresError("x"),
        SinkError("held"),
        SourceChangedError("x"),
        SourceUnreachableError("x"),
        StoreError("x"),
        OSError("x"),
    ],
)
def test_what_may_pass_is_tried_again_as_the_task_says(passing: Exception) -> None:
    """The task's own number of retries and its delay count."""
    assert decision(passing, now=NOW).action is RetryAction.DEFAULT


def test_a_quota_is_waited_for_as_long_as_the_endpoint_said() -> None:
    """With a few seconds more, and an hour where the endpoint said nothing."""
    known = decision(ComeBackLaterError("x", resets_at=NOW + timedelta(hours=3)), now=NOW)
    assert (known.action, known.retry_delay) == (RetryAction.RETRY, timedelta(hours=3, seconds=5))
    past = decision(ComeBackLaterError("x", resets_at=NOW - timedelta(hours=3)), now=NOW)
    assert past.retry_delay == timedelta(seconds=5)
    unknown = decision(ComeBackLaterError("x"), now=NOW)
    assert (unknown.action, unknown.retry_delay) == (RetryAction.RETRY, timedelta(hours=1))


def test_the_policy_survives_being_written_down() -> None:
    """Airflow keeps it with the Dag."""
    policy = EnrichRetryPolicy(quota_wait=timedelta(minutes=7))
    again = EnrichRetryPolicy.deserialize(policy.serialize())
    assert again.evaluate(ComeBackLaterError("x"), 1, 3).retry_delay == timedelta(minutes=7)
