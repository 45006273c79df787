"""How long a server asks to wait, and what it says is left, in all the forms in which servers say so.

Nothing here ever raises: what makes no sense is None. Negative numbers mean "unknown" to those who send them.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from corpusmill.chat.verdict import Rates

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST = 31 * 86_400.0
"""Seconds beyond which a wait is taken for a mistake: no quota is longer than a month."""

EPOCH_FROM = 1_000_000_000.0
"""Numbers from here on are moments (Unix time, in seconds), not durations."""

EPOCH_MS_FROM = 1_000_000_000_000.0
"""And from here on they are moments in milliseconds."""

_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_COMPOUND = re.compile(r"(?:\d+(?:\.\d*)?(?:ms|us|µs|ns|d|h|m|s)\s*)+")
_PIECE = re.compile(r"(\d+(?:\.\d*)?)(ms|us|µs|ns|d|h|m|s)")
_IN_TEXT = re.compile(
    r"(?:try again|retry|retry again|wait|available|resets?)\s*(?:after|in|for|at least)?\s*:?\s*"
    r"((?:\d+(?:\.\d+)?\s*(?:milliseconds?|seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|ms|d|h|m|s)\b\s*"
    r"(?:,|and)?\s*|\d+(?:\.\d+)?[dhm](?=\d))+)",
    re.IGNORECASE,
)
_WORDED = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milli|[dhms])", re.IGNORECASE)


def retry_after(headers: Mapping[str, str], body_text: str, now: float) -> float | None:
    """Give the seconds that a response asks to wait, None when it does not say or makes no sense.

    `headers` have names in lower case, `now` is Unix time. In this order: `retry-after-ms`, `retry-after`,
    the resets of limits of which nothing is left, a delay named in the text, any other reset of a running
    window.
    """
    milliseconds = _positive(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000.0)
    named = _retry_after_header(headers.get("retry-after"), now)
    if named is not None:
        return named
    rates = read_rates(headers, now)
    if rates is not None:
        spent = [
            reset
            for left, reset in ((rates.requests, rates.requests_reset), (rates.tokens, rates.tokens_reset))
            if left == 0 and reset is not None
        ]
        if spent:
            return max(spent)
    in_text = delay_in_text(body_text)
    if in_text is not None or rates is None:
        return in_text
    resets = [
        reset
        for left, reset in ((rates.requests, rates.requests_reset), (rates.tokens, rates.tokens_reset))
        if left is None and reset is not None
    ]
    return max(resets, default=None)


def delay_in_text(text: str) -> float | None:
    """Give the seconds in "try again in 1m26.4s" or "retry after 20 seconds", else None."""
    found = _IN_TEXT.search(text[:4000])
    if found is None:
        return None
    total = 0.0
    for amount, unit in _WORDED.findall(found[1]):
        name = unit.lower()
        total += float(amount) * (0.001 if name in {"ms", "milli"} else _UNITS[name])
    return _bounded(total)


def read_rates(headers: Mapping[str, str], now: float) -> Rates | None:
    """Read the rate-limit headers; None when there are none that make sense."""
    left: dict[str, float] = {}
    for name, value in headers.items():
        slot = _SLOTS.get(name)
        if slot is None:
            continue
        number = read_reset(value, now) if slot.endswith("reset") else _positive(value)
        if number is not None:
            # Of two that contradict each other the more cautious holds.
            known = left.get(slot)
            cautious = max if slot.endswith("reset") else min
            left[slot] = number if known is None else cautious(known, number)
    return Rates(**left) if left else None


def read_reset(value: str | None, now: float) -> float | None:
    """Give the seconds until a reset: from seconds, a moment, "20s", "1m26.4s" or a date."""
    if value is None:
        return None
    text = value.strip()
    number = _finite(text)
    if number is None:
        if _COMPOUND.fullmatch(text):
            return _bounded(sum(float(amount) * _UNITS[unit] for amount, unit in _PIECE.findall(text)))
        return _seconds_until(text, now)
    if number >= EPOCH_MS_FROM:
        number = max(0.0, number / 1000.0 - now)
    elif number >= EPOCH_FROM:
        number = max(0.0, number - now)
    return _bounded(number)


def _retry_after_header(value: str | None, now: float) -> float | None:
    wait = read_reset(value, now)
    # A moment that has passed says more about the two clocks than about the server.
    return None if wait == 0.0 and _finite(value) != 0.0 else wait


def _seconds_until(text: str, now: float) -> float | None:
    moment = None
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return _bounded(max(0.0, moment.timestamp() - now))
    except (OverflowError, ValueError, OSError):
        return None


def _finite(value: str | None) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _positive(value: str | None) -> float | None:
    number = _finite(value)
    return None if number is None or number < 0 else number


def _bounded(seconds: float) -> float | None:
    return seconds if 0 <= seconds <= LONGEST else None


def _slots() -> dict[str, str]:
    slots = {}
    for prefix in ("x-ratelimit", "ratelimit", "x-rate-limit", "anthropic-ratelimit"):
        for what in ("requests", "tokens"):
            slots[f"{prefix}-remaining-{what}"] = what
            slots[f"{prefix}-{what}-remaining"] = what
            slots[f"{prefix}-reset-{what}"] = f"{what}_reset"
            slots[f"{prefix}-{what}-reset"] = f"{what}_reset"
            for day in (f"{what}-day", f"day-{what}"):
                slots[f"{prefix}-remaining-{day}"] = "day"
                slots[f"{prefix}-reset-{day}"] = "day_reset"
        slots[f"{prefix}-remaining"] = "requests"
        slots[f"{prefix}-reset"] = "requests_reset"
    return slots


_SLOTS = _slots()

NAMES = frozenset(_SLOTS) | {"retry-after", "retry-after-ms"}
"""The headers that are read here."""
