"""Permits: in order, never too many, never too fast, and never waiting for ever."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpusmill.chat.concurrency import START
from corpusmill.chat.limits import GIVE_UP_AFTER, LONGEST_PAUSE, Limiter
from corpusmill.chat.retry import with_retries
from corpusmill.chat.verdict import Accepted, Rates, RetryAfter, RowFailed, Verdict
from corpusmill.errors import EndpointDownError
from corpusmill.exchange import Completion
from corpusmill.policy import Limits, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class Run(Protocol):
    """Runs a coroutine in virtual time."""

    def __call__(self, main: Coroutine[Any, Any, T]) -> T: ...


REFUSED = RetryAfter(kind="connect", reason="connect: refused", down=True)


def yes(content: str = "a", rates: Rates | None = None) -> Accepted:
    """Make an answer."""
    return Accepted(completion=Completion(body=b"{}", content=content, finish_reason="stop"), rates=rates)


def now() -> float:
    """Give the time of the running loop."""
    return asyncio.get_running_loop().time()


def limiter(**limits: Any) -> Limiter:
    """Make a limiter that goes by the running loop's time."""
    return Limiter(Limits(**limits), clock=now)


class Server:
    """Answers after `seconds`, as many a minute as `bucket` fills, with or without saying so in headers."""

    def __init__(
        self,
        *,
        seconds: float = 1.0,
        per_minute: float | None = None,
        burst: float = 1.0,
        tells: bool = True,
        headers: bool = False,
    ) -> None:
        self.seconds = seconds
        self.per_minute = per_minute
        self.burst = burst
        self.tells = tells
        self.headers = headers
        self.level = burst
        self.filled = 0.0
        self.sent: list[float] = []
        self.refused = 0
        self.out = 0
        self.most = 0

    async def send(self, content: str) -> Verdict:
        self.sent.append(now())
        self.out += 1
        self.most = max(self.most, self.out)
        try:
            return await self._answer(content)
        finally:
            self.out -= 1

    async def _answer(self, content: str) -> Verdict:
        rates = None
        if self.per_minute is not None:
            self.level = min(self.burst, self.level + (now() - self.filled) * self.per_minute / 60)
            self.filled = now()
            missing = 1.0 - self.level
            if missing > 1e-9:
                self.refused += 1
                wait = missing * 60 / self.per_minute if self.tells else None
                return RetryAfter(kind="rate_limited", reason="HTTP 429", wait=wait, rate_limited=True)
            self.level -= 1.0
            if self.headers:
                reset = (1.0 - min(1.0, self.level)) * 60 / self.per_minute
                rates = Rates(requests=float(int(self.level)), requests_reset=reset)
        await asyncio.sleep(self.seconds)
        return yes(content, rates)


async def ask_all(
    rows: int, gate: Limiter, server: Server, *, policy: RetryPolicy | None = None
) -> list[Verdict]:
    """Ask all rows at once through one limiter, with retries."""
    dice = random.Random(0)

    async def ask(row: int) -> Verdict:
        failed = False

        async def attempt(number: int) -> Verdict:
            nonlocal failed
            async with gate.permit(10, again=failed) as permit:
                verdict = permit.settle(await server.send(str(row)), 10)
            failed = failed or (isinstance(verdict, RetryAfter) and verdict.down)
            return verdict

        return await with_retries(attempt, policy or RetryPolicy(), sleep=asyncio.sleep, random=dice.random)

    return list(await asyncio.gather(*map(ask, range(rows))))


def contents(verdicts: list[Verdict]) -> list[str | None]:
    """Give the answers, failing for a row that has none."""
    assert all(isinstance(verdict, Accepted) for verdict in verdicts)
    return [verdict.completion.content for verdict in verdicts if isinstance(verdict, Accepted)]


def most_in_a_minute(moments: list[float]) -> int:
    """Give the largest number of moments within any sixty seconds."""
    most = start = 0
    for end, moment in enumerate(moments):
        while moments[start] <= moment - 60:
            start += 1
        most = max(most, end - start + 1)
    return most


