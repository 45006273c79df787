"""How fast several processes may ask one endpoint together: arithmetic over what is written in the store."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE = 60.0

TOKEN_SECONDS = 5.0
"""The burst of tokens, as seconds of their rate: a few requests' worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What may be sent in a minute by all together; None is no limit."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """What may go out at once at the moment `updated` (Unix seconds); below 0 it is debt."""

    requests: float
    tokens: float
    updated: float


def take(levels: Levels | None, rates: Rates, *, tokens: float, now: float) -> tuple[Levels | None, float]:
    """Take one request of so many tokens; give the new levels and 0, or None and the seconds until it may be.

    `levels` is None for an endpoint that nobody has asked yet. What is larger than a burst goes out when
    nothing else is owed, and leaves a debt, so that the rate holds in the long run.
    """
    request_burst, token_burst = (
        _burst(rates.requests_per_minute, 1.0),
        _burst(rates.tokens_per_minute, TOKEN_SECONDS),
    )
    if levels is None:
        levels = Levels(requests=request_burst, tokens=token_burst, updated=now)
    passed = max(0.0, now - levels.updated)
    have_requests = _refilled(levels.requests, rates.requests_per_minute, request_burst, passed)
    have_tokens = _refilled(levels.tokens, rates.tokens_per_minute, token_burst, passed)
    wait = max(
        _missing(1.0, have_requests, rates.requests_per_minute, request_burst),
        _missing(tokens, have_tokens, rates.tokens_per_minute, token_burst),
    )
    if wait > 0:
        return None, wait
    return Levels(
        requests=have_requests - 1.0, tokens=have_tokens - tokens, updated=max(now, levels.updated)
    ), 0.0


def _burst(per_minute: float | None, seconds: float) -> float:
    return 0.0 if per_minute is None else max(1.0, per_minute * seconds / MINUTE)


def _refilled(level: float, per_minute: float | None, burst: float, passed: float) -> float:
    return 0.0 if per_minute is None else min(burst, level + passed * per_minute / MINUTE)


def _missing(amount: float, level: float, per_minute: float | None, burst: float) -> float:
    if per_minute is None:
        return 0.0
    missing = min(amount, burst) - level
    return 0.0 if missing <= _NEGLIGIBLE else missing * MINUTE / per_minute


_NEGLIGIBLE = 1e-6
"""What rounding leaves."""
