"""Row filters as data: `[[column, op, value], …]`, all of which must hold. Nothing is evaluated as code.

As in SQL a comparison with null holds for no row, so `!=` and `not in` drop nulls too; `is null` finds them.
"""

from __future__ import annotations

import datetime as dt
import decimal
import operator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import types as pt

from corpusmill.errors import SourceError
from corpusmill.prompts.columns import find_column, is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NULLNESS = ("is null", "is not null")
OPERATORS = (*_COMPARE, "in", "not in", *_NULLNESS)


def build_filter(
    conditions: Sequence[Sequence[Any]], schema: pa.Schema
) -> tuple[pc.Expression, tuple[str, ...]]:
    """The expression of all conditions, and the top-level columns that it reads.

    Raises:
        SourceError: an unknown column or operator, or a value that does not fit the column's type; names all
            three.
    """
    expression: pc.Expression | None = None
    columns: list[str] = []
    for condition in conditions:
        one, column = _condition(condition, schema)
        expression = one if expression is None else expression & one
        columns.append(column)
    if expression is None:
        raise SourceError("source.filter: the filter is empty; leave it out to take all rows")
    return expression, tuple(dict.fromkeys(columns))


def _condition(condition: Sequence[Any], schema: pa.Schema) -> tuple[pc.Expression, str]:
    name, op, value = _read(condition)
    try:
        names, type_ = find_column(schema, name)
    except SourceError as error:
        raise SourceError(f"source.filter names {name!r}: {error}") from None
    field: Any = pc.field(names[0]) if len(names) == 1 else pc.field(tuple(names))
    if op in _NULLNESS:
        return (field.is_null() if op == "is null" else field.is_valid()), names[0]
    plain = type_.value_type if pt.is_dictionary(type_) else type_
    if pt.is_string_view(plain):
        plain = pa.large_string()
    if plain != type_:
        # Views and dictionaries have no comparisons of their own. A cast elsewhere would hide the statistics.
        field = field.cast(plain)
    if op in _COMPARE:
        return _COMPARE[op](field, pa.scalar(_value(name, value, plain), plain)), names[0]
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise SourceError(f"source.filter on {name!r}: {op!r} needs a list of values, not {value!r}")
    inside = field.isin(pa.array([_value(name, item, plain) for item in value], plain))
    return (inside if op == "in" else ~inside & field.is_valid()), names[0]


def _read(condition: Sequence[Any]) -> tuple[str, str, Any]:
    """Column, operator and value of a condition, which has the right form."""
    if isinstance(condition, str | bytes) or len(condition) not in {2, 3}:
        raise SourceError(
            f"source.filter: the condition {condition!r} is not of the form [column, op, value]"
        )
    name, op, *rest = condition
    if not isinstance(name, str) or not isinstance(op, str):
        raise SourceError(
            f"source.filter: the condition {condition!r}: the column and the operator must be text"
        )
    op = " ".join(op.lower().split())
    if op not in OPERATORS:
        raise SourceError(
            f"source.filter on {name!r}: unknown operator {op!r}; known are {', '.join(OPERATORS)}"
        )
    if op in _NULLNESS and rest and rest[0] is not None:
        raise SourceError(f"source.filter on {name!r}: {op!r} takes no value")
    if op not in _NULLNESS and not rest:
        raise SourceError(f"source.filter on {name!r}: {op!r} needs a value")
    return name, op, rest[0] if rest else None


def _value(name: str, value: Any, type_: pa.DataType) -> Any:
    """The value as a Python object of the column's type, refused rather than guessed."""
    if value is None:
        raise SourceError(
            f"source.filter on {name!r}: null compares with nothing; use 'is null' or 'is not null'"
        )
    fits = _fits(value, type_)
    if fits is None:
        raise SourceError(f"source.filter on {name!r}: columns of type {type_} cannot be filtered by value")
    if fits:
        try:
            if isinstance(value, str) and pt.is_time(type_):
                return pa.scalar(dt.time.fromisoformat(value), type_).as_py()  # Arrow casts no text to a time
            if isinstance(value, str) and not is_text(type_):
                return pa.scalar(value).cast(type_).as_py()
            return pa.scalar(value, type_).as_py()
        except (pa.ArrowException, ValueError, OverflowError, TypeError) as error:
            raise SourceError(
                f"source.filter on {name!r}: {value!r} is no {type_}{_form(value, type_)} ({error})"
            ) from error
    raise SourceError(
        f"source.filter on {name!r}: {value!r} ({type(value).__name__}) does not fit the column's type {type_}"
        f"{_form(value, type_)}"
    )


def _form(value: Any, type_: pa.DataType) -> str:
    """Say how a value of the type is written in a job file, where that is not plain."""
    if pt.is_decimal(type_):
        return f'; write it in quotes, as in "{value}"' if isinstance(value, float) else ""
    if pt.is_timestamp(type_):
        zoned = getattr(type_, "tz", None) is not None
        offset = "with Z or an offset such as +02:00" if zoned else "without an offset"
        return f'; write a time {offset}, as in "2024-05-01T09:30:00{"Z" if zoned else ""}"'
    if pt.is_date(type_):
        return '; write a day, as in "2024-05-01"'
    return '; write a time, as in "09:30:00"' if pt.is_time(type_) else ""


def _fits(value: Any, type_: pa.DataType) -> bool | None:
    """Whether a Python value may be compared with the type; None when nothing may."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_text(type_):
        return isinstance(value, str)
    if pt.is_boolean(type_):
        return isinstance(value, bool)
    if pt.is_integer(type_):
        return number and isinstance(value, int)
    if pt.is_floating(type_):
        return number
    if pt.is_decimal(type_):
        return (number and isinstance(value, int)) or isinstance(value, str | decimal.Decimal)
    if pt.is_timestamp(type_) or pt.is_date(type_):
        return isinstance(value, str | dt.date)
    if pt.is_time(type_):
        return isinstance(value, str | dt.time)
    return None
