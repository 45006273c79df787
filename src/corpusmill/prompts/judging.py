"""What is the same for every answer in plain words: none at all, leaked reasoning, a wrapping, a refusal."""

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
    content = completion.content
    if content is None or is_blank(content):
        return empty_answer(completion)
    text, reasoned = without_reasoning(content, given)
    if is_blank(text):
        return Judgement(
            status="failed", error="empty answer: the model wrote reasoning and no answer", notes=reasoned
        )
    text, wrapped = unwrap(text, given)
    if is_blank(text):
        return Judgement(status="failed", error="empty answer", notes=reasoned + wrapped)
    return text, reasoned + wrapped


def empty_answer(completion: Completion) -> Judgement:
    """Judge an answer without content: `refused` where the message says so, else `failed`."""
    refusal = _refusal_field(completion)
    if refusal is not None:
        return Judgement(status="refused", error=f"the model refused: {refusal[:SHOWN]}")
    why = ": the model wrote reasoning and no answer" if completion.reasoning else ""
    return Judgement(status="failed", error=f"empty answer{why}")


def refused(text: str, *, given: str, languages: frozenset[str] | None = None) -> Judgement | None:
    """Return the judgement of an answer that refuses, in one of these languages or English; None else."""
    if is_refusal(text, given, languages=languages):
        return Judgement(status="refused", error=f"the model refused: {text.strip()[:SHOWN]}")
    return None


def _refusal_field(completion: Completion) -> str | None:
    choices = completion.document().get("choices")
    for choice in choices if isinstance(choices, list) else ():
        message = choice.get("message") if isinstance(choice, dict) else None
        refusal = message.get("refusal") if isinstance(message, dict) else None
        if isinstance(refusal, str) and refusal.strip():
            return refusal.strip()
    return None