def test_at_twenty_a_minute_a_thousand_rows_take_fifty_minutes_and_every_row_is_right(run: Run) -> None:
    """The rate is kept exactly: no refusal, no row lost, no answer of another row."""

    async def main() -> float:
        server = Server(per_minute=20)
        verdicts = await ask_all(1_000, limiter(requests_per_minute=20), server)
        assert contents(verdicts) == [str(row) for row in range(1_000)]
        assert server.refused == 0
        return now()

    assert run(main()) == pytest.approx(999 * 3 + 1)


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("burst", [1.0, 20.0])
def test_a_rate_that_nobody_stated_is_found(run: Run, *, tells: bool, burst: float) -> None:
    """By what the server refuses, with and without a time to wait: every row is right, in about the same time."""

    async def main() -> tuple[float, int]:
        server = Server(per_minute=60, burst=burst, tells=tells)
        verdicts = await ask_all(600, limiter(), server)
        assert contents(verdicts) == [str(row) for row in range(600)]
        return now(), server.refused

    seconds, refused = run(main())
    assert seconds < 600 * 1.5
    assert refused < 1_200


def test_headers_are_obeyed_before_anything_is_refused(run: Run) -> None:
    """A server that says what is left is not asked for more."""

    async def main() -> int:
        server = Server(seconds=0.1, per_minute=60, burst=20, headers=True)
        contents(await ask_all(300, limiter(), server))
        return server.refused

    assert run(main()) <= START


@pytest.mark.parametrize(
    "rates",
    [
        Rates(requests=0, requests_reset=60),
        Rates(requests=0),
        Rates(requests=0, requests_reset=0),
        Rates(requests=0, requests_reset=1e6, tokens=0, tokens_reset=1e6),
        Rates(tokens=0, tokens_reset=5),
        Rates(day=0, day_reset=80_000),
        Rates(requests=1e9, tokens=0),
    ],
)
def test_headers_that_are_never_true_stop_nobody_for_ever(run: Run, rates: Rates) -> None:
    """A server that always says "nothing left" and always answers is asked at least once a minute."""

    async def main() -> float:
        gate = limiter()
        for _ in range(10):
            async with gate.permit(100) as permit:
                permit.settle(yes(rates=rates), 100)
        return now()

    assert run(main()) <= 10 * LONGEST_PAUSE


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    per_minute=st.sampled_from([1, 20, 60, 600]),
    seconds=st.floats(0, 20),
    pauses=st.lists(st.floats(0, 40), min_size=1, max_size=80),
)
def test_no_minute_sees_more_than_the_rate_and_its_burst(
    run: Run, per_minute: int, seconds: float, pauses: list[float]
) -> None:
    """However requests arrive and however long they take."""

    async def main() -> list[float]:
        server = Server(seconds=seconds)
        gate = limiter(requests_per_minute=per_minute, concurrency=1_000)

        async def ask() -> None:
            async with gate.permit() as permit:
                permit.settle(await server.send("a"))

        asking = []
        for pause in pauses:
            asking += [asyncio.ensure_future(ask()), asyncio.ensure_future(ask())]
            await asyncio.sleep(pause)
        await asyncio.gather(*asking)
        return server.sent

    assert most_in_a_minute(run(main())) <= per_minute + max(1, per_minute / 60)


def test_tokens_are_reserved_while_a_request_is_out(run: Run) -> None:
    """What will probably be used counts before it has been: the second request waits for the first one's tokens."""

    async def main() -> list[float]:
        server = Server(seconds=1.0)
        gate = limiter(tokens_per_minute=6_000)

        async def ask() -> None:
            async with gate.permit(1_000) as permit:
                permit.settle(await server.send("a"), 1_000)

        await asyncio.gather(ask(), ask(), ask())
        return server.sent

    # 100 tokens a second, of which five seconds' worth may be taken at once.
    assert run(main()) == pytest.approx([0, 10, 20])


