"""A model that repeats itself until something stops it."""

from __future__ import annotations

from typing import Final

_PIECE: Final = 24
_TIMES: Final = 6
_LEAST: Final = 200


def repetition_notes(given: str, answer: str) -> tuple[str, ...]:
    """Return `repetition` where an answer, longer than its input, ends in one piece over and over."""
    if len(answer) < _LEAST or len(answer) <= 2 * len(given):
        return ()
    end = answer.rstrip()
    piece = end[-_PIECE:]
    if end.count(piece) >= _TIMES > given.count(piece) and piece.strip(" .-_=*…\n"):
        return ("repetition",)
    return ()
