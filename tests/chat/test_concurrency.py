"""How many may be out follows the server: a simulation of servers of several kinds, in no time."""

from __future__ import annotations

import heapq
import math
import random
from typing import TYPE_CHECKING

import pytest

from corpusmill.chat.concurrency import START, Concurrency

if TYPE_CHECKING:
    from collections.abc import Callable


class Server:
    """Serves what is out at once; `latency(out)` says how long a request takes that goes out as the last of `out`."""

    def __init__(self, concurrency: Concurrency, latency: Callable[[int], float], work: float = 1.0) -> None:
        self.concurrency = concurrency
        self.latency = latency
        self.work = work
        self.now = 0.0
        self.out: list[tuple[float, float, float]] = []
        self.limits: list[tuple[float, float]] = []

    def run(self, answers: int) -> None:
        for _ in range(answers):
            while self.concurrency.allows(len(self.out)):
                done = self.now + self.latency(len(self.out) + 1)
                heapq.heappush(self.out, (done, self.now, self.work))
            done, sent, work = heapq.heappop(self.out)
            self.now = done
            self.concurrency.answered(sent, self.now, out=len(self.out) + 1, work=work)
            self.limits.append((self.now, self.concurrency.limit))

    @property
    def lowest_after_the_start(self) -> float:
        """The lowest limit since the ceiling was first reached."""
        ceiling = self.concurrency.ceiling
        first = next(place for place, (_, limit) in enumerate(self.limits) if limit >= ceiling)
        return min(limit for _, limit in self.limits[first:])


@pytest.mark.parametrize("ceiling", [1, 3, 16, 64, 1_000])
def test_the_ceiling_is_reached_within_a_few_round_trips(ceiling: int) -> None:
    """The number doubles with each, and never goes above the ceiling."""
    server = Server(Concurrency(ceiling), lambda out: 1.0)
    server.run(ceiling * 8)
    reached = next(now for now, limit in server.limits if limit >= ceiling)
    assert reached <= 1 + max(1, math.ceil(math.log2(ceiling / START))) if ceiling > START else reached == 1
    assert max(limit for _, limit in server.limits) == ceiling


def test_stragglers_and_noise_lower_nothing() -> None:
    """One in a hundred takes thirty seconds, the others vary: the server is as well as before."""
    dice = random.Random(1)

    def latency(out: int) -> float:
        return 30.0 if dice.random() < 0.01 else dice.lognormvariate(-0.125, 0.5)

    for ceiling in (64, 1_000):
        server = Server(Concurrency(ceiling), latency)
        server.run(60_000)
        assert server.lowest_after_the_start == ceiling


def test_a_server_that_queues_is_not_slowed_while_as_much_gets_done() -> None:
    """Latency grows with what is out, goodput does not fall: nothing is gained by sending less."""
    server = Server(Concurrency(256), lambda out: 1.0 * max(1.0, out / 32))
    server.run(20_000)
    assert server.lowest_after_the_start == 256


def test_a_server_that_gets_less_done_under_load_is_relieved() -> None:
    """Beyond a point each request takes disproportionately longer: fewer are sent, though nobody said 429."""
    healthy = True

    def latency(out: int) -> float:
        return 1.0 if healthy else (out / 20) ** 2.5

    concurrency = Concurrency(64)
    server = Server(concurrency, latency)
    server.run(2_000)
    healthy = False
    server.run(20_000)
    assert min(limit for _, limit in server.limits[2_000:]) < 40
    assert concurrency.limit >= 1


def test_longer_texts_are_not_taken_for_a_slower_server() -> None:
    """Ten times the tokens take ten times as long: as many tokens get done."""
    server = Server(Concurrency(64), lambda out: server.work / 100)
    server.work = 100.0
    server.run(3_000)
    server.work = 1_000.0
    server.run(3_000)
    assert server.lowest_after_the_start == 64


def test_a_smaller_number_that_does_not_help_is_taken_back() -> None:
    """Where the requests became harder, sending fewer gets less done still."""
    hardness = 1.0

    def latency(out: int) -> float:
        return hardness

    server = Server(Concurrency(64), latency)
    server.run(2_000)
    hardness = 3.0
    server.run(6_000)
    assert server.concurrency.limit == 64
    assert server.concurrency.reason == ""


def test_a_refusal_halves_once_for_all_that_was_out() -> None:
    """Sixty refusals of one moment are one message."""
    concurrency = Concurrency(64)
    concurrency.limit = 64.0
    for _ in range(60):
        concurrency.refused(sent=1.0, now=2.0)
    assert concurrency.limit == 32.0
    concurrency.refused(sent=2.5, now=3.0)
    assert concurrency.limit == 16.0
    assert concurrency.reason != ""


def test_it_never_falls_below_one_and_finds_back() -> None:
    """A storm of refusals stops nobody for ever."""
    concurrency = Concurrency(64)
    for second in range(100):
        concurrency.refused(sent=float(second), now=float(second))
    assert concurrency.limit == 1.0
    assert concurrency.allows(0)
    server = Server(concurrency, lambda out: 1.0)
    server.now = 200.0
    server.run(10_000)
    assert concurrency.limit == 64
    assert concurrency.reason == ""


def test_what_is_not_used_does_not_grow() -> None:
    """A source that is slower than the server proves nothing about the server."""
    concurrency = Concurrency(1_000)
    for second in range(1_000):
        concurrency.answered(second, second + 1.0, out=2, work=1.0)
    assert concurrency.limit == START
