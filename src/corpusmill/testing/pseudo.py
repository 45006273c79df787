"""Pseudo-localisation: a translation that anybody can see and nobody can mistake for one.

Letters of the Latin alphabet get an accent, one for one, so lengths, lines and paragraphs stay; placeholders,
tags, entities, addresses and backslash escapes stay as they are; glossary terms are put in.
"""

from __future__ import annotations

import codecs
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLAIN: Final = "AaCcDdEeGgHhIiJjKkLlNnOoRrSsTtUuWwYyZz"
_ACCENTED: Final = "ĀāČčĎďĒēĢģĤĥĪīĴĵĶķĻļŅņŌōŖŗŠšŢţŪūŴŵŶŷŽž"
_ACCENTS: Final = str.maketrans(_PLAIN, _ACCENTED)
_ACCENTED_LATIN: Final = bytes(range(256)).decode("latin-1").translate(_ACCENTS)

_KEPT: Final = (
    r"%\([^)\s]*\)[-#0 +]*[\d.]*[a-zA-Z]"  # %(name)s
    r"|%[-#0+]*[\d.]*(?:hh|h|ll|l|L|z|j|t)?[diouxXeEfFgGcrsa%](?![a-zA-Z])"  # %s, %5.2f, but no "100% sure"
    r"|\{[^{}\n]*\}"  # {name}, {0:>10}, {\an8}
    r"|</?[A-Za-z][^<>\n]*>|<!--.*?-->"  # tags
    r"|&(?:[A-Za-z][A-Za-z0-9]*|#\d+|#x[0-9A-Fa-f]+);"  # entities
    r"|\\[A-Za-z]"  # escapes
)
_ADDRESS: Final = r"|\b[a-z][a-z0-9+.-]*://[^\s<>\"']+"


def pseudo_localise(text: str, glossary: Mapping[str, str] | None = None) -> str:
    """Return `text` with accents on its letters and `glossary` terms replaced, as words, longest first."""
    terms = {source.casefold(): target for source, target in (glossary or {}).items() if source}
    # Without the alternatives that may begin with any letter, the search leaps from one special sign to the next.
    kept = _compiled(_KEPT + (_ADDRESS if "://" in text else "") + _alternatives(terms))
    pieces: list[str] = []
    reached = 0
    for match in kept.finditer(text):
        pieces += (
            _accented(text[reached : match.start()]),
            terms.get(match[0].casefold(), match[0]),
        )
        reached = match.end()
    pieces.append(_accented(text[reached:]))
    return "".join(pieces)


def _accented(text: str) -> str:
    try:
        # A table of 256 characters is many times faster than a mapping, and most text fits it.
        return codecs.charmap_decode(text.encode("latin-1"), "strict", _ACCENTED_LATIN)[0]
    except UnicodeEncodeError:
        return text.translate(_ACCENTS)


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def _alternatives(terms: Mapping[str, str]) -> str:
    if not terms:
        return ""
    longest_first = sorted(terms, key=len, reverse=True)
    return rf"|(?<!\w)(?i:{'|'.join(re.escape(term) for term in longest_first)})(?!\w)"
