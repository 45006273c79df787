"""Numbers as people read them. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_LARGE = 100_000


def count(value: float | None) -> str:
    """Write a whole number in full up to six digits, then with three digits and a unit."""
    if value is None:
        return "–"
    if value < _LARGE:
        return f"{round(value):,}"
    for unit, size in (("bn", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size * 0.9995:
            scaled = value / size
            digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2  # noqa: PLR2004 - three digits
            return f"{scaled:,.{digits}f} {unit}"
    raise AssertionError(value)


def rate(value: float) -> str:
    """Write a number a second, with as many digits as it bears."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"  # noqa: PLR2004


def money(value: float | None) -> str:
    """Write US dollars; small sums keep three digits that count."""
    if value is None:
        return "not known"
    if value == 0 or value >= 1:
        return f"${value:,.2f}"
    return f"${value:.{min(8, 2 - math.floor(math.log10(value)))}f}"


def span(seconds: float) -> str:
    """Write a length of time, of the short ones more than whole seconds."""
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 10:  # noqa: PLR2004 - below, a tenth counts
        return f"{seconds:.1f} s"
    return duration(seconds)


def duration(seconds: float) -> str:
    """Write a length of time in whole seconds, or in the two largest units."""
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004
        return f"{whole} s"
    if whole < 3_600:  # noqa: PLR2004
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3_600} h {whole % 3_600 // 60:02} min"


def share(part: float, whole: float) -> str:
    """Write a share in per cent; what is there is never written as nothing, what is missing never as all."""
    if not whole:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 0.1:  # noqa: PLR2004
        return "< 0.1 %"
    if 99.9 < percent < 100:  # noqa: PLR2004
        return "> 99.9 %"
    return f"{percent:.1f} %" if percent % 1 else f"{percent:.0f} %"


def ticks(highest: float, *, most: int = 4) -> list[float]:
    """Give round values from 0 on, the last of them at or above `highest`, at most `most` steps."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999999)
    steps = math.ceil(highest / step - 1e-9)
    return [round(step * number, 10) for number in range(steps + 1)]


def quantile(bins: Sequence[int], bounds: Sequence[float], part: float) -> float | None:
    """Give the upper bound under which this part of the values lies; None for none, or beyond the last bound."""
    wanted = part * sum(bins)
    if not wanted:
        return None
    seen = 0
    for number, bound in zip(bins, bounds, strict=False):
        seen += number
        if seen >= wanted:
            return bound
    return None
