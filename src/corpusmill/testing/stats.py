"""What the fake endpoint counts: the evidence of what was asked, what was paid for, and what arrived.

A request is *computed* when a complete answer to it existed on the server, which is when a vendor charges for
it; *delivered* when that answer was also handed whole to the connection while the client was still there. So
`computed - delivered` was paid for and lost. An answer that its ceiling cut is computed and also counted as
*cut*: asking again with a higher ceiling is no double payment.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_DISTINCT: Final = 2_000_000
"""Distinct requests that are remembered one by one; further ones are counted in the totals only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStats:
    """What became of one distinct request. `answered` is another word for `computed`."""

    received: int
    answered: int
    computed: int
    delivered: int
    cut: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Totals since the start or the last reset.

    `requests` counts what came to the chat route, sound or not; `distinct` the different sound requests among
    them; `computed_again` the complete, uncut answers to a request beyond its first, that is, what was paid
    for twice. `details` is keyed by `request_digest` and filled only when asked for.
    """

    requests: int = 0
    answered: int = 0
    computed: int = 0
    delivered: int = 0
    cut: int = 0
    distinct: int = 0
    computed_again: int = 0
    rate_limited: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    by_status: Mapping[str, int] = field(default_factory=dict)
    by_fault: Mapping[str, int] = field(default_factory=dict)
    details_complete: bool = True
    details: Mapping[str, RequestStats] | None = None


class Tally:
    """The counters behind `Stats`. Not thread-safe: it belongs to the server's event loop."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything but what is in flight."""
        self.requests = 0
        self.computed = 0
        self.delivered = 0
        self.cut = 0
        self.computed_again = 0
        self.rate_limited = 0
        self.max_in_flight = self.in_flight
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.by_status: Counter[int] = Counter()
        self.by_fault: Counter[str] = Counter()
        self.details_complete = True
        # Keyed by the raw digest; received, admitted, computed, delivered, cut.
        self._rows: dict[bytes, list[int]] = {}

    def begin(self) -> None:
        """A chat request came in."""
        self.requests += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def end(self) -> None:
        """A chat request was done with, in whatever way."""
        self.in_flight -= 1

    def receive(self, digest: str) -> None:
        """A sound request came in."""
        self._row(digest)[0] += 1

    def admit(self, digest: str) -> int:
        """A sound request passed the rate limits: the number of this attempt, from 1."""
        row = self._row(digest)
        row[1] += 1
        return row[1]

    def compute(self, digest: str, *, prompt_tokens: int, completion_tokens: int, cut: bool) -> None:
        """An answer is complete, and paid for."""
        row = self._row(digest)
        self.computed += 1
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        if cut:
            self.cut += 1
            row[4] += 1
        elif row[2] > row[4]:
            self.computed_again += 1
        row[2] += 1

    def deliver(self, digest: str) -> None:
        """A complete answer was handed to a connection that was still there."""
        self.delivered += 1
        self._row(digest)[3] += 1

    def snapshot(self, *, details: bool) -> Stats:
        """Return the counters as they stand."""
        return Stats(
            requests=self.requests,
            answered=self.computed,
            computed=self.computed,
            delivered=self.delivered,
            cut=self.cut,
            distinct=len(self._rows),
            computed_again=self.computed_again,
            rate_limited=self.rate_limited,
            in_flight=self.in_flight,
            max_in_flight=self.max_in_flight,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            by_status={str(status): count for status, count in sorted(self.by_status.items())},
            by_fault=dict(sorted(self.by_fault.items())),
            details_complete=self.details_complete,
            details={raw.hex(): _request_stats(row) for raw, row in self._rows.items()} if details else None,
        )

    def _row(self, digest: str) -> list[int]:
        raw = bytes.fromhex(digest)
        row = self._rows.get(raw)
        if row is None:
            row = [0, 0, 0, 0, 0]
            if len(self._rows) < MOST_DISTINCT:
                self._rows[raw] = row
            else:
                self.details_complete = False
        return row


def _request_stats(row: list[int]) -> RequestStats:
    received, _, computed, delivered, cut = row
    return RequestStats(received=received, answered=computed, computed=computed, delivered=delivered, cut=cut)
