"""What is the same for every answer in plain words: leaked reasoning, a wrapping, a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from corpusmill.prompts.checks.refusal import is_refusal
from corpusmill.prompts.checks.wrapping import unwrap, without_reasoning
from corpusmill.prompts.fields import is_blank
from corpusmill.prompts.prompt import Judgement

if TYPE_CHECKING:
    from corpusmill.exchange import Completion

SHOWN: Final = 2000
"""Characters of a raw answer that an error shows."""


def read_answer(completion: Completion, *, given: str) -> tuple[str, tuple[str, ...]] | Judgement:
    """Return the text of an answer and what was taken off it, or the judgement where there is no usable text.

    `given` is what was asked about: a block of reasoning, a fence or a JSON wrapper that it has itself is
    no wrapping.
    """
    text, reasoned = without_reasoning(completion.content or "", given)
    if is_blank(text):
        return nothing_left(reasoned)
    text, wrapped = unwrap(text, given)
    if is_blank(text):
        return nothing_left(reasoned + wrapped)
    return text, reasoned + wrapped


def nothing_left(notes: tuple[str, ...]) -> Judgement:
    """Judge an answer of which nothing is left, once what the notes say was taken off it."""
    why = ": the model wrote reasoning and no answer" if notes == ("reasoning_leak",) else ""
    return Judgement(status="failed", error=f"empty answer{why}", notes=notes)


def refused(text: str, *, given: str, languages: frozenset[str] | None = None) -> Judgement | None:
    """Return the judgement of an answer that refuses, in one of these languages or English; None else."""
    if is_refusal(text, given, languages=languages):
        return Judgement(status="refused", error=f"the model refused: {text.strip()[:SHOWN]}")
    return None
