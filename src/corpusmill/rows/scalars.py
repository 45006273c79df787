"""The text of what is no text: one form for each kind of value, whatever it was read from and however wide it is.

The form depends on the value alone, not on a locale, a time zone database or another library: the same value has the
same request key from Parquet that Spark wrote and from a table that pandas made.

- integers: `42`; booleans: `true`, `false`; decimals with all digits of their scale: `19.90`
- dates: `2026-11-30`; times: `14:05:00`; timestamps: `2026-11-30T14:05:00`, those with a time zone in UTC:
  `2026-11-30T12:05:00+00:00`; fractions of a second follow without zeros at their end: `14:05:00.25`
- floats: the fewest digits that are read as the same float, `0.1`, `1e-07`, `inf`; whole ones like integers, since
  pandas makes floats of integers beside nulls; NaN is null, as it is for pandas
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types as pt

if TYPE_CHECKING:
    from collections.abc import Callable

_A_DAY = timedelta(days=1)
_DAY_0 = date(1970, 1, 1).toordinal()
_MOMENT_0 = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""Digits of the fraction of a second in each unit of Arrow's."""


def scalar_writer(column: pa.Array[Any]) -> tuple[pa.Array[Any], Callable[[Any], str | None] | None]:
    """Give a column of plain values and what writes one of them; None where they are texts already.

    What writes a value raises `ValueError` or `OverflowError` where it has no text, such as a day beyond the year 9999.
    """
    type_ = column.type
    if pt.is_boolean(type_) or pt.is_integer(type_):
        return column.cast(pa.string()), None
    if pt.is_decimal(type_):
        return column, lambda value: format(value, "f")
    if pt.is_floating(type_):
        if not pt.is_float64(type_):
            # A narrow float is not its nearest double: the shortest digits that mean it are told at its own width.
            column = column.cast(pa.float32()).cast(pa.string()).cast(pa.float64())
        return column, _float
    column = column.cast(pa.int64() if type_.bit_width == 64 else pa.int32())  # noqa: PLR2004
    if pt.is_date32(type_):
        return column, _date
    if pt.is_date64(type_):
        return column, lambda value: _date(value // 86_400_000)
    digits = _DIGITS[type_.unit]
    if pt.is_time(type_):
        return column, lambda value: _time(value, digits)
    zone = "+00:00" if type_.tz else ""
    return column, lambda value: f"{_moment(value, digits)}{zone}"


def _float(value: float) -> str | None:
    # Adding 0 takes the sign from a zero.
    return None if value != value else repr(value + 0.0).removesuffix(".0")  # noqa: PLR0124 - NaN alone differs


def _date(days: int) -> str:
    return date.fromordinal(_DAY_0 + days).isoformat()


def _time(value: int, digits: int) -> str:
    seconds, fraction = divmod(value, 10**digits)
    since = timedelta(seconds=seconds)
    if not timedelta() <= since < _A_DAY:
        raise ValueError(f"{value} is no time of the day")
    return (_MOMENT_0 + since).time().isoformat() + _fraction(fraction, digits)


def _moment(value: int, digits: int) -> str:
    seconds, fraction = divmod(value, 10**digits)
    moment = (_MOMENT_0 + timedelta(seconds=seconds)).replace(tzinfo=None)
    return moment.isoformat() + _fraction(fraction, digits)


def _fraction(fraction: int, digits: int) -> str:
    return f".{fraction:0{digits}}".rstrip("0") if fraction else ""
