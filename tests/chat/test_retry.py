"""What may pass is tried again, for as long and as often as the policy says, and waits what it was told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.chat.limits import LONGEST_PAUSE
from corpusmill.chat.retry import with_retries
from corpusmill.chat.verdict import Accepted, ComesBackLater, RetryAfter, RowFailed, RunEnds, Unparsed
from corpusmill.errors import AuthenticationError
from corpusmill.exchange import Completion
from corpusmill.policy import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpusmill.chat.verdict import Verdict

YES = Accepted(completion=Completion(body=b"{}", content="a", finish_reason="stop"))
NO = RetryAfter(kind="server_error", reason="HTTP 500: no", down=True, request_id="r1")
LIMITED = RetryAfter(kind="rate_limited", reason="HTTP 429: slow", rate_limited=True)
PROBE = RetryAfter(kind="connect", reason="refused", counted=False, seconds=50.0)
GARBLED = Unparsed(output="{", body=b"{}", reason="HTTP 500: bad tool call")


class Script:
    """Gives verdicts in turn, the last one for ever, and remembers what was asked and slept."""

    def __init__(self, *verdicts: Verdict) -> None:
        self.verdicts = list(verdicts)
        self.numbers: list[int] = []
        self.slept: list[float] = []

    async def attempt(self, number: int) -> Verdict:
        self.numbers.append(number)
        return self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0]

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def run(
        self,
        *,
        random: Callable[[], float] = lambda: 1.0,
        attempts: int = 8,
        deadline: float = 900.0,
        backoff: float = 0.5,
        backoff_max: float = 60.0,
    ) -> Verdict:
        policy = RetryPolicy(attempts=attempts, deadline=deadline, backoff=backoff, backoff_max=backoff_max)
        return asyncio.run(with_retries(self.attempt, policy, sleep=self.sleep, random=random))


FINAL = [
    YES,
    RowFailed(kind="invalid_request", reason="no"),
    RunEnds(error=AuthenticationError("no")),
    ComesBackLater(resets_at=None, reason="used up"),
]


@pytest.mark.parametrize("verdict", FINAL)
@pytest.mark.parametrize("before", [[], [NO], [LIMITED, NO]])
def test_a_final_verdict_is_given_back_as_it_is(verdict: Verdict, before: list[Verdict]) -> None:
    """At the first try or after others."""
    script = Script(*before, verdict)
    assert script.run() is verdict
    assert script.numbers == list(range(1, len(before) + 2))


def test_back_off_doubles_up_to_its_maximum() -> None:
    """With the jitter at its largest the waits are the bounds."""
    script = Script(NO)
    script.run(attempts=6, backoff=1, backoff_max=5)
    assert script.slept == [1, 2, 4, 5, 5]


@given(share=st.floats(0, 1))
def test_jitter_is_full(share: float) -> None:
    """A wait lies anywhere between nothing and its bound."""
    script = Script(NO, NO, YES)
    script.run(backoff=1, random=lambda: share)
    assert script.slept == [share, 2 * share]


def test_each_response_s_own_wait_is_waited() -> None:
    """Not the first one's, and not the back-off."""
    waits = [3.0, 0.25, 50.0]
    script = Script(
        *(RetryAfter(kind="rate_limited", reason="", rate_limited=True, wait=w) for w in waits), YES
    )
    assert script.run(deadline=10) is YES
    assert script.slept == waits


@pytest.mark.parametrize(
    "verdict",
    [
        RetryAfter(kind="rate_limited", reason="", rate_limited=True, wait=130.0),
        RetryAfter(kind="unavailable", reason="", down=True, counted=False, wait=3600.0),
    ],
)
def test_what_uses_up_no_deadline_is_asked_again_within_a_minute(verdict: RetryAfter) -> None:
    """Whatever the server said: the other rows may show by then that it takes everything again."""
    script = Script(verdict, YES)
    assert script.run(deadline=10) is YES
    assert script.slept == [LONGEST_PAUSE]