@pytest.mark.parametrize(
    ("verdict", "used", "second"),
    [
        (yes(), 100.0, 1.0),
        (yes(), 2_000.0, 20.0),
        (RetryAfter(kind="connect", reason="", down=True), None, 0.0),
        (RetryAfter(kind="reset", reason="", possibly_paid=True), None, 10.0),
    ],
)
def test_what_was_reserved_is_settled_with_what_was_used(
    run: Run, verdict: Verdict, used: float | None, second: float
) -> None:
    """Less comes back, more is taken, what was never sent costs nothing, what was lost costs its estimate."""

    async def main() -> float:
        gate = limiter(tokens_per_minute=6_000)
        async with gate.permit(1_000) as permit:
            permit.settle(verdict, used)
        async with gate.permit(1_000) as permit:
            permit.settle(yes())
        return now()

    assert run(main()) == pytest.approx(second)


def test_a_permit_whose_request_was_never_sent_costs_nothing(run: Run) -> None:
    """A row that finds its answer in the store at the last moment leaves its place to others."""

    async def main() -> float:
        gate = limiter(requests_per_minute=1, tokens_per_minute=60)
        for _ in range(100):
            async with gate.permit(50):
                pass
        return now()

    assert run(main()) == 0.0


def test_permits_are_given_in_the_order_in_which_they_were_asked_for(run: Run) -> None:
    """Nobody is overtaken, whatever its size."""

    async def main() -> list[int]:
        gate = limiter(concurrency=1, tokens_per_minute=60_000)
        order: list[int] = []

        async def ask(row: int) -> None:
            async with gate.permit(5_000 if row % 2 else 1) as permit:
                order.append(row)
                await asyncio.sleep(0.01)
                permit.settle(yes(), 1)

        await asyncio.gather(*map(ask, range(50)))
        return order

    assert run(main()) == list(range(50))


@pytest.mark.parametrize("concurrency", [1, 7, 64])
def test_never_more_are_out_than_the_ceiling(run: Run, concurrency: int) -> None:
    """And as many as the ceiling, when there is work for them."""

    async def main() -> int:
        server = Server()
        await ask_all(concurrency * 20, limiter(concurrency=concurrency), server)
        return server.most

    assert run(main()) == concurrency


def test_a_thousand_are_out_within_seven_round_trips(run: Run) -> None:
    """A large ceiling is reached quickly when nothing speaks against it."""

    async def main() -> int:
        server = Server()
        asking = asyncio.ensure_future(ask_all(9_000, limiter(concurrency=1_000), server))
        await asyncio.sleep(7.5)
        out = server.out
        await asking
        return out

    assert run(main()) == 1_000


def test_a_cancelled_wait_leaves_the_others_their_turn(run: Run) -> None:
    """Before the permit is given, and at the very moment at which it is."""

    async def main() -> tuple[int, int]:
        gate = limiter(concurrency=1)

        async def ask() -> None:
            async with gate.permit() as permit:
                await asyncio.sleep(1)
                permit.settle(yes())

        first, second, third, fourth = (asyncio.ensure_future(ask()) for _ in range(4))
        await asyncio.sleep(0.5)
        second.cancel()
        await first
        # The third has been given the permit and has not run yet.
        third.cancel()
        await fourth
        await asyncio.gather(second, third, return_exceptions=True)
        return gate.out, gate.queued

    assert run(main()) == (0, 0)


def test_an_error_inside_gives_the_permit_back(run: Run) -> None:
    """Whatever happens to a row, its place becomes free."""

    async def main() -> int:
        gate = limiter(concurrency=1)
        for _ in range(3):
            with pytest.raises(KeyError):
                async with gate.permit():
                    raise KeyError
        return gate.out

    assert run(main()) == 0


@pytest.mark.parametrize(("wait", "second"), [(7.0, 7.0), (600.0, LONGEST_PAUSE), (None, 0.0)])
def test_a_refusal_with_a_time_stops_everybody_until_then(
    run: Run, wait: float | None, second: float
) -> None:
    """Bounded by a minute, then one looks again; the pause can be seen with its reason."""

    async def main() -> float:
        gate = limiter()
        async with gate.permit() as permit:
            limited = RetryAfter(kind="rate_limited", reason="", wait=wait, rate_limited=True)
            permit.settle(limited)
        other = asyncio.ensure_future(gate.permit().__aenter__())
        await asyncio.sleep(0)
        if second:
            assert gate.waiting is not None
            assert gate.waiting.until == second
            assert "wait" in gate.waiting.reason
        await other
        assert gate.waiting is None
        return now()

    assert run(main()) == second


