"""What a store decides, whatever database it lies in: who may ask, and what a budget allows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.store.protocol import Cost
from corpusmill.store.serving import choose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from corpusmill.policy import Budget
    from corpusmill.store.protocol import Claim, Entry, Reservation, Spend, Wanted


def grant(
    owner: int,
    wanted: Sequence[Wanted],
    *,
    entries: Mapping[bytes, Sequence[Entry]],
    holders: Mapping[bytes, tuple[int, bool]],
    lives: Callable[[int], bool],
) -> tuple[list[Claim], list[bytes]]:
    """Decide on one claim for each of `wanted`; give them, and the keys that `owner` takes, each once.

    `holders` are the claims that stand: whose each is, and whether it is the mark of a lost attempt. `lives` tells
    whether such an owner lives, and is asked once for each.
    """
    held = dict(holders)
    alive: dict[int, bool] = {owner: True}
    claims: list[Claim] = []
    taken: list[bytes] = []
    for want in wanted:
        if choose(entries.get(want.key, ()), want.ceiling, want.not_before) is not None:
            claims.append("answered")
            continue
        if want.key in held:
            holder, lost = held[want.key]
            if holder not in alive:
                alive[holder] = lives(holder)
            if alive[holder] and not lost:
                claims.append("held")
                continue
            claims.append("granted_again")
        else:
            claims.append("granted")
        held[want.key] = (owner, False)
        taken.append(want.key)
    return claims, taken


def reservation(
    budget: Budget, spent: Spend, *, tokens: int, usd: float, set_aside: Iterable[tuple[int, float]]
) -> Reservation:
    """Decide whether so much fits into a budget beside what is spent and what the living have `set_aside`.

    These are pairs of tokens and US dollars, and are only looked at where it fits beside what is spent.
    """
    tokens += spent.prompt_tokens + spent.completion_tokens
    usd += spent.usd
    if _exceeds(tokens, usd, budget):
        return "used_up"
    for their_tokens, their_usd in set_aside:
        tokens += their_tokens
        usd += their_usd
    return "waits" if _exceeds(tokens, usd, budget) else "granted"


def total(costs: Sequence[Cost]) -> Cost:
    """Add costs up."""
    return Cost(
        attempts=sum(cost.attempts for cost in costs),
        prompt_tokens=sum(cost.prompt_tokens for cost in costs),
        completion_tokens=sum(cost.completion_tokens for cost in costs),
        usd=sum(cost.usd for cost in costs),
        reserved_tokens=sum(cost.reserved_tokens for cost in costs),
        reserved_usd=sum(cost.reserved_usd for cost in costs),
    )


def _exceeds(tokens: int, usd: float, budget: Budget) -> bool:
    return (budget.tokens is not None and tokens > budget.tokens) or (
        budget.usd is not None and usd > budget.usd
    )
