"""What the fields of a prompt must be, and the ceiling that is derived where none is given.

A ceiling that we derive guards against a model that never stops, and is no cap: it lies far above any
honest answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeGuard

from corpusmill.errors import PromptError

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAST_GUARD: Final = 4096
"""Completion tokens that a derived ceiling allows at least."""

TOKENS_A_CHARACTER: Final = 2

RAISED_GUARD: Final = 16 * LEAST_GUARD
"""How far a derived ceiling may be raised: fourfold, twice. Rows whose own guard is higher are not raised."""

# Blank to a reader: space of any kind, zero-width characters, directional marks, the byte order mark, NUL.
_INVISIBLE: Final = frozenset("\0\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad")


def guard(characters: int) -> int:
    """Completion tokens that an answer to so many characters may have before it counts as a runaway."""
    return max(LEAST_GUARD, TOKENS_A_CHARACTER * characters)


def is_blank(text: str | None) -> bool:
    """Whether a value has nothing to ask about: null, empty, or invisible characters only."""
    if not text:
        return True
    # The first visible character decides, and it is nearly always the first of all.
    first = text[0]
    if not (first.isspace() or first in _INVISIBLE):
        return False
    return all(sign.isspace() or sign in _INVISIBLE for sign in text)


def check_column(prompt: str, field: str, value: object) -> str:
    """Return the name or dotted path of a column; raise `PromptError` for what no table can have."""
    if _can_name(value):
        return value
    raise PromptError(f"{prompt}.{field} is {value!r}; it must name a column, such as text or doc.body")


def check_into(prompt: str, value: object) -> str:
    """Return the name of the new column; raise `PromptError` where it is none."""
    if _can_name(value) and value.strip():
        return value
    raise PromptError(f"{prompt}.into is {value!r}; it must name the new column")


def _can_name(value: object) -> TypeGuard[str]:
    """Whether a column may be called so: any text that UTF-8 can hold."""
    return isinstance(value, str) and value != "" and not any("\ud800" <= sign <= "\udfff" for sign in value)


def check_text(prompt: str, field: str, value: object) -> str | None:
    """Return a text that says something, or None; raise `PromptError` for anything else."""
    if value is None:
        return None
    if isinstance(value, str) and value.strip():
        return value
    raise PromptError(f"{prompt}.{field} is {value!r}; it must be a text, or be left out")


def check_ceiling(prompt: str, max_tokens: object, escalate_to: object) -> None:
    """Raise `PromptError` for a ceiling that is no positive whole number, or an `escalate_to` below it."""
    for field, value in (("max_tokens", max_tokens), ("escalate_to", escalate_to)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise PromptError(f"{prompt}.{field} is {value!r}; it must be a whole number of at least 1")
    if isinstance(max_tokens, int) and isinstance(escalate_to, int) and escalate_to < max_tokens:
        raise PromptError(
            f"{prompt}.escalate_to is {escalate_to}; it must be at least max_tokens, which is {max_tokens}"
        )


def check_returns(prompt: str, returns: Mapping[str, str] | None) -> dict[str, str]:
    """Return the mapping of response paths to columns; raise `PromptError` where it is none."""
    if returns is None:
        return {}
    checked: dict[Any, Any] = dict(returns)
    for item in checked.items():
        if not all(_can_name(name) for name in item):
            raise PromptError(f"{prompt}.returns maps {item[0]!r} to {item[1]!r}; both must be names")
    return checked


def raised_ceiling(max_tokens: int | None, escalate_to: int | None) -> int | None:
    """How far a ceiling may be raised: as given; a derived one fourfold twice; a given cap not at all."""
    if escalate_to is not None or max_tokens is not None:
        return escalate_to
    return RAISED_GUARD


def set_fields(record: object, values: Mapping[str, Any]) -> None:
    """Fill a frozen record once, from its own constructor."""
    for name, value in values.items():
        object.__setattr__(record, name, value)
