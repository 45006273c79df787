"""Reading an answer that should be JSON: strictly, exactly, and with what was odd about it."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

from corpusmill.exchange import clean_text, clean_value
from corpusmill.prompts.checks.wrapping import fenced
from corpusmill.prompts.prompt import OUTPUT_CLEANED

_INTEGRAL_DIGITS: Final = 30
"""A fraction such as 5.0 counts as the whole number that it is, up to so many digits."""


class NotJsonError(ValueError):
    """The answer is no JSON; the text says where it stops being JSON."""


def parse_json(answer: str) -> tuple[Any, tuple[str, ...]]:
    """Parse an answer: integers and fractions exact (`int`, `Decimal`), NaN and infinities refused.

    A byte order mark and a code fence round the whole answer are taken off. Of duplicate keys the last one
    counts. Text is cleaned. Notes: `fence_removed`, `duplicate_keys name`, `output_cleaned`. Raises `NotJsonError`.
    """
    notes: list[str] = []
    text = answer.lstrip("\ufeff")
    body = fenced(text)
    if body is not None:
        text = body
        notes.append("fence_removed")
    duplicates: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            names = [name for name, _ in pairs]
            duplicates.extend(name for name in members if names.count(name) > 1)
        return members

    try:
        parsed = json.loads(text, parse_float=_fraction, parse_constant=_refuse, object_pairs_hook=members)
        # Escapes may stand for what no file can hold.
        cleaned = clean_value(parsed) if "\\u" in text else parsed
    except RecursionError:
        raise NotJsonError("the answer is nested too deeply") from None
    except ValueError as error:
        raise NotJsonError(f"the answer is no JSON: {error}") from None
    notes += [f"duplicate_keys {clean_text(name)}" for name in dict.fromkeys(duplicates)]
    if cleaned is not parsed:
        notes.append(OUTPUT_CLEANED)
    return cleaned, tuple(notes)


def _fraction(text: str) -> int | Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError("a number has an exponent of too many digits") from None
    if number.adjusted() < _INTEGRAL_DIGITS and number == number.to_integral_value():
        return int(number)
    return number


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
