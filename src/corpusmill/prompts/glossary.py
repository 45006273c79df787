"""A glossary: terms and what they are called in the target language. Only those that a row contains are sent.

Terms match as words, the longest first, whatever their case, their composition and the spaces between their
words; in scripts without spaces between words they match anywhere. A term that lies within a longer one
that matched there is not meant. The order of what is found is that of the text.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from corpusmill.errors import PromptError
from corpusmill.prompts.checks.aside import without_asides
from corpusmill.prompts.checks.folding import fold, tokens
from corpusmill.prompts.pairs import Pairs, read_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_TERMS: Final = 1_000_000
_BETWEEN: Final = " \x01 "


class Glossary:
    """Terms to look for. It is content: `digest` covers every pair, in their order."""

    __slots__ = ("_by_words", "_lengths", "_whole", "digest", "terms")

    def __init__(self, terms: Sequence[tuple[str, str]]) -> None:
        """Index the terms. Where two read alike the later one is an error, unless their targets agree."""
        if len(terms) > MOST_TERMS:
            raise PromptError(
                f"the glossary has {len(terms)} terms; {MOST_TERMS} are the most that is kept in memory"
            )
        self.terms = tuple(terms)
        hashed = hashlib.blake2b(digest_size=20)
        self._by_words: dict[str, tuple[str, str]] = {}
        lengths: dict[str, set[int]] = {}
        for source, target in self.terms:
            hashed.update(f"{len(source)}:{source}{len(target)}:{target}".encode("utf-8", "surrogatepass"))
            words = tokens(fold(source))
            if not words:
                raise PromptError(f"the glossary's term {source!r} has no visible character")
            known = self._by_words.setdefault(" ".join(words), (source, target))
            if known[1] != target:
                raise PromptError(
                    f"the glossary has {known[0]!r} as {known[1]!r} and {source!r} as {target!r}; "
                    "they read alike, so keep one of them"
                )
            lengths.setdefault(words[0], set()).add(len(words))
        # A term such as `name` does not stand in `{name}`; unless terms are made of such things themselves.
        self._whole = any(without_asides(source) != source for source, _ in self.terms)
        self._lengths = {first: tuple(sorted(found, reverse=True)) for first, found in lengths.items()}
        self.digest = hashed.hexdigest()

    def occurring(self, text: str) -> list[tuple[str, str]]:
        """Return the terms that a text contains, with their targets, each once, in the order of the text."""
        words = tokens(fold(text if self._whole else without_asides(text, _BETWEEN)))
        found: dict[str, tuple[str, str]] = {}
        position, end = 0, len(words)
        lengths, by_words = self._lengths, self._by_words
        while position < end:
            step = 1
            for length in lengths.get(words[position], ()):
                key = words[position] if length == 1 else " ".join(words[position : position + length])
                term = by_words.get(key)
                if term is not None:
                    found.setdefault(key, term)
                    step = length
                    break
            position += step
        return list(found.values())

    def __len__(self) -> int:
        return len(self.terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Glossary) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Glossary({len(self.terms)} terms, {self.digest[:12]})"

    def __reduce__(self) -> tuple[type[Glossary], tuple[tuple[tuple[str, str], ...]]]:
        return Glossary, (self.terms,)


def read_glossary(given: Pairs | Glossary | None, *, field: str) -> Glossary | None:
    """Return a glossary from a mapping, a list of pairs, or a CSV, TSV or Parquet file; None for None."""
    if given is None or isinstance(given, Glossary):
        return given
    return Glossary(read_pairs(given, field=field))
