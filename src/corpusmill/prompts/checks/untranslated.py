"""Text that came back as it went: the whole of it, or lines of it."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from corpusmill.prompts.checks.aside import without_asides

_WORD: Final = re.compile(r"[^\W\d_]+")
_LEAST_WORDS: Final = 4
_LEAST_SMALL: Final = 3
_LEAST_LETTERS: Final = 12
_CODE: Final = re.compile(r"`[^`]*`")


def copied(given: str, answer: str) -> str | None:
    """Return the text that was copied instead of translated: all of it, or its copied lines; None when none was.

    Names, titles, addresses, code and short texts may be copied by right: a copy has at least four words, three of
    them without a capital, or twelve letters of a script without capitals.
    """
    before, after = unicodedata.normalize("NFC", given.strip()), unicodedata.normalize("NFC", answer.strip())
    if before == after:
        return before if _is_prose(before) else None
    if "\n" not in before:
        return None
    lines = {line.strip() for line in after.split("\n")}
    same = [line for line in map(str.strip, before.split("\n")) if line in lines and line and _is_prose(line)]
    return "\n".join(same) or None


def _is_prose(text: str) -> bool:
    words = _WORD.findall(_CODE.sub(" ", without_asides(text)))
    small = sum(word.islower() for word in words)
    if small:
        return len(words) >= _LEAST_WORDS and small >= _LEAST_SMALL
    return (
        any(not word.isupper() and not word.istitle() for word in words)
        and sum(map(len, words)) >= _LEAST_LETTERS
    )
