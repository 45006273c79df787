"""All checks of a translation, in the order in which a reader would want to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.prompts.checks.language import language_notes
from corpusmill.prompts.checks.markup import markup_notes
from corpusmill.prompts.checks.numbers import number_notes
from corpusmill.prompts.checks.placeholders import placeholder_notes
from corpusmill.prompts.checks.preamble import preamble_notes
from corpusmill.prompts.checks.quotes import quotes_notes
from corpusmill.prompts.checks.repetition import repetition_notes
from corpusmill.prompts.checks.structure import structure_notes
from corpusmill.prompts.checks.terms import term_notes
from corpusmill.prompts.checks.untranslated import copied
from corpusmill.prompts.languages import alike

if TYPE_CHECKING:
    from collections.abc import Sequence


def translation_notes(
    given: str, answer: str, *, source: str | None, target: str, terms: Sequence[tuple[str, str]] = ()
) -> tuple[str, ...]:
    """Return what a translation has done to a text besides translating it.

    `source` and `target` are language codes, `source` None where it is not known; `terms` are the glossary's
    terms that the text contains, with their targets.
    """
    return (
        *preamble_notes(given, answer),
        *quotes_notes(given, answer),
        *markup_notes(given, answer),
        *structure_notes(given, answer),
        *placeholder_notes(given, answer),
        *number_notes(given, answer),
        *term_notes(answer, terms, target),
        *_language(given, answer, source, target),
        *repetition_notes(given, answer),
    )


def _language(given: str, answer: str, source: str | None, target: str) -> tuple[str, ...]:
    if source is not None and alike(source, target):
        return ()
    copy = copied(given, answer)
    if copy is None:
        return language_notes(answer, target)
    # A row may be in the target language already, and then a copy is its translation.
    if source is None and not language_notes(copy, target):
        return ()
    lines = copy.count("\n") + 1
    return ("untranslated",) if lines == given.strip().count("\n") + 1 else (f"untranslated {lines} lines",)