def test_a_refusal_slows_down(run: Run) -> None:
    """Half as many are out after it."""

    async def main() -> tuple[float, int]:
        gate = limiter()
        async with gate.permit() as permit:
            permit.settle(RetryAfter(kind="rate_limited", reason="", rate_limited=True))
        return gate.concurrency.limit, gate.limited

    assert run(main()) == (START / 2, 1)


def test_row_faults_and_overflows_slow_nobody(run: Run) -> None:
    """They say nothing about the endpoint."""

    async def main() -> tuple[float, str]:
        gate = limiter()
        for _ in range(50):
            async with gate.permit() as permit:
                permit.settle(RowFailed(kind="context_overflow", reason=""))
        return gate.concurrency.limit, gate.breaker.state

    assert run(main()) == (START, "closed")


class Outage(Server):
    """Refuses connections until `back`."""

    def __init__(self, back: float) -> None:
        super().__init__()
        self.back = back
        self.looks: list[float] = []

    async def send(self, content: str) -> Verdict:
        if now() < self.back:
            self.looks.append(now())
            await asyncio.sleep(0.01)
            return REFUSED
        return await super().send(content)


@pytest.mark.parametrize("concurrency", [1, 64])
def test_an_endpoint_that_comes_back_costs_no_row(run: Run, concurrency: int) -> None:
    """Five minutes away: a few looks, one at a time, no row's attempts used up, all rows right."""

    async def main() -> list[float]:
        server = Outage(back=300.0)
        gate = limiter(concurrency=concurrency, patience=600)
        policy = RetryPolicy(attempts=8, deadline=60)
        verdicts = await ask_all(200, gate, server, policy=policy)
        assert contents(verdicts) == [str(row) for row in range(200)]
        assert gate.breaker.state == "closed"
        return server.looks

    looks = run(main())
    assert len(looks) <= START + 20
    late = [moment for moment in looks if moment > 2]
    assert all(later - earlier >= 1 for earlier, later in itertools.pairwise(late))


def test_an_endpoint_that_stays_away_ends_the_run_after_the_patience(run: Run) -> None:
    """For everybody who waits, with what it is called, why, and what to do."""

    async def main() -> float:
        gate = Limiter(Limits(patience=100), clock=now, name="http://h/v1")
        with pytest.raises(EndpointDownError, match=r"http://h/v1 has not answered .*refused.*again"):
            await ask_all(50, gate, Outage(back=1e9))
        return now()

    assert 100 <= run(main()) <= 100 + 35


def test_an_endpoint_that_is_given_up_is_said_to_be_away_for_the_whole_of_the_patience(run: Run) -> None:
    """Also where it came into doubt in the meantime whether the endpoint is to blame."""

    async def main() -> float:
        gate = Limiter(Limits(patience=200), clock=now, name="http://h/v1")
        with pytest.raises(EndpointDownError, match=r"has not answered for 20[01] s"):
            await ask_all(200, gate, Picky("server_error", 200))
        return now()

    assert 200 <= run(main()) <= 202


def test_who_waits_for_an_endpoint_that_is_down_can_tell_when_the_run_ends(run: Run) -> None:
    """The patience counts from the first failure, whether the next look is still to come or is out."""

    async def main() -> None:
        gate = limiter(patience=100)
        await asyncio.sleep(3)
        for _ in range(5):
            async with gate.permit() as permit:
                permit.settle(REFUSED)
        look = gate.permit()
        looking = asyncio.ensure_future(look.__aenter__())
        await asyncio.sleep(0)
        assert gate.waiting is not None
        assert gate.waiting.until == 4.0
        assert gate.waiting.gives_up == 103.0 + GIVE_UP_AFTER
        await looking
        other = asyncio.ensure_future(gate.permit().__aenter__())
        await asyncio.sleep(0)
        assert gate.waiting.until == gate.waiting.gives_up == 103.0 + GIVE_UP_AFTER
        other.cancel()

    run(main())


