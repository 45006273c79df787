"""How findings are written down: a code, and what it is about, a bounded number of times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

MOST: Final = 5
"""Findings of one code that are written out; of the others the number is given."""

_SHOWN: Final = 60


def noted(code: str, findings: Iterable[str]) -> tuple[str, ...]:
    """Return a note for each finding, in their order, and after the fifth one that says how many more."""
    shown = [f"{code} {finding[:_SHOWN]}" for finding in findings]
    if len(shown) > MOST:
        shown[MOST:] = [f"{code} and {len(shown) - MOST} more"]
    return tuple(shown)


def difference(code: str, before: Counter[str], after: Counter[str]) -> tuple[str, ...]:
    """Return notes `code_missing …` and `code_added …` for what two counts do not share."""
    if before == after:
        return ()
    missing = (before - after).elements()
    return noted(f"{code}_missing", missing) + noted(f"{code}_added", (after - before).elements())
