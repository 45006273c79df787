"""Who may send now: permits, one for each attempt, given out in the order in which they were asked for.

A permit waits for the number of requests that may be out, for the rates per minute, for the pace at which the
server has been seen to let requests in, for what its headers say is left, for a pause that it asked for, and for
an endpoint that is down. None of these waits is longer than a minute without a look at how things stand, and
`Limiter.waiting` tells what is waited for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from corpusmill.chat.allowance import Allowance
from corpusmill.chat.breaker import Breaker
from corpusmill.chat.bucket import Bucket, full_bucket
from corpusmill.chat.concurrency import Concurrency
from corpusmill.chat.pace import Pace
from corpusmill.chat.verdict import Accepted, RetryAfter, Unparsed
from corpusmill.errors import EndpointDownError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from corpusmill.chat.verdict import Rates, Verdict
    from corpusmill.policy import Limits

LONGEST_PAUSE = 60.0
"""Seconds after which a pause is interrupted by one request, whatever the server asked for."""

GIVE_UP_AFTER = 0.1
"""Seconds past the patience at which it is certain to be over."""

TOKEN_SECONDS = 5.0
"""The burst of tokens, as seconds of their rate: a few requests' worth, where one request needs hundreds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Why nothing goes out, and until when by the limiter's clock (None: until an answer comes).

    `gives_up` is when waiting ends by ending the run; None where it does not.
    """

    reason: str
    until: float | None
    gives_up: float | None = None


class Permit:
    """The right to one attempt: `async with limiter.permit(tokens) as permit`.

    It is given back when the block ends, and no block may sleep in it.
    """

    __slots__ = ("_limiter", "again", "marks", "number", "probe", "sent", "settled", "tokens")

    def __init__(self, limiter: Limiter, tokens: float, *, again: bool = False) -> None:
        """Prepare to ask for a permit; `tokens` and `again` are as in `Limiter.permit`."""
        self._limiter = limiter
        self.tokens = tokens
        self.sent = 0.0
        self.number = 0
        self.marks = (0.0, 0.0)
        self.probe = False
        self.again = again
        self.settled = False

    async def __aenter__(self) -> Self:
        """Wait for the permit; raise `EndpointDownError` when the endpoint stays down."""
        await self._limiter.enter(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the permit back: as if never taken, when the block ended well without an attempt."""
        if kind is None and not self.settled:
            self._limiter.unused(self)
        self._limiter.leave(self)

    def settle(self, verdict: Verdict, tokens_used: float | None = None) -> Verdict:
        """Tell what came of the attempt and, where the server told, how many tokens it used.

        Give the verdict back: a failed look at an endpoint that is down does not count as the row's attempt, unless
        the row itself is to blame by all that is known.
        """
        return self._limiter.settle(self, verdict, tokens_used)


