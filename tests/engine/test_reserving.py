"""What requests may take of a budget is set aside for all who wait, and for one alone where that is too much."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from corpusmill import Budget
from corpusmill.engine.reserving import Estimate, Reserve, Reserved
from corpusmill.errors import BudgetUsedUpError
from corpusmill.store.protocol import Membership, Spend

if TYPE_CHECKING:
    from corpusmill.store.protocol import Reservation, Store

MEMBER = Membership(owner=1, invocation="i", run_key="r", first_started_at=0.0, spend=Spend())
BUDGET = Budget(tokens=1_000)
CEILING = 84
ONE = 100
"""Tokens that a request without text takes at most: its ceiling and a margin."""


class Account:
    """A store in which nothing is spent, and of whose budget so much is left."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.asked: list[int] = []

    def reserve(self, _owner: int, *, tokens: int, usd: float, budget: Budget) -> Reservation:
        assert usd == 0
        assert budget.tokens is not None
        self.asked.append(tokens)
        if tokens > budget.tokens:
            return "used_up"
        if tokens > self.room:
            return "waits"
        self.room -= tokens
        return "granted"

    def spend(self, _run_key: str) -> Spend:
        return Spend()


def take(account: Account, times: int, *, ceiling: int = CEILING) -> list[Any]:
    """Reserve for so many requests at once; room for one more comes whenever somebody waits for it."""

    async def free(_seconds: float) -> None:
        account.room += ONE
        await asyncio.sleep(0)

    async def together() -> list[Any]:
        reserve = Reserve(cast("Store", account), MEMBER, budget=BUDGET, price=None, sleep=free)
        takes = [reserve.take(Estimate(), 0, ceiling) for _ in range(times)]
        return await asyncio.gather(*takes, return_exceptions=True)

    return asyncio.run(together())


def test_all_who_wait_are_reserved_for_together() -> None:
    """The first asks for itself, and while it does the others come to be one question."""
    account = Account(room=10 * ONE)
    assert take(account, 8) == [Reserved(ONE)] * 8
    assert len(account.asked) == 2
    assert account.room == 2 * ONE


def test_where_all_do_not_fit_each_is_reserved_for_that_does() -> None:
    """Those that find no room wait for it, and get it."""
    account = Account(room=3 * ONE)
    assert take(account, 8) == [Reserved(ONE)] * 8
    assert account.room == 0


def test_more_together_than_the_budget_is_no_reason_to_end() -> None:
    """As long as there will be room for each."""
    account = Account(room=10 * ONE)
    assert take(account, 25) == [Reserved(ONE)] * 25


def test_what_will_never_fit_ends_the_run() -> None:
    """And says how much it was."""
    (found,) = take(Account(room=10 * ONE), 1, ceiling=2_000)
    with pytest.raises(BudgetUsedUpError, match="the next may take 2,016"):
        raise found
