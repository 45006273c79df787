"""Answers that say that the context does not contain what was asked for."""

from __future__ import annotations

from typing import Final

from corpusmill.prompts.checks.folding import fold
from corpusmill.prompts.checks.phrases import all_phrases

_PART: Final = 600


def insufficient_notes(answer: str) -> tuple[str, ...]:
    """Return `context_insufficient` where an answer says so; it is an answer, and the note lets one count it."""
    # It stands at the end, after what the context is about, or at the beginning.
    folded = fold(answer if len(answer) <= 2 * _PART else f"{answer[:_PART]}\n{answer[-_PART:]}")
    return ("context_insufficient",) if any(p.insufficient.search(folded) for p in all_phrases()) else ()
