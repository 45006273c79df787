"""Where a request stands on the ladder of its ceilings, told from what is stored: pure.

An answer that a ceiling cut is asked again under a higher one, and the key then holds both. Whoever comes later has
to find the one that ended, or to go on where the ladder was left, and not to stop at the first that was cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from corpusmill.exchange import read_completion
from corpusmill.rows.judge import judge_completion, next_ceiling
from corpusmill.store.serving import choose, serves, was_cut

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from corpusmill.outcome import Status
    from corpusmill.rows.render import Asked
    from corpusmill.store.protocol import Entry


@dataclass(frozen=True, slots=True)
class Rung:
    """The entry that answers, None when there is none; the ceiling to ask under, and how often it has been raised."""

    entry: Entry | None
    ceiling: int | None
    raised: int = 0


def climb(
    entries: Sequence[Entry],
    *,
    ceiling: int | None,
    highest: int | None,
    context: int | None,
    not_before: float | None = None,
) -> Rung:
    """Go up from the ceiling that a request states as far as the stored answers of its key lead."""
    entry, raised = _lowest(entries, ceiling, not_before), 0
    while entry is not None and highest is not None and was_cut(entry):
        following = next_ceiling(
            read_completion(entry.body), ceiling=ceiling, highest=highest, context=context, raised=raised
        )
        if following is None:
            break
        ceiling, raised = following, raised + 1
        entry = _lowest(entries, ceiling, not_before)
    return Rung(entry, ceiling, raised)


def stored_answer(
    entries: Sequence[Entry],
    asked: Asked,
    row: int,
    *,
    context: int | None,
    not_before: float | None = None,
    refresh: Collection[Status] | None = None,
) -> Rung:
    """Find the stored answer that a run takes for a row of what is asked, or the rung that it asks under.

    `entries` are those of the row's key. Only answers given at `not_before` (Unix seconds) or later count; with
    `refresh` this holds for those alone that amount to one of its statuses.
    """
    ceiling = asked.ceilings[row]
    rung = climb(
        entries,
        ceiling=ceiling,
        highest=asked.prompt.escalate_to,
        context=context,
        not_before=None if refresh else not_before,
    )
    entry = rung.entry
    if entry is None or not refresh or not_before is None or entry.created_at >= not_before:
        return rung
    status = judge_completion(asked.prompt, asked.values[row], read_completion(entry.body)).status
    return Rung(None, ceiling) if status in refresh else rung


def _lowest(entries: Sequence[Entry], ceiling: int | None, not_before: float | None) -> Entry | None:
    """Choose the entry that serves; of those that were cut the one that was cut first, so that no rung is left out."""
    entry = choose(entries, ceiling, not_before)
    if entry is None or len(entries) == 1 or not was_cut(entry):
        return entry
    serving = [one for one in entries if serves(one, ceiling=ceiling, not_before=not_before)]
    return min(reversed(serving), key=lambda one: one.ceiling or 0)
