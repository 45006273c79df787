"""Whether a request fits into a context, and how much the context leaves for its answer; known before it is sent.

Tokens are estimated from characters by what servers have counted, by script, and from the table where they have
counted too little. A request is called too long only when even the lowest estimate fills the context.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from corpusmill.rows.tokens import ENOUGH, PER_CHARACTER, Counted, Interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LONG_ENOUGH = 200
"""Characters from which on a request tells tokens a character; in shorter ones a template weighs too much."""

CAUTION = 0.1
"""By this share rows to come may lie outside of everything that was counted."""

LEAST_ANSWER = 256
"""Tokens that an answer is always allowed, where the estimate leaves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What is known of a context of `context` tokens: `ratios` are tokens a character by script."""

    context: int
    ratios: Mapping[str | None, Interval] = field(default_factory=dict)

    def too_long(self, characters: int, script: str | None) -> str | None:
        """Say why a request of so many characters cannot fit; None when it may."""
        least = int(characters * self._ratio(script).low)
        if least < self.context:
            return None
        return (
            f"the request is too long: {characters:,} characters are at least {least:,} tokens, and the context holds "
            f"{self.context:,} for prompt and answer; it was not sent"
        )

    def ceiling(self, wanted: int | None, characters: int, script: str | None) -> int | None:
        """Give the ceiling to send: what was wanted, or what the context leaves beside the request if that is less."""
        if wanted is None:
            return None
        ratio = self._ratio(script)
        left = self.context - int(characters * ratio.high)
        if left < wanted and left < self.context // 8:
            left = max(LEAST_ANSWER, self.context - int(characters * ratio.expected))
        return min(wanted, left)

    def _ratio(self, script: str | None) -> Interval:
        return self.ratios.get(script) or PER_CHARACTER.get(script, PER_CHARACTER[None])


def learn_fit(context: int, usage: Iterable[Counted]) -> Fit:
    """Learn tokens a character from what servers have counted."""
    by_script: dict[str | None, list[float]] = defaultdict(list)
    for one in usage:
        if one.characters >= LONG_ENOUGH and one.prompt_tokens:
            by_script[one.script].append(one.prompt_tokens / one.characters)
    ratios = {
        script: Interval(
            low=min(found) * (1 - CAUTION), expected=sum(found) / len(found), high=max(found) * (1 + CAUTION)
        )
        for script, found in by_script.items()
        if len(found) >= ENOUGH
    }
    return Fit(context=context, ratios=ratios)
