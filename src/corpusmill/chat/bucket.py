"""How many per minute: arithmetic over given times, no waiting."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE = 60.0


@dataclass(slots=True, kw_only=True)
class Bucket:
    """Lets through `per_minute` units in any minute, and at most `burst` more.

    An amount that is larger than the burst goes through when the bucket is full and leaves it in debt, so
    that a single large request never waits for ever and the rate still holds in the long run.
    """

    per_minute: float
    burst: float
    level: float
    updated: float

    def ready_in(self, amount: float, now: float) -> float:
        """Give the seconds until `amount` may be taken: 0 when it may be now."""
        self._refill(now)
        missing = min(amount, self.burst) - self.level
        return 0.0 if missing <= _NEGLIGIBLE else missing * MINUTE / self.per_minute

    def take(self, amount: float, now: float) -> None:
        """Take `amount`, which `ready_in` has said may be taken."""
        self._refill(now)
        self.level -= amount

    def settle(self, reserved: float, used: float, now: float) -> None:
        """Put back what was reserved and not used, or take what was used beyond it."""
        self._refill(now)
        self.level = min(self.burst, self.level + reserved - used)

    def _refill(self, now: float) -> None:
        if now > self.updated:
            self.level = min(self.burst, self.level + (now - self.updated) * self.per_minute / MINUTE)
            self.updated = now


_NEGLIGIBLE = 1e-9
"""What rounding leaves: without it a wait that has just ended would be followed by one of no length."""


def full_bucket(per_minute: float, now: float, *, seconds: float = 1.0) -> Bucket:
    """Give a full bucket that holds what may go out in `seconds`, and at least one unit."""
    burst = max(1.0, per_minute * seconds / MINUTE)
    return Bucket(per_minute=per_minute, burst=burst, level=burst, updated=now)
