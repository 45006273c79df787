"""What the store has for the rows of a chunk: its entries become answers, pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.engine.ladder import stored_answer
from corpusmill.exchange import read_completion
from corpusmill.rows.judge import Answer
from corpusmill.store.serving import serves

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corpusmill.engine.asking import Terms
    from corpusmill.engine.pages import OpenChunk
    from corpusmill.outcome import Origin
    from corpusmill.store.protocol import Entry


def answer_of(entry: Entry, invocation: str, notes: tuple[str, ...] = ()) -> Answer:
    """Make an answer of a stored one; what `invocation` itself has put is a repetition within its run."""
    origin: Origin = "deduplicated" if entry.invocation == invocation else "cached"
    return Answer(read_completion(entry.body), None, None, origin, notes=notes)


def stored_answers(
    chunk: OpenChunk,
    position: int,
    found: Mapping[bytes, list[Entry]],
    *,
    terms: Terms,
    invocation: str,
) -> list[Answer | None]:
    """Give the answers of one prompt, None for the rows that have to be asked or that ask nothing.

    `found` are the entries by key, `invocation` is the run that they are for. Where stored answers lead a request up
    the ladder of its ceilings, the rung goes into `chunk.rungs`.
    """
    asked = chunk.asked[position]
    of_any_age = terms.not_before is None
    answers: list[Answer | None] = []
    add = answers.append
    for row, (key, ceiling) in enumerate(zip(asked.keys, asked.ceilings, strict=True)):
        entries = None if key is None else found.get(key)
        if entries is None:
            add(None)
            continue
        entry = entries[0]
        if (
            of_any_age
            and entry.finish_reason == "stop"
            and len(entries) == 1
            and serves(entry, ceiling=ceiling)
        ):
            # What nearly every row of a replay comes to: the one entry serves, and there is no ladder to go up.
            add(answer_of(entry, invocation))
        else:
            add(_answer(chunk, position, row, entries, terms=terms, invocation=invocation))
    return answers


def _answer(
    chunk: OpenChunk,
    position: int,
    row: int,
    entries: list[Entry],
    *,
    terms: Terms,
    invocation: str,
) -> Answer | None:
    rung = stored_answer(
        entries,
        chunk.asked[position],
        row,
        context=terms.context_tokens,
        not_before=terms.not_before,
        refresh=terms.refresh,
    )
    entry = rung.entry
    if entry is None:
        if rung.raised:
            chunk.rungs[position, row] = rung
        return None
    notes = (f"ceiling_raised {rung.ceiling}",) if rung.raised else ()
    return answer_of(entry, invocation, notes)
