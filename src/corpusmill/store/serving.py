"""Which stored answer serves which request: the ceiling rule, as pure functions.

A ceiling is not part of a request key, so the answers of a key may have been asked under several. An answer
that ended by itself is the answer under any ceiling that it fits in. One that was cut is the answer under the
ceilings that would have cut it too; where nobody stated a ceiling, what cut it is unknown, and it is no
answer to a request that states one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.exchange import ending_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corpusmill.store.protocol import Entry


def was_cut(entry: Entry) -> bool:
    """Tell whether a ceiling, or the end of the context, cut the answer."""
    return ending_of(entry.finish_reason) == "cut"


def serves(entry: Entry, *, ceiling: int | None, not_before: float | None = None) -> bool:
    """Tell whether an entry is the answer to a request of its key that states this ceiling, or None.

    With `not_before` (Unix seconds) only what was answered then or later serves.
    """
    if entry.finish_reason == "stop" and ceiling is None and not_before is None:
        return entry.kind == "completion"  # what nearly every look-up of a replay comes to
    if entry.kind != "completion":
        return False
    if not_before is not None and entry.created_at < not_before:
        return False
    if was_cut(entry):
        if entry.ceiling is None:
            return ceiling is None
        return ceiling is not None and ceiling <= entry.ceiling
    if ceiling is None:
        return True
    tokens = entry.completion_tokens
    if tokens is not None and entry.choices == 1 and ending_of(entry.finish_reason) != "unknown":
        return ceiling >= tokens
    # Without usage, with several choices (whose usage is their sum), or when it is not certain how it ended,
    # only the ceiling that it was asked under is known to be enough.
    return entry.ceiling is not None and ceiling >= entry.ceiling


def choose(entries: Sequence[Entry], ceiling: int | None, not_before: float | None = None) -> Entry | None:
    """Choose the entry that serves a request, None when none does.

    `entries` are those of one key, oldest first. One that was not cut comes before one that was, the youngest
    before the older ones: who asked again wants to see the new answer.
    """
    if len(entries) == 1:
        only = entries[0]
        return only if serves(only, ceiling=ceiling, not_before=not_before) else None
    cut = None
    for entry in reversed(entries):
        if serves(entry, ceiling=ceiling, not_before=not_before):
            if not was_cut(entry):
                return entry
            if cut is None:
                cut = entry
    return cut
