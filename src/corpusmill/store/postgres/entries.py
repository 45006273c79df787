"""How an entry lies in the table of completions, and how it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corpusmill.store import records
from corpusmill.store.packing import pack_digests, whole
from corpusmill.store.postgres.accounts import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from corpusmill.store.protocol import Entry, Put

    Connection = psycopg.Connection[tuple[Any, ...]]

GROUP = 1024
"""Keys that are looked up at a time."""

_COLUMNS = (
    "key, created_at, rejected, invocation, facts, model, characters, script, shape, field_names, field_digests, "
    "prompt_tokens, completion_tokens, body"
)
_INSERT = f"INSERT INTO completions ({_COLUMNS}) VALUES ({', '.join(['%s'] * 14)})"  # noqa: S608 - our names


def insert(connection: Connection, owner: int, puts: Sequence[Put]) -> None:
    """Put answers, and drop the claims that they settle."""
    with connection.cursor() as cursor:
        cursor.executemany(_INSERT, [_laid(put) for put in puts])
    settled = sorted({put.entry.key for put in puts if not put.keeps_claim})
    if settled:
        # The mark of a lost attempt goes too: the key has its answer, and asking for another is another request.
        connection.execute(
            "DELETE FROM claims WHERE key = ANY(%s) AND (owner = %s OR lost)", (settled, owner)
        )


def _laid(put: Put) -> tuple[Any, ...]:
    entry = put.entry
    facts, body = records.lay_down(entry, 0)
    names, digests = pack_digests(put.fields) if put.fields else (None, None)
    return (
        entry.key,
        entry.created_at,
        entry.kind == "rejected",
        clean(entry.invocation) or "",
        facts,
        clean(put.model),
        whole(put.characters),
        clean(put.script),
        clean(put.shape),
        clean(names),
        digests,
        whole(entry.prompt_tokens),
        whole(entry.completion_tokens),
        body,
    )


def entries_of(
    connection: Connection, keys: Sequence[bytes], *, bodies: bool = True
) -> dict[bytes, list[Entry]]:
    """Give the entries of these keys, oldest first in each; without `bodies` these are empty."""
    found: dict[bytes, list[Entry]] = {}
    distinct = list(dict.fromkeys(keys))
    body = "body" if bodies else "''::bytea"
    query = f"SELECT key, invocation, facts, {body} FROM completions WHERE key = ANY(%s) ORDER BY id"  # noqa: S608
    for start in range(0, len(distinct), GROUP):
        group = distinct[start : start + GROUP]
        for key, invocation, facts, laid in connection.execute(query.encode(), (group,), binary=True):
            entry = (
                records.take_up_whole(key, facts, laid, invocation)
                if bodies
                else records.take_up(key, facts, invocation)
            )
            found.setdefault(key, []).append(entry)
    return found
