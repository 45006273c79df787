"""Counts of a run while it goes on: what happened on the wire, and what became of each row.

Two sides, because two threads write: `Wire` belongs to the event loop, `Ledger` to the thread that builds columns.
Whoever shows progress reads both without locking; a number that is one row old does no harm there.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from corpusmill.report import FAILURES, LATENCY_BOUNDS, SAMPLES, SLOWEST, Moment, Sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corpusmill.outcome import Outcome

MOMENTS = 240
SHOWN = 2_000
"""Characters of a text that a sample keeps."""


@dataclass(slots=True)
class Wire:
    """What went over the wire, and what is out."""

    attempts: int = 0
    in_flight: int = 0
    backing_off: int = 0
    rate_limited: int = 0
    possibly_paid_twice: int = 0
    live: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    latency: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS) + 1))

    def answered(self, seconds: float, prompt_tokens: int | None, completion_tokens: int | None) -> None:
        """Count an answer that was paid for."""
        self.prompt_tokens += prompt_tokens or 0
        self.completion_tokens += completion_tokens or 0
        self.latency[bisect_left(LATENCY_BOUNDS, seconds)] += 1


@dataclass(slots=True)
class PromptLedger:
    """What became of the rows of one prompt."""

    into: str
    outcomes: Counter[str] = field(default_factory=Counter)
    origins: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, outcomes: Sequence[Outcome]) -> bool:
        """Count the rows of a batch; tell whether none of them has an error or was asked live."""
        origins = [outcome.origin for outcome in outcomes]
        _count(self.outcomes, [outcome.status for outcome in outcomes])
        _count(self.origins, origins)
        for notes in [outcome.notes for outcome in outcomes if outcome.notes]:
            self.notes.update([note.partition(" ")[0] for note in notes])
        if "live" in origins:
            for outcome in outcomes:
                if outcome.origin == "live":
                    self.prompt_tokens += outcome.prompt_tokens or 0
                    self.completion_tokens += outcome.completion_tokens or 0
            return False
        return [outcome.error for outcome in outcomes].count(None) == len(outcomes)


def _count(counter: Counter[str], words: Sequence[str]) -> None:
    """Add the words to a counter; nearly always they are all the same."""
    if words and words.count(words[0]) == len(words):
        counter[words[0]] += len(words)
    else:
        counter.update(words)


class Ledger:
    """What became of all rows, and the few that the report shows."""

    def __init__(self, intos: list[str]) -> None:
        """Open an account for each prompt."""
        self.rows = 0
        self.prompts = [PromptLedger(into) for into in intos]
        self.samples: list[Sample] = []
        self.failures: list[Sample] = []
        self._left = {into: max(1, SAMPLES // len(intos)) for into in intos}
        self._slowest: list[tuple[float, int, Sample]] = []

    @property
    def slowest(self) -> list[Sample]:
        """The slowest rows that were asked in this run, the slowest first."""
        return [sample for _, _, sample in sorted(self._slowest, key=lambda item: -item[0])]

    def has_room(self, into: str) -> bool:
        """Tell whether the report has room for a row of this prompt that is neither slow nor failed."""
        return self._left[into] > 0

    def wants(self, into: str, outcome: Outcome) -> bool:
        """Tell whether the report would show this row, so that its texts are worth copying."""
        if outcome.error is not None:
            return len(self.failures) < FAILURES
        if self._left[into] and outcome.status != "skipped":
            return True
        return outcome.origin == "live" and outcome.seconds is not None and self._is_slow(outcome.seconds)

    def _is_slow(self, seconds: float) -> bool:
        return len(self._slowest) < SLOWEST or seconds > self._slowest[0][0]

    def show(self, sample: Sample, outcome: Outcome) -> None:
        """Keep a row for the report, in whichever of its lists it belongs."""
        if self._left[sample.into] and outcome.error is None:
            self._left[sample.into] -= 1
            self.samples.append(sample)
        if outcome.error is not None and len(self.failures) < FAILURES:
            self.failures.append(sample)
        if outcome.seconds is not None and outcome.origin == "live":
            item = (outcome.seconds, sample.row, sample)
            if len(self._slowest) < SLOWEST:
                heapq.heappush(self._slowest, item)
            elif outcome.seconds > self._slowest[0][0]:
                heapq.heapreplace(self._slowest, item)


class Timeline:
    """A bounded series of moments: when it is full, every second one goes, and the next ones come half as often."""

    def __init__(self) -> None:
        """Start with a moment every quarter of a second."""
        self.moments: list[Moment] = []
        self.step = 0.25

    def add(self, moment: Moment) -> None:
        """Append a moment if enough time has passed since the last one."""
        if self.moments and moment.seconds - self.moments[-1].seconds < self.step * 0.99:
            return
        self.moments.append(moment)
        if len(self.moments) >= MOMENTS:
            del self.moments[1::2]
            self.step *= 2
