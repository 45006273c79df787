"""All checks of a translation, in the order in which a reader would want to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.prompts.checks.structure import structure_notes

if TYPE_CHECKING:
    from collections.abc import Sequence


def translation_notes(
    given: str, answer: str, *, source: str | None, target: str, terms: Sequence[tuple[str, str]] = ()
) -> tuple[str, ...]:
    """Return what a translation has done to a text besides translating it.

    `source` and `target` are language codes, `source` None where it is not known; `terms` are the
    glossary's terms that the text contains, with their targets.
    """
    del source, target, terms
    return structure_notes(given, answer)
