"""How much of a limit that nobody stated is used, and how little is refused, from ten seconds after the start."""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest

from corpusmill.chat.limits import Limiter
from corpusmill.chat.retry import with_retries
from corpusmill.chat.verdict import Accepted, RetryAfter, Verdict
from corpusmill.chat.waits import read_rates, retry_after
from corpusmill.exchange import Completion
from corpusmill.policy import Limits, RetryPolicy
from corpusmill.testing import limits as theirs
from corpusmill.testing.limits import RateLimits

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

COLD, STEADY = 10.0, 60.0
ON_THE_WAY = 0.002
EPOCH = 1_700_000_000.0
PROMPT = 60


class Run(Protocol):
    """Runs a coroutine in virtual time."""

    def __call__(self, main: Coroutine[Any, Any, T]) -> T: ...


def now() -> float:
    """Give the time of the running loop."""
    return asyncio.get_running_loop().time()


@dataclass(kw_only=True)
class Server:
    """Keeps to limits, and notes when each attempt came, when it was answered, and its tokens (0: refused)."""

    limits: RateLimits | None
    latency: float
    headers: bool = False
    tells: bool = True
    by_chance: float = 0.0
    attempts: list[tuple[float, float, int]] = field(default_factory=list)
    dice: random.Random = field(default_factory=lambda: random.Random(0))

    def __post_init__(self) -> None:
        self.limiter = None if self.limits is None else theirs.Limiter(self.limits, now=0.0)

    async def send(self) -> Verdict:
        await asyncio.sleep(ON_THE_WAY)
        came = now()
        wait = 0.0
        told: dict[str, str] = {}
        if self.limiter is not None:
            wait = self.limiter.admit(PROMPT, came).wait or 0.0
            if self.headers:
                told = {key.decode(): value.decode() for key, value in self.limiter.headers(came, EPOCH)}
        if wait > 0 or self.dice.random() < self.by_chance:
            self.attempts.append((came, came, 0))
            if self.tells and wait > 0:
                told["retry-after"] = str(math.ceil(wait))
            await asyncio.sleep(ON_THE_WAY)
            return RetryAfter(
                kind="rate_limited",
                reason="HTTP 429",
                rate_limited=True,
                wait=retry_after(told, "", EPOCH),
                rates=read_rates(told, EPOCH),
            )
        tokens = self.dice.randint(20, 120)
        await asyncio.sleep(self.dice.lognormvariate(math.log(self.latency) - 0.125, 0.5))
        if self.limiter is not None:
            self.limiter.spend(tokens, now())
        self.attempts.append((came, now(), PROMPT + tokens))
        await asyncio.sleep(ON_THE_WAY)
        completion = Completion(body=b"{}", content="a", finish_reason="stop")
        return Accepted(completion=completion, rates=read_rates(told, EPOCH))

    @property
    def tokens_per_second(self) -> float:
        """Tokens of what was answered in the steady time."""
        steady = (tokens for _, answered, tokens in self.attempts if COLD <= answered < COLD + STEADY)
        return sum(steady) / STEADY

    @property
    def let_in_per_second(self) -> float:
        """What was let in in the steady time."""
        return sum(COLD <= came < COLD + STEADY and tokens > 0 for came, _, tokens in self.attempts) / STEADY

    @property
    def refused(self) -> float:
        """Share of the attempts of the steady time."""
        steady = [tokens for came, _, tokens in self.attempts if COLD <= came < COLD + STEADY]
        return sum(tokens == 0 for tokens in steady) / len(steady)


async def work(server: Server, limits: Limits) -> Limiter:
    """Ask without an end, as many at a time as there are permits, until the steady time is over."""
    gate = Limiter(limits, clock=now)
    dice = random.Random(1)

    async def attempt(number: int) -> Verdict:
        async with gate.permit(PROMPT + 70) as permit:
            return permit.settle(await server.send(), PROMPT + 70)

    async def worker() -> None:
        while True:
            await with_retries(attempt, RetryPolicy(), sleep=asyncio.sleep, random=dice.random)

    # Rows that back off give their place to others.
    workers = [asyncio.ensure_future(worker()) for _ in range(limits.concurrency * 4)]
    await asyncio.sleep(COLD + STEADY)
    for each in workers:
        each.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    return gate


BUCKET = RateLimits(requests_per_minute=3_000, burst=50)
WINDOW = RateLimits(requests_per_minute=500, minute_seconds=10, window="fixed")


@pytest.mark.parametrize("latency", [0.1, 0.5])
@pytest.mark.parametrize(
    ("headers", "tells"),
    [(False, True), (True, True), (False, False)],
    ids=["retry-after", "headers", "silent"],
)
def test_a_bucket_is_used_up_and_hardly_overdrawn(
    run: Run, latency: float, *, headers: bool, tells: bool
) -> None:
    """Whether the server says when to come back, says what is left, or says nothing but no."""
    server = Server(limits=BUCKET, latency=latency, headers=headers, tells=tells)
    run(work(server, Limits()))
    assert server.let_in_per_second >= 50 * 0.97
    assert server.refused <= 0.01


def test_a_slow_server_s_bucket_is_used_up_too(run: Run) -> None:
    """A hundred have to be out at once: a refusal costs no minute of growing back."""
    server = Server(limits=BUCKET, latency=2.0, headers=True)
    run(work(server, Limits(concurrency=256)))
    assert server.let_in_per_second >= 50 * 0.95
    assert server.refused <= 0.01


@pytest.mark.parametrize("headers", [True, False])
def test_a_window_is_used_up_and_hardly_overdrawn(run: Run, *, headers: bool) -> None:
    """The whole allowance of each window, with and without headers that tell of it."""
    server = Server(limits=WINDOW, latency=0.1, headers=headers)
    run(work(server, Limits()))
    assert server.let_in_per_second >= 50 * 0.97
    assert server.refused <= 0.01


@pytest.mark.parametrize(("latency", "least"), [(0.1, 0.97), (0.5, 0.97), (2.0, 0.9)])
def test_tokens_are_used_up_and_hardly_overdrawn(run: Run, latency: float, least: float) -> None:
    """Though an answer's tokens are known only when it is there, and what went out until then is owed."""
    server = Server(limits=RateLimits(tokens_per_minute=300_000, token_burst=5_000), latency=latency)
    run(work(server, Limits(concurrency=256 if latency > 1 else 64)))
    assert server.tokens_per_second >= 5_000 * least
    assert server.refused <= 0.0125


def test_a_server_without_limits_is_not_held_back(run: Run) -> None:
    """As many are out as may be."""
    server = Server(limits=None, latency=0.5)
    gate = run(work(server, Limits()))
    assert server.let_in_per_second >= 64 / 0.5 * 0.97
    assert gate.pace.rate is None


@pytest.mark.parametrize(("by_chance", "least"), [(0.02, 10.0), (0.3, 2.0)])
def test_refusals_that_are_no_matter_of_the_rate_do_not_stop_the_work(
    run: Run, by_chance: float, least: float
) -> None:
    """A pace that helps nothing is given up before it has sunk to nothing."""
    server = Server(limits=None, latency=0.1, tells=False, by_chance=by_chance)
    run(work(server, Limits()))
    assert server.let_in_per_second >= least
