"""Tries again what may pass, driven by tenacity over verdicts.

Attempts count failures, never rate limits. The deadline counts what attempts took and what back-off took,
not waiting for permits, for limits or for an endpoint that is down; all of that happens inside `attempt` or
is told by the verdict. What uses up neither is asked again after `LONGEST_PAUSE` at the latest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import tenacity

from corpusmill.chat.limits import LONGEST_PAUSE
from corpusmill.chat.verdict import RetryAfter, RowFailed, Unparsed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from corpusmill.chat.verdict import Verdict
    from corpusmill.policy import RetryPolicy

_LARGEST_POWER = 30
"""Doublings of the back-off beyond which it is at its maximum for certain."""


class Timed(Protocol):
    """Whatever an attempt comes to: a verdict, or something of the caller's that is final too."""

    @property
    def seconds(self) -> float:
        """How long the attempt took."""


V = TypeVar("V", bound=Timed)


async def with_retries(
    attempt: Callable[[int], Awaitable[V]],
    policy: RetryPolicy,
    *,
    sleep: Callable[[float], Awaitable[None]],
    random: Callable[[], float],
) -> V | RowFailed:
    """Call `attempt` with 1, 2, 3, ... until its verdict is final, and give that verdict.

    A failure that outlives the policy becomes a `RowFailed` of the same kind. `sleep` takes seconds,
    `random` gives numbers from 0 to 1. No permit may be held between two calls of `attempt`.
    """
    first = await attempt(1)
    if not isinstance(first, RetryAfter | Unparsed):
        # Nearly every row ends here, and does not pay for a retry loop that it does not need.
        return first
    history = _History(policy=policy, random=random)
    history.add(first)
    number = 1

    async def next_attempt() -> V:
        nonlocal number
        if number == 1:
            number = 2
            return first
        verdict = await attempt(number)
        number += 1
        history.add(verdict)
        return verdict

    retrying = tenacity.AsyncRetrying(
        retry=history.may_pass,
        wait=history.wait,
        stop=history.is_enough,
        sleep=sleep,
        retry_error_callback=history.given_up,
    )
    verdict: V | RowFailed = await retrying(next_attempt)
    return verdict


@dataclass(slots=True, kw_only=True)
class _History:
    policy: RetryPolicy
    random: Callable[[], float]
    tries: int = 0
    failures: int = 0
    limited_in_a_row: int = 0
    unparsed: int = 0
    spent: float = 0.0
    possibly_paid: bool = False

    def add(self, verdict: Timed) -> None:
        self.tries += 1
        if isinstance(verdict, Unparsed):
            self.unparsed += 1
            self.failures += 1
        if isinstance(verdict, RetryAfter):
            self.possibly_paid = self.possibly_paid or verdict.possibly_paid
            self.limited_in_a_row = self.limited_in_a_row + 1 if verdict.rate_limited else 0
            self.failures += verdict.counted and not verdict.rate_limited
            if verdict.rate_limited or not verdict.counted:
                return
        self.spent += verdict.seconds

    def may_pass(self, state: tenacity.RetryCallState) -> bool:
        verdict = _verdict(state)
        return isinstance(verdict, RetryAfter) or (isinstance(verdict, Unparsed) and self.unparsed == 1)

    def wait(self, state: tenacity.RetryCallState) -> float:
        verdict = _verdict(state)
        told = verdict.wait if isinstance(verdict, RetryAfter) else None
        limited = isinstance(verdict, RetryAfter) and verdict.rate_limited
        if told is not None and told > 0:
            # What does not use up the deadline has no other bound, and the limiter's pause is no longer either.
            bounded = isinstance(verdict, RetryAfter) and (limited or not verdict.counted)
            return min(told, LONGEST_PAUSE) if bounded else told
        # A server that says "in 0 seconds" time and again is not asked in a tight loop.
        power = min((self.limited_in_a_row if limited else self.failures) - 1, _LARGEST_POWER)
        return self.random() * min(self.policy.backoff_max, self.policy.backoff * 2.0 ** max(power, 0))

    def is_enough(self, state: tenacity.RetryCallState) -> bool:
        verdict = _verdict(state)
        if isinstance(verdict, RetryAfter) and (verdict.rate_limited or not verdict.counted):
            return False
        self.spent += state.upcoming_sleep
        return self.failures >= self.policy.attempts or self.spent >= self.policy.deadline

    def given_up(self, state: tenacity.RetryCallState) -> Verdict:
        verdict = _verdict(state)
        if not isinstance(verdict, RetryAfter):
            return verdict
        many = "1 attempt" if self.failures == 1 else f"{self.failures} attempts"
        late = "" if self.failures >= self.policy.attempts else f", deadline of {self.policy.deadline:g} s"
        return RowFailed(
            kind=verdict.kind,
            reason=f"{verdict.reason} (given up after {many}{late})",
            possibly_paid=self.possibly_paid,
            request_id=verdict.request_id,
            rates=verdict.rates,
            seconds=verdict.seconds,
        )


def _verdict(state: tenacity.RetryCallState) -> Verdict:
    if state.outcome is None:
        raise RuntimeError("tenacity asked about an attempt that was not made")
    verdict: Verdict = state.outcome.result()
    return verdict
