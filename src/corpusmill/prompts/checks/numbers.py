"""Numbers are compared as values: separators, spaces, the digits of other scripts and the order do not matter.

A number of the input counts as there when the answer has its value; or a power of ten of it (1.5 million); or, for a
small one, when it may have become a word or the name of a month; or, for a year, its decade; or a Roman numeral. Only a
number that has none of these is missing. Numbers that an answer adds are no finding by themselves: words become digits.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final

from corpusmill.prompts.checks.aside import without_asides
from corpusmill.prompts.checks.notes import noted

# Patterns that begin with a plain class of characters are searched for twice as fast as others.
_DIGITS: Final = re.compile(r"\d\d*")
_BLANKS: Final = "\u0020\u00a0\u2009\u202f"
_MARKS: Final = ".,'’٬٫·"
_NUMBER: Final = re.compile(
    rf"\d(?:\d{{0,2}}(?:[{_BLANKS}]\d{{3}})+(?!\d)(?:[.,٫]\d+)?|\d*(?:[{_MARKS}]\d+)*)"
)
_MANY: Final = 400
_WORDS_UP_TO: Final = 12
_ROUND: Final = frozenset({15, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200, 300, 500, 1000, 1_000_000})
_SCALES: Final = tuple(Decimal(10) ** power for power in (3, 4, 5, 6, 7, 8, 9, 12))
_ROMAN: Final = re.compile(r"(?<![A-Za-z])[IVXLC]+(?![A-Z])")
_HAN: Final = re.compile("[〇零一二三四五六七八九十百千万億亿兆]")
_CLOCK: Final = re.compile(r"\b[apAP]\.?\s?[mM]\b|[上下]午|午[前後]|오[전후]")
_MOST_ROMAN: Final = 50
_LARGE: Final = Decimal(10) ** 15


def number_notes(given: str, answer: str) -> tuple[str, ...]:
    """Return `number_missing …` for each number of the input that the answer has in no form."""
    before = _DIGITS.findall(given)
    if not before:
        return ()
    after = _DIGITS.findall(answer)
    if before == after or len(before) > _MANY or len(after) > _MANY:
        return ()
    if sorted(map(_plain, before)) == sorted(map(_plain, after)):
        return ()
    if _HAN.search(answer):
        return ()
    return noted("number_missing", _missing(without_asides(given), without_asides(answer)))


def _missing(given: str, answer: str) -> list[str]:
    asked = [(token, _readings(token)) for token in dict.fromkeys(_NUMBER.findall(given))]
    there = [_readings(token) for token in _NUMBER.findall(answer)]
    pool = {value for readings in there for reading in readings for value in reading}
    lost = [(token, readings) for token, readings in asked if not _has(readings, pool)]
    if not lost:
        return []
    known = {value for _, readings in asked for reading in readings for value in reading}
    extra = any(not _has(readings, known) for readings in there)
    answered = _Answered(
        values=pool,
        others=extra,
        romans={_roman(numeral) for numeral in _ROMAN.findall(answer)},
        clock=_CLOCK.search(given) is not None or _CLOCK.search(answer) is not None,
    )
    return [
        token for token, readings in lost if not any(_may_be_said(reading, answered) for reading in readings)
    ]


def _has(readings: tuple[tuple[Decimal, ...], ...], pool: set[Decimal]) -> bool:
    return any(all(value in pool for value in reading) for reading in readings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """The numbers of an answer. `others`: it has some that the text has not. `clock`: one of both counts to twelve."""

    values: set[Decimal]
    others: bool
    romans: set[int]
    clock: bool


def _may_be_said(reading: tuple[Decimal, ...], answered: _Answered) -> bool:
    return all(value in answered.values or _in_another_form(value, answered) for value in reading)


def _in_another_form(value: Decimal, answered: _Answered) -> bool:
    there = answered.values
    if value and any(value * scale in there or value / scale in there for scale in _SCALES):
        return True
    if value > _LARGE or value != value.to_integral_value():
        return False
    whole = int(value)
    if 0 < whole <= _MOST_ROMAN and whole in answered.romans:
        return True
    if 1000 <= whole <= 2100 and whole % 10 == 0 and Decimal(whole % 100) in there:  # noqa: PLR2004 - decades
        return True
    if answered.clock and whole < 24 and (Decimal(whole + 12) in there or Decimal(whole - 12) in there):  # noqa: PLR2004
        return True
    # Said as a word; but not where another number took its place.
    return not answered.others and (whole <= _WORDS_UP_TO or whole in _ROUND)


@lru_cache(maxsize=4096)
def _readings(token: str) -> tuple[tuple[Decimal, ...], ...]:
    """Return what a number may mean: `1,234` is 1234 or 1.234, `12 300` is one number or two, `1.2.3` is three."""
    text = _plain_digits(token)
    parts = _DIGITS.findall(text)
    apart = tuple(Decimal(part) for part in parts)
    if len(parts) == 1:
        return (apart,)
    readings = [apart]
    signs = re.sub(r"\d+", "", text)
    grouped = len(parts[0]) <= 3 and all(len(part) == 3 for part in parts[1:])  # noqa: PLR2004 - thousands
    indian = len(parts[-1]) == 3 and all(len(part) == 2 for part in parts[1:-1])  # noqa: PLR2004 - lakhs
    if len(set(signs)) == 1 and (grouped or (indian and len(parts) > 2)):  # noqa: PLR2004 - at least two groups
        readings.append((Decimal("".join(parts)),))
    if len(parts) == 2 and signs not in set(_BLANKS) | {"'", "’", "٬"}:  # noqa: PLR2004 - whole and fraction
        readings.append((_decimal(parts[0], parts[1]),))
    if len(set(signs[:-1])) == 1 and signs[-1] != signs[-2]:
        readings.append((_decimal("".join(parts[:-1]), parts[-1]),))
    return tuple(readings)


def _decimal(whole: str, fraction: str) -> Decimal:
    try:
        return Decimal(f"{whole}.{fraction}").normalize()
    except InvalidOperation:
        return Decimal(whole)


def _plain(digits: str) -> str:
    return _plain_digits(digits).lstrip("0") or "0"


def _plain_digits(text: str) -> str:
    if text.isascii():
        return text
    return "".join(str(unicodedata.decimal(sign)) if sign.isdecimal() else sign for sign in text)


def _roman(numeral: str) -> int:
    values = [{"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}[letter] for letter in numeral]
    following = [*values[1:], 0]
    return sum(-value if value < after else value for value, after in zip(values, following, strict=True))