def test_a_wait_of_nothing_is_not_taken_at_its_word() -> None:
    """A server that says "at once" time and again is backed off from all the same."""
    limited = RetryAfter(kind="rate_limited", reason="", rate_limited=True, wait=0.0)
    script = Script(limited, limited, limited, YES)
    script.run(backoff=1)
    assert script.slept == [1, 2, 4]


def test_attempts_count_failures_and_then_the_row_fails_of_that_kind() -> None:
    """With the last reason, how often it was tried, the server's id, and whether any try may have been paid."""
    lost = RetryAfter(kind="reset", reason="reset: peer", possibly_paid=True)
    script = Script(lost, NO)
    verdict = script.run(attempts=3)
    assert isinstance(verdict, RowFailed)
    assert (verdict.kind, verdict.request_id, verdict.possibly_paid) == ("server_error", "r1", True)
    assert "3 attempts" in verdict.reason
    assert script.numbers == [1, 2, 3]


def test_rate_limits_never_use_up_attempts_or_the_deadline() -> None:
    """A rate limit is never fatal to a row: it waits its turn."""
    slow = RetryAfter(kind="rate_limited", reason="", rate_limited=True, wait=60.0, seconds=5.0)
    script = Script(*[slow] * 200, NO, *[slow] * 200, YES)
    assert script.run(attempts=2, deadline=10) is YES
    assert len(script.numbers) == 402


def test_looks_at_an_endpoint_that_is_down_use_up_nothing() -> None:
    """They were made for all rows, not for this one."""
    script = Script(*[PROBE] * 50, YES)
    assert script.run(attempts=1, deadline=10) is YES


def test_one_attempt_means_no_retry() -> None:
    """The smallest policy is kept to."""
    script = Script(NO)
    assert isinstance(script.run(attempts=1), RowFailed)
    assert (script.numbers, script.slept) == ([1], [])


def test_the_deadline_counts_attempts_and_back_off() -> None:
    """A wait that would end after it is not begun."""
    slow = RetryAfter(kind="read_timeout", reason="x", seconds=4.0)
    script = Script(slow)
    verdict = script.run(attempts=100, deadline=20, backoff=2, backoff_max=2)
    assert isinstance(verdict, RowFailed)
    assert "deadline" in verdict.reason
    assert script.slept == [2, 2, 2]


def test_an_attempt_that_took_the_whole_deadline_was_the_last() -> None:
    """Also where no back-off comes after it."""
    script = Script(RetryAfter(kind="too_slow", reason="x", seconds=3.0))
    verdict = script.run(deadline=3, backoff=0)
    assert isinstance(verdict, RowFailed)
    assert "1 attempt, deadline of 3 s" in verdict.reason
    assert script.numbers == [1]


def test_a_told_wait_beyond_the_deadline_ends_the_row() -> None:
    """A server that is away for an hour is not slept for by a row that has a minute."""
    away = RetryAfter(kind="unavailable", reason="x", wait=3600.0)
    script = Script(away)
    assert isinstance(script.run(deadline=60), RowFailed)
    assert script.slept == []


def test_output_that_could_not_be_parsed_is_tried_once_more() -> None:
    """And if it fails again, the second output is the verdict."""
    script = Script(GARBLED)
    assert script.run() is GARBLED
    assert script.numbers == [1, 2]
    assert Script(GARBLED, YES).run() is YES


def test_an_exception_of_an_attempt_goes_up_as_it_is() -> None:
    """A defect, a cancelled task or a broken store is no failure of the endpoint."""

    async def attempt(number: int) -> Verdict:
        if number == 1:
            return NO
        raise KeyError("mine")

    async def sleep(seconds: float) -> None: ...

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(with_retries(attempt, RetryPolicy(), sleep=sleep, random=lambda: 0.0))


def test_two_rows_that_retry_at_once_do_not_share_their_counts() -> None:
    """Each has its own history."""

    async def both() -> list[Verdict]:
        first, second = Script(NO, NO, YES), Script(NO, NO, YES)
        return await asyncio.gather(
            *(
                with_retries(s.attempt, RetryPolicy(attempts=3), sleep=s.sleep, random=lambda: 0.0)
                for s in (first, second)
            )
        )

    assert asyncio.run(both()) == [YES, YES]
