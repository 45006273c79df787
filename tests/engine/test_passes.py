"""Permits that several processes share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from corpusmill.chat.limits import Limiter
from corpusmill.chat.verdict import RowFailed
from corpusmill.engine.passes import Passes
from corpusmill.policy import Limits
from corpusmill.store.rates import Levels, Rates, take

if TYPE_CHECKING:
    from tests.conftest import FakeClock

    from corpusmill.store import Store


class SharedRates:
    """A store, as far as rates go."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._levels: Levels | None = None
        self.taken: list[tuple[float, float]] = []

    def take(self, identity: str, *, rates: Rates, tokens: float) -> float:
        assert identity == "model"
        after, wait = take(self._levels, rates, tokens=tokens, now=self._clock())
        if after is not None:
            self._levels = after
            self.taken.append((self._clock(), tokens))
        return wait


def passes(clock: FakeClock, shared: SharedRates, **limits: Any) -> Passes:
    """Give what one process has, with a limiter of its own that lets everything through."""
    limiter = Limiter(Limits(concurrency=limits.pop("concurrency", 64)), clock=clock)
    return Passes(
        limiter,
        cast("Store", shared),
        identity="model",
        limits=Limits(**limits),
        sleep=clock.sleep,
    )


async def send(one: Passes, *, tokens: float = 10.0, used: float | None = 10.0) -> None:
    """Send one request that comes to so many tokens."""
    async with one.permit(tokens) as permit:
        permit.settle(RowFailed(kind="any", reason="any"))
        one.used(tokens, used)


def test_two_processes_keep_one_rate(clock: FakeClock) -> None:
    """However they take turns, one request goes out a second when sixty a minute may."""

    async def main() -> None:
        shared = SharedRates(clock)
        both = [passes(clock, shared, requests_per_minute=60) for _ in range(2)]
        for row in range(20):
            await send(both[row % 2])
        moments = [moment for moment, _ in shared.taken]
        assert len(moments) == 20
        assert moments[-1] - moments[0] == pytest.approx(19.0)

    asyncio.run(main())


def test_tokens_beyond_the_estimate_are_paid_by_the_next_request(clock: FakeClock) -> None:
    """What a request came to is settled with the store, in either direction."""

    async def main() -> None:
        shared = SharedRates(clock)
        one = passes(clock, shared, tokens_per_minute=6_000)
        await send(one, tokens=100, used=130)
        await send(one, tokens=100, used=20)
        await send(one, tokens=50, used=50)
        await send(one, tokens=100, used=None)
        assert [tokens for _, tokens in shared.taken] == [100, 130, 0, 70]

    asyncio.run(main())


def test_what_was_not_sent_is_given_to_the_next(clock: FakeClock) -> None:
    """A key that somebody else is asking uses up nothing of the rate."""

    async def main() -> None:
        shared = SharedRates(clock)
        one = passes(clock, shared, requests_per_minute=60)
        for _ in range(5):
            async with one.permit(10):
                pass
        await send(one)
        assert len(shared.taken) == 1

    asyncio.run(main())


def test_without_stated_rates_the_store_is_not_asked(clock: FakeClock) -> None:
    """Then only the server's own words count, which each process hears by itself."""

    async def main() -> None:
        shared = SharedRates(clock)
        await send(passes(clock, shared))
        assert shared.taken == []

    asyncio.run(main())


def test_a_cancelled_wait_hands_the_turn_on(clock: FakeClock) -> None:
    """Whoever leaves while it waits for a permit of the limiter blocks nobody."""

    async def main() -> None:
        shared = SharedRates(clock)
        one = passes(clock, shared, requests_per_minute=6_000, concurrency=1)
        async with one.permit(1) as permit:
            waiting = asyncio.create_task(send(one))
            while len(shared.taken) < 2:  # noqa: ASYNC110 - until the task has got as far
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            permit.settle(RowFailed(kind="any", reason="any"))
        await asyncio.wait_for(send(one), 30)

    asyncio.run(main())
