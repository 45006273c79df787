"""What an answer says before and after what was asked for: an introduction, a remark."""

from __future__ import annotations

from typing import Final

from corpusmill.prompts.checks.folding import fold
from corpusmill.prompts.checks.phrases import all_phrases

_HEAD: Final = 160
_TAIL: Final = 160


def preamble_notes(given: str, answer: str) -> tuple[str, ...]:
    """Return `preamble` and `explanation_added` where an answer has them and the input has none like them."""
    notes: tuple[str, ...] = ()
    head = answer[:_HEAD]
    lines = answer.strip().count("\n")
    more = lines > given.strip().count("\n")
    if (
        (":" in head or "：" in head or "\n" in head)
        and _introduces(head)
        and (
            (more and _first_line_ends(answer) and not _first_line_ends(given))
            or not _introduces(given[:_HEAD])
        )
    ):
        notes = ("preamble",)
    if more:
        last = _last_line(answer)
        if _remarks(last) and not _remarks(_last_line(given)):
            notes += ("explanation_added",)
    return notes


def _introduces(text: str) -> bool:
    head = fold(text.lstrip())
    return any(phrases.preamble.match(head) for phrases in all_phrases())


def _first_line_ends(text: str) -> bool:
    return text.strip().partition("\n")[0].rstrip(" *_").endswith((":", "："))


def _remarks(line: str) -> bool:
    folded = fold(line)
    return any(phrases.postscript.match(folded) for phrases in all_phrases())


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2].strip()[:_TAIL]