class Limiter:
    """Gives out permits for one endpoint, inside one event loop."""

    def __init__(
        self,
        limits: Limits,
        *,
        clock: Callable[[], float],
        wake_at: Callable[[float, Callable[[], None]], asyncio.TimerHandle] | None = None,
        name: str = "the endpoint",
    ) -> None:
        """Begin with nothing out.

        `clock` is a clock that only goes forward. `wake_at(delay, callback)` calls back after so many
        seconds of that clock; by default the running loop's `call_later`. `name` is how errors call the
        endpoint.
        """
        now = clock()
        self.breaker = Breaker(patience=limits.patience)
        self.concurrency = Concurrency(limits.concurrency)
        self.pace = Pace()
        self.out = 0
        self.limited = 0
        self._clock = clock
        self._wake_at = wake_at
        self._name = name
        self._queue: deque[tuple[asyncio.Future[None], Permit]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._buckets: list[tuple[Bucket, bool]] = []
        if limits.requests_per_minute is not None:
            self._buckets.append((full_bucket(limits.requests_per_minute, now), False))
        if limits.tokens_per_minute is not None:
            self._buckets.append((full_bucket(limits.tokens_per_minute, now, seconds=TOKEN_SECONDS), True))
        self._requests = Allowance()
        self._tokens = Allowance()
        self._paused_until = 0.0
        self._pause_reason = ""
        self.waiting: Wait | None = None

    @property
    def queued(self) -> int:
        """How many wait for a permit."""
        return len(self._queue)

    def permit(self, tokens: float = 1.0, *, again: bool = False) -> Permit:
        """Give a permit to wait for, for a request of about `tokens` tokens, prompt and answer together.

        `again` tells that the same request has come to a verdict that says `down` before.
        """
        return Permit(self, tokens, again=again)

    async def enter(self, permit: Permit) -> None:
        """Wait until the permit is given."""
        first = not self._queue
        if first and self._try(permit, self._clock()):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((future, permit))
        if first:
            self._pump()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.leave(permit)
            else:
                self._pump()
            raise

    def _try(self, permit: Permit, now: float) -> bool:
        """Give the permit if nothing stands against it; else note what does."""
        wait = self._against(permit, now)
        self.waiting = wait
        if wait is not None:
            return False
        for bucket, of_tokens in self._buckets:
            bucket.take(permit.tokens if of_tokens else 1.0, now)
        permit.marks = (self._requests.spend(1.0), self._tokens.spend(permit.tokens))
        permit.sent = now
        permit.number = self.pace.sent(now)
        permit.probe = self.breaker.sent(now)
        self.out += 1
        return True

    def _against(self, permit: Permit, now: float) -> Wait | None:
        if not self.concurrency.allows(self.out):
            return Wait(reason="as many are out as may be", until=None)
        if not self.breaker.allows(now):
            until, end = self.breaker.next_probe, self.breaker.gives_up_at
            gives_up = None if end is None else end + GIVE_UP_AFTER
            if gives_up is not None and now >= until:
                # The probe is out, and may hang; the patience ends all the same.
                until = gives_up
            what = "fails what it is asked" if end is None else "is down"
            return Wait(reason=f"{self._name} {what}: {self.breaker.reason}", until=until, gives_up=gives_up)
        if self._paused_until > now:
            return Wait(reason=self._pause_reason, until=self._paused_until)
        for bucket, of_tokens in self._buckets:
            delay = bucket.ready_in(permit.tokens if of_tokens else 1.0, now)
            if delay > 0:
                return Wait(reason=f"{'tokens' if of_tokens else 'requests'} per minute", until=now + delay)
        delay = self.pace.ready_in(now)
        if delay > 0:
            return Wait(reason="as many a second as the server has let in", until=now + delay)
        delay = self._requests.ready_in(1.0, now)
        if delay > 0:
            return Wait(reason="the server says that no requests are left", until=now + delay)
        delay = self._tokens.ready_in(permit.tokens, now)
        if delay > 0:
            return Wait(reason="the server says that no tokens are left", until=now + delay)
        return None

    def leave(self, permit: Permit) -> None:
        """Take a permit back."""
        self.out -= 1
        if permit.probe and not permit.settled:
            self.breaker.lost()
        if self._queue:
            self._pump()

    def unused(self, permit: Permit) -> None:
        """Put back what a permit took for a request that was never sent."""
        now = self._clock()
        self.pace.unused(permit.number)
        for bucket, of_tokens in self._buckets:
            bucket.settle(permit.tokens if of_tokens else 1.0, 0.0, now)
        self._requests.spend(-1.0)
        self._tokens.spend(-permit.tokens)

    def settle(self, permit: Permit, verdict: Verdict, tokens_used: float | None) -> Verdict:
        """Take in what came of an attempt."""
        now = self._clock()
        permit.settled = True
        down = isinstance(verdict, RetryAfter) and verdict.down
        was_open = self.breaker.state != "closed"
        if down or self.breaker.since is not None or not self.breaker.heard:
            self.breaker.record(verdict, now, probe=permit.probe, again=permit.again)
        if self._buckets:
            self._settle_tokens(permit, verdict, tokens_used, now)
        if isinstance(verdict, Accepted | Unparsed):
            self.concurrency.answered(permit.sent, now, out=self.out, work=tokens_used or 1.0)
        elif isinstance(verdict, RetryAfter):
            if verdict.rate_limited:
                self._slow_down(permit, verdict, now)
            if down and was_open and not verdict.possibly_paid and not self.breaker.blames_rows(now):
                verdict = replace(verdict, counted=False)
        if verdict.rates is not None:
            self._obey(verdict.rates, permit, now)
        return verdict

    def _settle_tokens(self, permit: Permit, verdict: Verdict, used: float | None, now: float) -> None:
        if used is None:
            # A request that was turned away used none; of one that was lost nobody knows.
            turned_away = isinstance(verdict, RetryAfter) and not verdict.possibly_paid
            used = 0.0 if turned_away else permit.tokens
        for bucket, of_tokens in self._buckets:
            if of_tokens:
                bucket.settle(permit.tokens, used, now)

    def _slow_down(self, permit: Permit, verdict: RetryAfter, now: float) -> None:
        self.limited += 1
        # What was refused has taken nothing of what is left.
        self._requests.spend(-1.0)
        self._tokens.spend(-permit.tokens)
        if not self.pace.refused(permit.number, permit.sent, now):
            self.concurrency.refused(permit.sent, now)
        if verdict.wait is not None and verdict.wait > 0:
            until = now + min(verdict.wait, LONGEST_PAUSE)
            if until > self._paused_until:
                self._paused_until = until
                self.pace.paused(until)
                self._pause_reason = f"the server asked to wait {verdict.wait:g} s"

    def _obey(self, rates: Rates, permit: Permit, now: float) -> None:
        requests, tokens = permit.marks
        if rates.requests is not None:
            self._requests.told(
                rates.requests, rates.requests_reset, mark=requests, sent=permit.sent, now=now
            )
        if rates.tokens is not None:
            self._tokens.told(rates.tokens, rates.tokens_reset, mark=tokens, sent=permit.sent, now=now)

    def _pump(self) -> None:
        """Give permits to those who wait, as far as it goes, and see to it that somebody looks again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        queue = self._queue
        while queue:
            future, permit = queue[0]
            if future.done():
                queue.popleft()
                continue
            now = self._clock()
            if self.breaker.gave_up(now):
                self._give_up(now)
                return
            if not self._try(permit, now):
                break
            queue.popleft()
            future.set_result(None)
        if not queue:
            self.waiting = None
        elif self.waiting is not None and self.waiting.until is not None:
            delay = max(0.0, min(self.waiting.until - self._clock(), LONGEST_PAUSE))
            later = self._wake_at or asyncio.get_running_loop().call_later
            self._timer = later(delay, self._pump)

    def _give_up(self, now: float) -> None:
        end = self.breaker.gives_up_at
        seconds = 0.0 if end is None else now - end + self.breaker.patience
        message = (
            f"{self._name} has not answered for {seconds:.0f} s ({self.breaker.reason}); "
            "run the same command again when it is back, nothing that was paid for is lost"
        )
        while self._queue:
            future, _ = self._queue.popleft()
            if not future.done():
                future.set_exception(EndpointDownError(message))
