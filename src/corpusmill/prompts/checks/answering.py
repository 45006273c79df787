"""The checks of an answer to a question about a context."""

from __future__ import annotations


def answer_notes(question: str, context: str, answer: str, *, language: str | None) -> tuple[str, ...]:
    """Return what an answer should not have; `language` is the one asked for, None: the question's."""
    del question, context, answer, language
    return ()
