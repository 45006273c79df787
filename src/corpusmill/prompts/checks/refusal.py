"""Refusals: an answer in which the model declines, instead of the answer.

A refusal says near its beginning that the writer cannot or will not, and next to that either what it was asked to do
(translate, help with the request) or that it is a model with rules. A text may say such a thing itself; so an answer
to an input that begins in the same way, in any language that is known here, is no refusal.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from corpusmill.prompts.checks.folding import fold
from corpusmill.prompts.checks.phrases import all_phrases, by_opener

if TYPE_CHECKING:
    from collections.abc import Iterator

    from corpusmill.prompts.checks.phrases import Phrases

_HEAD: Final = 400
_OPENING: Final = 80
_FIRST_WORDS: Final = 6
_UNABLE_WITHIN: Final = 220
_BEFORE: Final = 80
_AFTER: Final = 160
# To translate, in the languages that are known here.
_TRANSLATES: Final = re.compile(
    "translat|übersetz|tradu[cizç]|tulko|tłumacz|przekład|перев[её]|переклад|tõlk|tõlgi|vertal|översätt|kään|versti|překl"
)
_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")


def is_refusal(answer: str, given: str, *, languages: frozenset[str] | None = None) -> bool:
    """Whether an answer declines the task; a text that declines something itself may be answered alike.

    `languages` are the codes of those in which a model may decline, besides English; None: any.
    """
    candidates = _candidates(fold(answer[:_OPENING]), languages)
    if not candidates:
        return False
    head = fold(answer[:_HEAD])
    if not any(_declines(head, phrases) for phrases in candidates):
        return False
    source = fold(given[:_HEAD])
    unable = [phrases for phrases in all_phrases() if phrases.unable.search(source)]
    if not unable:
        return True
    # The text says that somebody cannot do something; then only what no such text says makes a refusal.
    if any(_declines(source, phrases) for phrases in unable):
        return False
    return any(
        _TRANSLATES.search(around) or phrases.machine.search(head)
        for phrases in candidates
        for around in _around(head, phrases)
    )


def _candidates(opening: str, languages: frozenset[str] | None) -> set[Phrases]:
    openers = by_opener()
    words = _WORD.findall(opening)[:_FIRST_WORDS]
    return {
        phrases
        for word in words
        if word in openers
        for phrases in openers[word]
        if languages is None or phrases.language == "en" or phrases.language in languages
    }


def _declines(head: str, phrases: Phrases) -> bool:
    return any(
        phrases.task.search(around) or phrases.machine.search(head) for around in _around(head, phrases)
    )


def _around(head: str, phrases: Phrases) -> Iterator[str]:
    """Yield what stands round each place that says that the writer cannot: the verb may come before or after it."""
    for unable in phrases.unable.finditer(head):
        if unable.start() > _UNABLE_WITHIN:
            return
        yield head[max(unable.start() - _BEFORE, 0) : unable.end() + _AFTER]
