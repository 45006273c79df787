"""How many tokens requests will take: from what servers have counted where there is enough of it, else from a table.

Pure. Every estimate is an interval, and says what it rests on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ENOUGH = 5
"""Answers from which tokens are learned; fewer say too little."""

LEAST_MARGIN = 0.05
"""An estimate is never said to be closer than this share: rows to come are not quite like the rows before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate and the range in which the truth is expected."""

    low: float
    expected: float
    high: float

    def __add__(self, other: Interval) -> Interval:
        """Add two quantities; their errors may have one cause, so the ranges add up."""
        return Interval(
            low=self.low + other.low, expected=self.expected + other.expected, high=self.high + other.high
        )


NOTHING = Interval(low=0.0, expected=0.0, high=0.0)

PER_CHARACTER: Mapping[str | None, Interval] = {
    "Latin": Interval(low=0.2, expected=0.29, high=0.45),
    "Cyrillic": Interval(low=0.22, expected=0.38, high=0.65),
    "Greek": Interval(low=0.3, expected=0.5, high=1.0),
    "Arabic": Interval(low=0.25, expected=0.45, high=0.9),
    "Hebrew": Interval(low=0.3, expected=0.5, high=1.0),
    "Han": Interval(low=0.5, expected=0.8, high=1.6),
    "Kana": Interval(low=0.5, expected=0.8, high=1.5),
    "Hangul": Interval(low=0.4, expected=0.7, high=1.5),
    None: Interval(low=0.25, expected=0.6, high=2.0),
}
"""Prompt tokens a character where nothing is known of a model, by script; None for all scripts that are not named.

The range spans tokenizers of 32,000 to 256,000 entries, the smaller of which split letters outside of Latin into bytes.
"""

PER_REQUEST = Interval(low=3.0, expected=12.0, high=60.0)
"""Tokens that a model's chat template adds to a request, where nothing is known of it."""

OF_AN_ANSWER: Mapping[str, Interval] = {
    "summarise": Interval(low=30.0, expected=90.0, high=300.0),
    "answer": Interval(low=15.0, expected=90.0, high=400.0),
    "extract": Interval(low=15.0, expected=80.0, high=400.0),
    "ask": Interval(low=5.0, expected=120.0, high=800.0),
}
"""Completion tokens of an answer by prompt, where nothing is known; a translation is about as long as its text."""

TRANSLATED = Interval(low=0.8, expected=1.3, high=2.5)
"""Completion tokens of a translation for each token of its text, where nothing is known."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What a server has counted of one request: characters of its messages, their script, tokens of both ways."""

    script: str | None
    characters: int
    prompt_tokens: int
    completion_tokens: int | None


@dataclass(slots=True)
class Sizes:
    """How many requests there are, and of how many characters."""

    requests: int = 0
    characters: int = 0

    def add(self, size: int) -> None:
        """Count a request."""
        self.requests += 1
        self.characters += size


def estimate(
    kind: str,
    sizes: Mapping[str | None, Sizes],
    usage: Sequence[Counted],
    known: Sequence[Counted],
) -> tuple[Interval, Interval, str]:
    """Estimate prompt and completion tokens of requests by script, and say what the estimate rests on.

    `kind` is the prompt's name. `usage` is what was counted of rows of this very prompt, `known` what was
    counted for the model with any prompt.
    """
    if not sum(size.requests for size in sizes.values()):
        return NOTHING, NOTHING, "nothing to ask"
    rests_on = f"{len(usage):,} rows of this job that are answered already"
    if len(usage) < ENOUGH:
        usage = known
        rests_on = f"{len(usage):,} answers of this model in the store"
    prompt_tokens, completion_tokens = NOTHING, NOTHING
    guessed = set()
    for script, size in sizes.items():
        alike = [one for one in usage if one.script == script]
        if len(alike) < ENOUGH:
            guessed.add(script)
            given, answered = _by_table(kind, script, size)
        else:
            given, answered = _learned(kind, alike, size)
        prompt_tokens += given
        completion_tokens += answered
    if guessed == set(sizes):
        rests_on = "a rough average over many models: the store holds too few answers of this one yet"
    elif guessed:
        names = ", ".join(sorted(str(script or "no") for script in guessed))
        rests_on += f"; for texts in {names} script by a rough average over many models"
    return prompt_tokens, completion_tokens, rests_on


def _by_table(kind: str, script: str | None, size: Sizes) -> tuple[Interval, Interval]:
    text = scaled(PER_CHARACTER.get(script, PER_CHARACTER[None]), size.characters)
    given = text + scaled(PER_REQUEST, size.requests)
    if kind == "translate":
        answered = Interval(
            low=text.low * TRANSLATED.low,
            expected=text.expected * TRANSLATED.expected,
            high=text.high * TRANSLATED.high,
        )
    else:
        answered = scaled(OF_AN_ANSWER.get(kind, OF_AN_ANSWER["ask"]), size.requests)
    return given, answered


def _learned(kind: str, usage: Sequence[Counted], size: Sizes) -> tuple[Interval, Interval]:
    given = by_size([(one.characters, one.prompt_tokens) for one in usage], size)
    answers = [(one.characters, one.completion_tokens) for one in usage if one.completion_tokens is not None]
    if len(answers) < ENOUGH:
        return given, scaled(OF_AN_ANSWER.get(kind, OF_AN_ANSWER["ask"]), size.requests)
    if kind == "translate":
        return given, by_size(answers, size)
    return given, by_size([(1, tokens) for _, tokens in answers], Sizes(size.requests, size.requests))


def by_size(usage: Sequence[tuple[int, int]], size: Sizes) -> Interval:
    """Estimate a total from pairs of size and tokens, as sizes times the mean ratio.

    The range is twice the standard error of such a total: from the ratio's own error, and from the spread of single
    requests about it; at least `LEAST_MARGIN`.
    """
    whole = sum(one for one, _ in usage)
    ratio = sum(tokens for _, tokens in usage) / whole
    spread = sum((tokens - ratio * one) ** 2 for one, tokens in usage) / max(1, len(usage) - 1)
    of_ratio = math.sqrt(spread * len(usage)) / whole
    error = 2 * math.hypot(of_ratio * size.characters, math.sqrt(spread * size.requests))
    expected = ratio * size.characters
    margin = max(error, LEAST_MARGIN * expected)
    return Interval(low=max(0.0, expected - margin), expected=expected, high=expected + margin)


def scaled(interval: Interval, factor: float) -> Interval:
    """Multiply an interval."""
    return Interval(
        low=interval.low * factor, expected=interval.expected * factor, high=interval.high * factor
    )


def below(interval: Interval, most: float) -> Interval:
    """Cut an interval at the most that is possible."""
    return Interval(
        low=min(interval.low, most), expected=min(interval.expected, most), high=min(interval.high, most)
    )
