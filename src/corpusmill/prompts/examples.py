"""Examples: a few texts with their translations, which set the style and the terminology of all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from corpusmill.errors import PromptError
from corpusmill.prompts.pairs import read_pairs

if TYPE_CHECKING:
    from corpusmill.prompts.pairs import Pairs

MOST_EXAMPLES: Final = 64
"""Every request carries all examples, so that many of them are a mistake, such as a whole corpus."""


def read_examples(given: Pairs | None, *, field: str) -> tuple[tuple[str, str], ...]:
    """Return examples from a mapping, a list of pairs, or a CSV, TSV or Parquet file; none for None."""
    if given is None:
        return ()
    pairs = read_pairs(given, field=field)
    if len(pairs) > MOST_EXAMPLES:
        raise PromptError(
            f"{field} has {len(pairs)} pairs, which every request would carry; {MOST_EXAMPLES} are the most. "
            "Terms belong into a glossary, of which a request carries only what its row contains"
        )
    return pairs
