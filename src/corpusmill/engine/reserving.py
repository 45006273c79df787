"""What a request may take of the budget, set aside before it is sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from corpusmill.errors import BudgetUsedUpError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from corpusmill.policy import Budget
    from corpusmill.store.protocol import Membership, Reservation, Store

ROOM_POLL = 0.25
"""Seconds between two looks whether what was in flight has left room."""


class Reserved(NamedTuple):
    """What is set aside for one request, in tokens and US dollars; nothing where there is no budget."""

    tokens: int = 0
    usd: float = 0.0


@dataclass(slots=True)
class Estimate:
    """How many tokens a request will take, learned from the answers so far; a guess until there are some."""

    per_character: float = 0.3
    completion: float = 256.0

    def tokens(self, size: int, ceiling: int | None) -> int:
        """Estimate prompt and completion tokens together."""
        completion = self.completion if ceiling is None else min(self.completion, ceiling)
        return int(size * self.per_character + completion) + 1

    def most(self, size: int, ceiling: int | None) -> tuple[int, int]:
        """Estimate prompt and completion tokens from above: the ceiling if there is one, and a margin on the text."""
        return int(size * self.per_character * 1.3) + 16, ceiling or int(self.completion * 2)

    def learn(self, size: int, prompt_tokens: int | None, completion_tokens: int | None) -> None:
        """Move towards what a server has counted."""
        if prompt_tokens and size:
            self.per_character += 0.05 * (prompt_tokens / size - self.per_character)
        if completion_tokens:
            self.completion += 0.05 * (completion_tokens - self.completion)


class Reserve:
    """Sets aside in the store, which all workers of the run share, the most that a request may take."""

    def __init__(
        self,
        store: Store,
        member: Membership,
        *,
        budget: Budget | None,
        price: Callable[[int, int], float] | None,
        sleep: Callable[[float], Any],
    ) -> None:
        """`price` gives US dollars for prompt and completion tokens; `sleep` waits without holding anything."""
        self._store = store
        self._member = member
        self._budget = budget
        self._price = price
        self._sleep = sleep
        self._turn = asyncio.Lock()
        self._waiting: dict[object, Reserved] = {}

    async def take(self, estimate: Estimate, size: int, ceiling: int | None) -> Reserved:
        """Set aside what a request of so many characters may take; wait while what is in flight may make room for it.

        Raises:
            BudgetUsedUpError: there will never be room.
        """
        budget = self._budget
        if budget is None:
            return Reserved()
        given, answered = estimate.most(size, ceiling)
        most = max(given + answered, estimate.tokens(size, ceiling))
        usd = self._price(given, answered) if self._price else 0.0
        # One asks the store at a time, for all who wait: asking takes as long as a write of the store's.
        me, wanted = object(), Reserved(most, usd)
        self._waiting[me] = wanted
        try:
            async with self._turn:
                while me in self._waiting:
                    await self._take_all(budget, me)
        finally:
            self._waiting.pop(me, None)
        return wanted

    async def _take_all(self, budget: Budget, first: object) -> None:
        """Set aside what all who wait want, or else what the first of them wants; wait a little where neither fits."""
        waiting = dict(self._waiting)
        found = await self._ask(budget, list(waiting.values()))
        if found != "granted" and len(waiting) > 1:
            waiting = {first: waiting[first]}
            found = await self._ask(budget, list(waiting.values()))
        if found == "granted":
            for one in waiting:
                self._waiting.pop(one, None)
        elif found == "used_up":
            raise BudgetUsedUpError(self._used_up(budget, *waiting[first]))
        else:
            await self._sleep(ROOM_POLL)

    async def _ask(self, budget: Budget, wanted: Sequence[Reserved]) -> Reservation:
        return await asyncio.to_thread(
            self._store.reserve,
            self._member.owner,
            tokens=sum(one.tokens for one in wanted),
            usd=sum(one.usd for one in wanted),
            budget=budget,
        )

    def _used_up(self, budget: Budget, tokens: int, usd: float) -> str:
        spent = self._store.spend(self._member.run_key)
        whole = spent.prompt_tokens + spent.completion_tokens
        ceilings = []
        if budget.tokens is not None:
            ceilings.append(
                f"{whole:,} of {budget.tokens:,} tokens are spent, and the next may take {tokens:,}"
            )
        if budget.usd is not None:
            ceilings.append(
                f"${spent.usd:,.4f} of ${budget.usd:,.4f} are spent, and the next may cost ${usd:,.4f}"
            )
        return (
            f"the budget does not allow another request: {'; '.join(ceilings)}. What was paid for is kept, and the "
            "same job with a larger budget (or a lower max_tokens) goes on"
        )
