"""Rate limits of the fake endpoint: requests and tokens a minute, requests a day.

A token bucket fills evenly and holds `burst`; a fixed window grants its whole allowance at once and starts
over. The tokens of an answer are known only when it is there: they are taken afterwards and may overdraw the
account, which then has to fill up again before the next request is let in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """How much is let in.

    `window` is a token `bucket` or a `fixed` window. `burst` is how many requests a full bucket holds (by
    default a minute's worth), `token_burst` the same in tokens. `minute_seconds` and `day_seconds` are how
    long a minute and a day last, so that tests need not wait for either. `reset_form` is how reset headers
    are written: seconds that are left, epoch seconds, or a compound such as `1m26.4s`. Without `retry_after`,
    a refusal states no Retry-After.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    requests_per_day: int | None = None
    burst: int | None = None
    token_burst: int | None = None
    window: Literal["bucket", "fixed"] = "bucket"
    reset_form: Literal["seconds", "epoch", "duration"] = "seconds"
    retry_after: bool = True
    minute_seconds: float = 60.0
    day_seconds: float = 86_400.0

    def __post_init__(self) -> None:
        """Refuse limits that let nothing in at all."""
        for name in ("requests_per_minute", "tokens_per_minute", "requests_per_day", "burst", "token_burst"):
            value = getattr(self, name)
            if value is not None and value < 1:
                msg = f"limits: {name} must be at least 1, not {value}"
                raise ValueError(msg)
        if self.minute_seconds <= 0 or self.day_seconds <= 0:
            msg = "limits: minute_seconds and day_seconds must be above 0"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a request is let in; if not, because of what, and for how many seconds (None: for ever)."""

    admitted: bool
    limit: Literal["requests", "tokens", "day"] | None = None
    wait: float | None = 0.0


class Account:
    """An allowance of `rate` a `period` seconds, of which `capacity` can be at hand at once."""

    def __init__(self, rate: float, *, period: float, capacity: float, fixed: bool, now: float) -> None:
        self.capacity = rate if fixed else capacity
        self._rate = rate
        self._period = period
        self._fixed = fixed
        self._level = self.capacity
        self._since = now

    def level(self, now: float) -> float:
        """What is at hand at `now`; below zero when overdrawn."""
        elapsed = max(0.0, now - self._since)
        if self._fixed:
            windows = math.floor(elapsed / self._period)
            if windows:
                self._since += windows * self._period
                self._level = min(self.capacity, self._level + windows * self.capacity)
        else:
            self._level = min(self.capacity, self._level + elapsed * self._rate / self._period)
            self._since = max(self._since, now)
        return self._level

    def take(self, amount: float, now: float) -> None:
        """Take `amount`, also more than there is."""
        self.level(now)
        self._level -= amount

    def wait(self, amount: float, now: float) -> float | None:
        """Seconds until `amount` is at hand; None when it never will be."""
        if amount > self.capacity:
            return None
        # A bucket filled in steps of floating-point numbers may stay a hair below the whole number.
        missing = amount - self.level(now) - 1e-9
        if missing <= 0:
            return 0.0
        if self._fixed:
            windows = math.ceil(missing / self.capacity)
            return max(0.0, self._since + windows * self._period - now)
        return missing * self._period / self._rate

    def reset(self, now: float) -> float:
        """Seconds until everything is at hand again."""
        return self.wait(self.capacity, now) or 0.0


class Limiter:
    """The accounts behind `RateLimits`. Every call is given the time, in seconds of one clock."""

    def __init__(self, limits: RateLimits, *, now: float) -> None:
        self.limits = limits
        fixed = limits.window == "fixed"
        self._accounts: dict[Literal["day", "requests", "tokens"], Account] = {}
        if limits.requests_per_day is not None:
            day = limits.requests_per_day
            self._accounts["day"] = Account(day, period=limits.day_seconds, capacity=day, fixed=True, now=now)
        for name, rate, burst in (
            ("requests", limits.requests_per_minute, limits.burst),
            ("tokens", limits.tokens_per_minute, limits.token_burst),
        ):
            if rate is not None:
                self._accounts["requests" if name == "requests" else "tokens"] = Account(
                    rate, period=limits.minute_seconds, capacity=burst or rate, fixed=fixed, now=now
                )

    def admit(self, tokens: int, now: float) -> Verdict:
        """Let a request of `tokens` prompt tokens in and take its cost, or refuse it and take nothing."""
        for name, account in self._accounts.items():
            wait = account.wait(tokens if name == "tokens" else 1, now)
            if wait is None or wait > 0:
                return Verdict(admitted=False, limit=name, wait=wait)
        for name, account in self._accounts.items():
            account.take(tokens if name == "tokens" else 1, now)
        return Verdict(admitted=True)

    def spend(self, tokens: int, now: float) -> None:
        """Take the tokens of an answer."""
        if "tokens" in self._accounts:
            self._accounts["tokens"].take(tokens, now)

    def headers(self, now: float, epoch: float) -> list[tuple[bytes, bytes]]:
        """Return the x-ratelimit headers; `epoch` is the same moment in Unix time."""
        made: list[tuple[bytes, bytes]] = []
        for name, account in self._accounts.items():
            suffix = "requests-day" if name == "day" else name
            values = {
                "limit": str(int(account.capacity)),
                "remaining": str(max(0, math.floor(account.level(now) + 1e-9))),
                "reset": self._reset(account.reset(now), epoch),
            }
            made += [
                (f"x-ratelimit-{key}-{suffix}".encode(), value.encode()) for key, value in values.items()
            ]
        return made

    def _reset(self, seconds: float, epoch: float) -> str:
        if self.limits.reset_form == "epoch":
            return str(math.ceil(epoch + seconds))
        if self.limits.reset_form == "duration":
            minutes, rest = divmod(seconds, 60)
            return f"{int(minutes)}m{rest:.1f}s" if minutes else f"{rest:.1f}s"
        return str(math.ceil(seconds))
