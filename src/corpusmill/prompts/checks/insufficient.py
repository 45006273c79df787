"""Answers that say that the context does not contain what was asked for."""

from __future__ import annotations

from corpusmill.prompts.checks.folding import fold
from corpusmill.prompts.checks.phrases import all_phrases


def insufficient_notes(answer: str) -> tuple[str, ...]:
    """Return `context_insufficient` where an answer says so; it is an answer, and the note lets one count it."""
    folded = fold(answer)
    return ("context_insufficient",) if any(p.insufficient.search(folded) for p in all_phrases()) else ()
