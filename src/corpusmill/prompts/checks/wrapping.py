"""What stands round an answer and is no part of it: leaked reasoning, a code fence, a JSON object.

Only what wraps the whole answer is taken off, and only where the input has no such thing itself.
"""

from __future__ import annotations

import json
import re
from typing import Final

# The ways in which servers leak the reasoning of a model into its answer: opening, closing.
_REASONING: Final = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
_OPENINGS: Final = re.compile(r"\s*(?:<think|<thought|<reasoning|\[THINK\]|<\|channel\|>analysis)")
_CLOSINGS: Final = ("</think", "</thought>", "</reasoning>", "[/THINK]", "<|channel|>final<|message|>")
_FENCED: Final = re.compile(
    r"\s*(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<body>.*?)\n?[ \t]*(?P=fence)\s*", re.DOTALL
)
_KEYS: Final = frozenset(
    {"text", "translation", "translated_text", "summary", "answer", "result", "output", "content"}
)


def without_reasoning(answer: str, given: str) -> tuple[str, tuple[str, ...]]:
    """Take a leading block of reasoning off an answer; note `reasoning_leak`.

    A closing tag alone ends a block that began in the prompt's template; an opening tag alone is a block
    that never ended, and leaves nothing. Tags that the input has as well stay.
    """
    if "<" not in answer and "[" not in answer:
        return answer, ()
    if not _OPENINGS.match(answer) and not any(tag in answer for tag in _CLOSINGS):
        return answer, ()
    for opening, closing in _REASONING:
        if answer.count(closing) <= given.count(closing) and answer.count(opening) <= given.count(opening):
            continue
        head, closed, rest = answer.partition(closing)
        if closed and (opening not in head or head.lstrip().startswith(opening)):
            return rest.lstrip(), ("reasoning_leak",)
        if not closed and answer.lstrip().startswith(opening):
            return "", ("reasoning_leak",)
    return answer, ()


def unwrap(answer: str, given: str) -> tuple[str, tuple[str, ...]]:
    """Take off a code fence, or a JSON object with one text, that holds the whole answer; note which."""
    start = answer.lstrip()[:3]
    if start in {"```", "~~~"} and start not in given:
        body = fenced(answer)
        return (answer, ()) if body is None else (body, ("fence_removed",))
    if start[:1] == "{" and answer.rstrip()[-1:] == "}" and not given.lstrip().startswith("{"):
        body = _only_text(answer)
        return (answer, ()) if body is None else (body, ("json_wrapper_removed",))
    return answer, ()


def fenced(answer: str) -> str | None:
    """Return what stands within a code fence that wraps the whole answer; None where there is none."""
    match = _FENCED.fullmatch(answer)
    if match is None or f"\n{match['fence']}" in match["body"]:
        return None
    return match["body"]


def _only_text(answer: str) -> str | None:
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    if isinstance(document, dict) and len(document) == 1:
        ((key, value),) = document.items()
        if key.casefold() in _KEYS and isinstance(value, str):
            return value
    return None