def test_a_look_that_is_cancelled_lets_another_look(run: Run) -> None:
    """A probe that never came back must not keep all others out."""

    async def main() -> float:
        gate = limiter()
        for _ in range(5):
            async with gate.permit() as permit:
                permit.settle(REFUSED)

        async def hang() -> None:
            async with gate.permit():
                await asyncio.sleep(1_000)

        probe = asyncio.ensure_future(hang())
        await asyncio.sleep(5)
        assert gate.breaker.state == "probing"
        probe.cancel()
        async with gate.permit() as permit:
            permit.settle(yes())
        return now()

    assert run(main()) <= 6.0


def test_a_failed_look_does_not_count_as_the_row_s_attempt(run: Run) -> None:
    """Unless the request may have been computed: then it was an attempt."""

    async def main() -> list[bool]:
        gate = limiter()
        counted = []
        lost = RetryAfter(kind="reset", reason="", down=True, possibly_paid=True)
        for verdict in [REFUSED] * 5 + [REFUSED, lost]:
            async with gate.permit() as permit:
                settled = permit.settle(verdict)
            assert isinstance(settled, RetryAfter)
            counted.append(settled.counted)
        return counted

    assert run(main()) == [True] * 5 + [False, True]


class Picky(Server):
    """Answers some texts with the same failure each time, and is otherwise well but for when it is `away`."""

    def __init__(self, kind: str, bad: int, *, away: tuple[float, float] = (0.0, 0.0)) -> None:
        super().__init__(seconds=0.1)
        self.verdict = RetryAfter(kind=kind, reason="HTTP 5xx", down=True, seconds=0.1)
        self.bad = bad
        self.away = away

    async def _answer(self, content: str) -> Verdict:
        if int(content) < self.bad or self.away[0] <= now() < self.away[1]:
            await asyncio.sleep(0.1)
            return self.verdict
        return await super()._answer(content)


@pytest.mark.parametrize("kind", ["server_error", "unavailable", "disconnected"])
@pytest.mark.parametrize(("rows", "bad"), [(1, 1), (3, 3), (1_000, 1), (1_000, 30)])
def test_a_bad_row_is_a_bad_row(run: Run, kind: str, rows: int, bad: int) -> None:
    """Whether all others are answered or it is all that a run asks: it fails, as often tried as the policy says."""

    async def main() -> float:
        server = Picky(kind, bad)
        verdicts = await ask_all(rows, limiter(patience=600), server)
        failed = [verdict for verdict in verdicts[:bad] if isinstance(verdict, RowFailed)]
        assert len(failed) == bad
        assert all("8 attempts" in verdict.reason for verdict in failed)
        assert contents(verdicts[bad:]) == [str(row) for row in range(bad, rows)]
        return now()

    assert run(main()) < 600


def test_rows_that_are_all_that_is_left_fail_though_they_are_many(run: Run) -> None:
    """A run that goes on asks what failed last time and nothing else."""

    async def main() -> list[Verdict]:
        return await ask_all(30, limiter(patience=600), Picky("server_error", 30))

    assert all(isinstance(verdict, RowFailed) for verdict in run(main()))


@pytest.mark.parametrize("rows", [1, 3, 200])
@pytest.mark.parametrize("concurrency", [1, 64])
def test_a_gateway_without_a_server_for_a_while_costs_no_row(run: Run, rows: int, concurrency: int) -> None:
    """Twenty seconds, however few rows see it."""

    async def main() -> list[Verdict]:
        server = Picky("unavailable", 0, away=(0.0, 20.0))
        return await ask_all(rows, limiter(concurrency=concurrency), server)

    assert len(contents(run(main()))) == rows


def test_a_server_that_fails_everything_for_minutes_costs_no_row_and_is_asked_now_and_then(run: Run) -> None:
    """Its rows wait, one at a time looks."""

    async def main() -> list[float]:
        server = Picky("server_error", 0, away=(1.0, 400.0))
        verdicts = await ask_all(500, limiter(patience=600), server)
        assert contents(verdicts) == [str(row) for row in range(500)]
        return [moment for moment in server.sent if 10 < moment < 400]

    assert len(run(main())) < 30
