"""The checks of an answer to a question about a context."""

from __future__ import annotations

from corpusmill.prompts.checks.insufficient import insufficient_notes
from corpusmill.prompts.checks.language import language_in, language_notes
from corpusmill.prompts.checks.markup import markup_notes
from corpusmill.prompts.checks.preamble import preamble_notes
from corpusmill.prompts.checks.repetition import repetition_notes


def answer_notes(question: str, context: str, answer: str, *, language: str | None) -> tuple[str, ...]:
    """Return what an answer should not have; `language` is the one asked for, None: the question's."""
    given = f"{question}\n{context}"
    expected = language or language_in(question)
    return (
        *insufficient_notes(answer),
        *preamble_notes(given, answer),
        *markup_notes(given, answer),
        *(language_notes(answer, expected) if expected else ()),
        *repetition_notes(given, answer),
    )
