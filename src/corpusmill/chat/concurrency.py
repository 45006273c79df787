"""How many requests may be out at once: arithmetic over what came back, no waiting.

The ceiling is the user's; below it the number follows the server. It doubles with each round trip at first, halves
when the server says that it is too fast and no rate accounts for it, and then grows by one with each round trip.
Latency alone never lowers it: what counts is goodput, the work that gets done in a second, which by Little's law is
what is out divided by how long a unit of work takes (a median, so that stragglers and bursts decide nothing). Only when
goodput falls is a smaller number tried, for as long as that helps, and it is taken back when less gets done with it
still.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

START = 16
"""Requests that go out at once before anything is known of the server."""

LEAST_WINDOW = 64
"""Answers that a window has at least, so that a few slow ones decide nothing."""

LEAST_SECONDS = 1.0
"""And the time that it spans at least."""

BACK = 0.5
EASE = 0.8
"""What the number is multiplied with after a refusal, and when less gets done."""

LESS = 0.6
"""A window is worse when its goodput is less than this share of the best before it."""

MORE = 1.1
"""A smaller number helps when this many times as much gets done with it; then a still smaller one is tried."""

REST = 8
"""Windows for which nothing more is tried after a smaller number turned out not to help."""

_STEADY = 1.1
"""How many times the number may have grown within a window that is to be judged."""

_INSTANT = 1e-6
"""Seconds that an answer takes at least, whatever a coarse clock says."""

_IN_USE = 0.8
"""Share of the permits that must be out for a window to speak of the server rather than of us."""


@dataclass(slots=True)
class _Window:
    since: float
    limit: float
    latencies: list[float] = field(default_factory=list)
    used: bool = True


@dataclass(slots=True)
class Concurrency:
    """The number of permits, from 1 to `ceiling`."""

    ceiling: int
    limit: float = 0.0
    reason: str = ""
    _turn: float = 0.0
    _lowered: float = float("-inf")
    _window: _Window | None = None
    _best: float | None = None
    _tried_from: tuple[float, float] | None = None
    _rest: int = 0

    def __post_init__(self) -> None:
        """Begin carefully, with room to double until the ceiling."""
        self.limit = float(min(self.ceiling, START))
        self._turn = float(self.ceiling)

    def allows(self, out: int) -> bool:
        """Tell whether one more may go out when `out` are."""
        return out + 1 <= self.limit

    def refused(self, sent: float, now: float) -> None:
        """Note that the server said "too fast" to a request that was sent at `sent`."""
        if sent < self._lowered:
            # It went out before the last step down, and says nothing about what holds since.
            return
        self._lowered = now
        self.limit = max(1.0, self.limit * BACK)
        self._turn = self.limit
        self.reason = "the server said that it is asked too fast"
        self._window = None
        self._best = None

    def answered(self, sent: float, now: float, *, out: int, work: float) -> None:
        """Note an answer to a request that was sent at `sent`; `out` were out, `work` is its tokens or 1."""
        in_use = out >= int(self.limit) * _IN_USE
        if in_use and self.limit < self.ceiling and self._tried_from is None:
            grown = self.limit + (1.0 if self.limit < self._turn else 1.0 / self.limit)
            self.limit = min(float(self.ceiling), grown)
            if self.limit >= self.ceiling:
                self.reason = ""
        window = self._window
        if window is None:
            self._window = _Window(since=now, limit=self.limit)
            return
        if sent <= window.since:
            # It met the server as it was before this window, perhaps with fewer or more out.
            return
        seconds = now - sent or _INSTANT
        window.latencies.append(seconds / work if work > 1.0 else seconds)
        window.used = window.used and in_use
        many = len(window.latencies)
        if many >= LEAST_WINDOW and many >= self.limit and now - window.since >= LEAST_SECONDS:
            self._window = _Window(since=now, limit=self.limit)
            if window.used and self.limit <= window.limit * _STEADY:
                self._judge(self.limit / median(window.latencies), now)

    def _judge(self, goodput: float, now: float) -> None:
        if self._tried_from is not None:
            before, limit = self._tried_from
            self._tried_from = None
            self._best = goodput
            if goodput < before:
                # Less still: the requests have changed, not the server.
                self.limit = min(float(self.ceiling), limit)
                self.reason = ""
                self._rest = REST
            elif goodput > before * MORE:
                self._ease(goodput, now)
        elif self._rest > 0:
            self._rest -= 1
            self._best = goodput
        elif self._best is not None and goodput < self._best * LESS and self.limit > 1:
            self._ease(goodput, now)
        else:
            self._best = goodput if self._best is None else max(self._best, goodput)

    def _ease(self, goodput: float, now: float) -> None:
        """Try with fewer, and remember what got done with more."""
        self._tried_from = (goodput, self.limit)
        self._lowered = now
        self.limit = max(1.0, self.limit * EASE)
        self._turn = self.limit
        self._window = _Window(since=now, limit=self.limit)
        self.reason = "requests take longer and fewer get done"
