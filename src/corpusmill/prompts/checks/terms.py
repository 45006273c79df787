"""Whether a glossary's target terms are there, in whatever form the target language gives them.

A word counts as there when the answer has a word that begins like it: with the first half of its letters, case
and diacritics aside, and of about its length; or a compound that contains that half, when the half has four
letters. In Celtic languages the first letter may change or take others after it (`bean`, `bhean`); in Finnic ones
short words keep one letter less (`aed`, `aias`). So a term that is reported was really not used, and one that was
replaced by a word with the same beginning is not reported. Terms in scripts without spaces, acronyms and numbers
must be there as they are, whatever follows them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from corpusmill.prompts.checks.folding import CONTINUOUS, bare, fold
from corpusmill.prompts.checks.notes import noted

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORD: Final = re.compile(r"[^\W_]+")
_CONTINUOUS: Final = re.compile(f"[{CONTINUOUS}]")
_SHORT: Final = 2
_MUTATION: Final = frozenset({"ga", "gd", "gv", "cy", "br", "kw"})
_GRADATION: Final = frozenset({"et", "fi", "se"})
_LONGER: Final = 7
_COMPOUND: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    stem: str
    exact: bool
    length: int
    mutates: bool


def term_notes(answer: str, terms: Sequence[tuple[str, str]], language: str) -> tuple[str, ...]:
    """Return `glossary_missing source→target` for each term of the input whose target is in no form in the answer."""
    if not terms:
        return ()
    folded = fold(answer)
    missing = [(source, target) for source, target in terms if fold(target) not in folded]
    if not missing:
        return ()
    words = _WORD.findall(bare(answer))
    return noted(
        "glossary_missing",
        (f"{source}→{target}" for source, target in missing if not _there(target, words, language)),
    )


def _there(target: str, words: list[str], language: str) -> bool:
    if _CONTINUOUS.search(target):
        return False
    return all(any(_is_form(word, wanted) for word in words) for wanted in _stems(target, language))


def _is_form(word: str, wanted: _Wanted) -> bool:
    stem = wanted.stem
    if wanted.exact:
        return word.startswith(stem)
    if len(stem) >= _COMPOUND and stem in word:
        return True
    if abs(len(word) - wanted.length) > _LONGER:
        return False
    return word.startswith(stem) or (wanted.mutates and _mutated(word, stem))


def _mutated(word: str, stem: str) -> bool:
    tail = stem[1:]
    return word.startswith(stem, 1) or any(word.startswith(tail, letters) for letters in (1, 2, 3))


@lru_cache(maxsize=4096)
def _stems(target: str, language: str) -> tuple[_Wanted, ...]:
    words = _WORD.findall(target)
    long = [word for word in words if len(word) > _SHORT] or words
    return tuple(_wanted(word, language) for word in long)


def _wanted(word: str, language: str) -> _Wanted:
    plain = bare(word)
    acronym = word.isupper() and word != word.lower()
    if len(word) <= _SHORT or acronym or any(sign.isdigit() for sign in word):
        return _Wanted(stem=plain, exact=True, length=len(plain), mutates=False)
    kept = (len(plain) + 1) // 2
    if language in _GRADATION and len(plain) <= _COMPOUND:
        kept -= 1
    if language in _MUTATION:
        kept = max(kept, 3)
    return _Wanted(stem=plain[:kept], exact=False, length=len(plain), mutates=language in _MUTATION)
