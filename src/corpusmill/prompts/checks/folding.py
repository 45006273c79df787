"""Folding: what two writings of the same words have in common.

Composed and decomposed letters, cases, typographic apostrophes and invisible characters are made equal.
Nothing that is sent or written is ever folded; only comparisons are, so no offset into a text is taken from
its folded form.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# The Turkish pairs of i, with and without its dot, fold to letters and marks that no other spelling has.
_SAME: Final = {
    ord("İ"): "i",
    ord("ı"): "i",
    ord("ŉ"): "'n",
    ord("’"): "'",
    ord("‘"): "'",
    ord("ʼ"): "'",
    ord("＇"): "'",
    ord("‐"): "-",
    ord("‑"): "-",
    ord("\u00ad"): None,
    ord("\u200b"): None,
    ord("\u200c"): None,
    ord("\u200d"): None,
    ord("\u200e"): None,
    ord("\u200f"): None,
    ord("\u2060"): None,
    ord("\ufeff"): None,
}

_TO_CHANGE: Final = re.compile(f"[{''.join(map(chr, _SAME))}]")

# Letters of scripts that write without spaces between words, or add particles to them (Hangul): each is a
# token.
CONTINUOUS: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# Vowel signs and marks, which `\w` leaves out: without them a word of Hindi falls into pieces.
_MARKS: Final = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u0900-\u0963\u0970-\u0dff"
)

_TOKEN: Final = re.compile(
    rf"[{CONTINUOUS}]|(?:(?![{CONTINUOUS}])[\w{_MARKS}])(?:(?![{CONTINUOUS}])[\w{_MARKS}])*|[^\w\s]"
)
_PLAIN_TOKEN: Final = re.compile(r"\w+|[^\w\s]")


def fold(text: str) -> str:
    """Return what is compared instead of `text`. It may be of another length."""
    if text.isascii():
        return text.lower()
    composed = unicodedata.normalize("NFC", text)
    if _TO_CHANGE.search(composed):
        composed = composed.translate(_SAME)
    return unicodedata.normalize("NFC", composed.casefold())


def tokens(folded: str) -> list[str]:
    """Split a folded text into words, single letters of scripts without spaces, and single signs."""
    return (_PLAIN_TOKEN if folded.isascii() else _TOKEN).findall(folded)


def bare(text: str) -> str:
    """Return a folded text without its diacritics: `Häuser` becomes `hauser`."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFD", fold(text))
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))
