"""The checks of a summary."""

from __future__ import annotations

from corpusmill.prompts.checks.language import language_in, language_notes
from corpusmill.prompts.checks.markup import markup_notes
from corpusmill.prompts.checks.preamble import preamble_notes
from corpusmill.prompts.checks.quotes import quotes_notes
from corpusmill.prompts.checks.repetition import repetition_notes


def summary_notes(given: str, answer: str, *, language: str | None) -> tuple[str, ...]:
    """Return what a summary should not have; `language` is the one asked for, None: the text's own."""
    expected = language or language_in(given)
    return (
        *preamble_notes(given, answer),
        *quotes_notes(given, answer),
        *markup_notes(given, answer),
        *(language_notes(answer, expected) if expected else ()),
        *repetition_notes(given, answer),
    )
