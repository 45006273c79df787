"""In which script a text is written, by a few of its letters: tokens a character depend on it more than on anything."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any

from corpusmill.exchange import content_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SAMPLE = 100
"""Characters that are looked at, spread over the text."""

_BLOCKS = (
    (0x0041, "Latin"),
    (0x0250, None),
    (0x0370, "Greek"),
    (0x0400, "Cyrillic"),
    (0x0530, "Armenian"),
    (0x0590, "Hebrew"),
    (0x0600, "Arabic"),
    (0x0700, None),
    (0x0750, "Arabic"),
    (0x0780, None),
    (0x0900, "Devanagari"),
    (0x0980, "Bengali"),
    (0x0A00, "Gurmukhi"),
    (0x0A80, "Gujarati"),
    (0x0B00, None),
    (0x0B80, "Tamil"),
    (0x0C00, "Telugu"),
    (0x0C80, "Kannada"),
    (0x0D00, "Malayalam"),
    (0x0D80, "Sinhala"),
    (0x0E00, "Thai"),
    (0x0E80, "Lao"),
    (0x0F00, "Tibetan"),
    (0x1000, "Myanmar"),
    (0x10A0, "Georgian"),
    (0x1100, "Hangul"),
    (0x1200, "Ethiopic"),
    (0x1380, None),
    (0x1780, "Khmer"),
    (0x1800, None),
    (0x1E00, "Latin"),
    (0x1F00, "Greek"),
    (0x2000, None),
    (0x3040, "Kana"),
    (0x3100, None),
    (0x3130, "Hangul"),
    (0x3190, None),
    (0x3400, "Han"),
    (0xA000, None),
    (0xAC00, "Hangul"),
    (0xD7B0, None),
    (0xF900, "Han"),
    (0xFB00, None),
    (0x20000, "Han"),
    (0x323B0, None),
)
"""Where a block of the Unicode standard begins, and its script; None for what is of no script that is told apart."""

_STARTS = [start for start, _ in _BLOCKS]


LATIN_ENDS = "\u0250"
"""The first character behind the Latin blocks: what lies below has no letter of another script."""


class _Scripts(dict[str, str | None]):
    """The script of each letter that has been met; None for what is no letter, or of no script that is told apart."""

    def __missing__(self, letter: str) -> str | None:
        name = _BLOCKS[bisect_right(_STARTS, ord(letter)) - 1][1] if letter.isalpha() else None
        self[letter] = name
        return name


_SCRIPTS = _Scripts()


def script_of(text: str) -> str | None:
    """Give the script of most letters of a text, by its English name; None for a text without known letters.

    At most `SAMPLE` characters are looked at. Japanese, where kana and kanji mix, is `Kana` from a fifth of kana on.
    """
    if not text:
        return None
    step = max(1, len(text) // SAMPLE)
    sample = text[::step][:SAMPLE]
    if sample.isascii() or max(sample) < LATIN_ENDS:
        return "Latin" if any(map(str.isalpha, sample)) else None
    found = Counter(map(_SCRIPTS.__getitem__, sample))
    del found[None]
    if not found:
        return None
    if found["Kana"] * 5 >= found["Kana"] + found["Han"] and found["Kana"]:
        found["Kana"] += found["Han"]
    return found.most_common(1)[0][0]


def script_of_messages(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Give the script of the last text in messages, which is where a row's own text stands."""
    for message in reversed(messages):
        text = content_text(message.get("content"))
        if text:
            return script_of(text)
    return None
