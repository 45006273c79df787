"""Quotation marks round a whole answer to an input that has none there."""

from __future__ import annotations

from typing import Final

_PAIRS: Final = {
    '"': '"',
    "'": "'",
    "“": "”",
    "„": '“”"„',
    "”": "”",
    "«": "»",
    "»": "«",
    "‘": "’",
    "‚": "‘’",
    "’": "’",
    "‹": "›",
    "「": "」",
    "『": "』",
    "`": "`",
}
_OPENING: Final = frozenset(_PAIRS)
_ALL: Final = _OPENING.union(*_PAIRS.values())
_APOSTROPHES: Final = "'’"
# Speech that a dash opens in one language stands in quotation marks in another.
_DASHES: Final = ("-", "–", "—", "―")


def quotes_notes(given: str, answer: str) -> tuple[str, ...]:
    """Return `quotes_added` where the answer as a whole stands in quotation marks that the input does not have."""
    text = answer.strip()
    if len(text) < 2 or text[0] not in _OPENING or text[-1] not in _PAIRS[text[0]]:  # noqa: PLR2004 - a pair
        return ()
    source = given.strip()
    if not source or source.startswith(_DASHES) or (source[0] in _ALL and source[-1] in _ALL):
        return ()
    if _marks(text) < _marks(source) + 2:
        return ()
    return ("quotes_added",)


def _marks(text: str) -> int:
    count = sum(text.count(mark) for mark in _ALL)
    # An apostrophe within a word quotes nothing.
    inside = sum(
        text[place - 1].isalnum() and text[place + 1].isalnum()
        for mark in _APOSTROPHES
        for place in _places(text, mark)
    )
    return count - inside


def _places(text: str, mark: str) -> list[int]:
    return [place for place in range(1, len(text) - 1) if text[place] == mark]
