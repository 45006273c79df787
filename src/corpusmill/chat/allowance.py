"""What a server's headers say is left: arithmetic over given times, no waiting.

A header tells what was left when the server met a request; what has gone out since then is taken off. Some servers fill
up evenly and some all at once when a window ends, and both say it in the same words. So how much comes back in a second
is learned from one telling to the next: nothing within a window, the rate with a bucket.
"""

from __future__ import annotations

from dataclasses import dataclass

RESET_UNKNOWN = 1.0
"""Seconds to wait for a limit of which nothing is left and which does not say when it begins anew."""

LONGEST = 60.0
"""Seconds after which one request goes out to see, whatever the headers say."""

LEAST_SECONDS = 0.25
"""Two tellings from which the refill is learned lie at least so far apart."""

WEIGHT = 0.3
"""How much a new measurement of the refill counts against what is known."""

WHOLE = 0.8
"""What is left right after a reset is all when it is more than this share of the most that there ever was."""

RESERVE = 0.1
"""What is kept of a bucket: this share of it, or what comes back in so many seconds."""

_NEGLIGIBLE = 1e-6


@dataclass(slots=True)
class Allowance:
    """Requests, or tokens; nothing is known until the server has told."""

    left: float = 0.0
    most: float = 0.0
    per_second: float = 0.0
    _until: float = 0.0
    _span: float = RESET_UNKNOWN
    _anew: bool = False
    _spent: float = 0.0
    _updated: float = 0.0
    _mark: float = 0.0
    _before: tuple[float, float, float, float] | None = None

    def spend(self, amount: float) -> float:
        """Take off what goes out; give the mark to tell the server's answer by."""
        self._spent += amount
        self.left -= amount
        return self._spent

    def ready_in(self, amount: float, now: float) -> float:
        """Give the seconds until `amount` may go out: 0 when it may now, and while nothing is known."""
        if self._before is None:
            return 0.0
        # Requests overtake each other, so that what is known is a little off; with a bucket a reserve costs nothing.
        reserve = min(self.most, self.per_second) * RESERVE
        # Nobody waits for more than there ever is.
        needed = max(1.0, min(amount + reserve, self.most))
        self._refill(now)
        missing = needed - self.left
        if missing <= _NEGLIGIBLE:
            return 0.0
        if now >= self._until:
            # Its time is over. Where that has been seen to bring all back, it is there again; else one goes out to see.
            self.left = max(needed, self.most if self._anew else 0.0)
            self._until = now + (self._span if self._anew else RESET_UNKNOWN)
            return 0.0
        anew = self._until - now
        return min(anew, missing / self.per_second) if self.per_second > 0 else anew

    def told(self, left: float, reset: float | None, *, mark: float, sent: float, now: float) -> None:
        """Note what the server said was left, to the request that has this mark and was sent at `sent`."""
        if mark < self._mark and now < self._until:
            # An answer that took long tells of a time before the one that is known.
            return
        span = RESET_UNKNOWN if reset is None else min(reset, LONGEST)
        self._learn(left, mark, sent, until=sent + span)
        self.most = max(self.most, left)
        self._mark = mark
        self._until = now + span
        self._span = max(self._span, span)
        self.left = min(self.most, left + self.per_second * (now - sent)) - (self._spent - mark)
        self._updated = now

    def _learn(self, left: float, mark: float, sent: float, *, until: float) -> None:
        if self._before is None:
            self._before = (left, mark, sent, until)
            return
        before, before_mark, before_sent, before_until = self._before
        seconds = sent - before_sent
        if seconds < LEAST_SECONDS:
            return
        self._before = (left, mark, sent, until)
        risen = left - before
        if sent >= before_until:
            self._anew = left > self.most * WHOLE
        if sent >= before_until or left >= self.most or risen > self.most / 2:
            # A window has begun anew, or it was full for a while: neither tells how fast it fills.
            return
        seen = max(0.0, (risen + mark - before_mark) / seconds)
        self.per_second += WEIGHT * (seen - self.per_second)

    def _refill(self, now: float) -> None:
        if now > self._updated:
            self.left = min(self.most, self.left + (now - self._updated) * self.per_second)
            self._updated = now
