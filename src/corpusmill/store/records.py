"""How an entry lies in the table of completions, and how groups of them are read.

A lookup gives one row for a whole group of keys: the keys end to end, the bodies end to end, and a JSON list of the
facts about each. SQLite then runs once for the group without the interpreter's lock; row by row, a thread that
reads would wait for a busy event loop as many times as it has rows.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import msgspec

from corpusmill.store.packing import pack, text, unpack, whole
from corpusmill.store.protocol import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

KEY_BYTES = 20

GROUP_KEYS = 1_024
"""Keys that are looked up at once."""


class Facts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is kept about an entry beside its body: a JSON array, in this order.

    `length` counts the bytes of the body as it lies in the table, `unpacked` those that it has when it is
    unpacked, None when it is not packed. `invocation` is the number of a name.
    """

    ceiling: int | None
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    choices: int
    created_at: float
    invocation: int
    rejected: bool
    length: int
    unpacked: int | None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Facts]).decode
_decode_one = msgspec.json.Decoder(Facts).decode


def lay_down(entry: Entry, invocation: int) -> tuple[str, bytes]:
    """Give the facts and the body as they lie in the table."""
    body, unpacked = pack(entry.body)
    facts = Facts(
        whole(entry.ceiling),
        text(entry.finish_reason),
        whole(entry.prompt_tokens),
        whole(entry.completion_tokens),
        whole(entry.choices) or 1,
        entry.created_at,
        invocation,
        entry.kind == "rejected",
        len(body),
        unpacked,
    )
    return _encode(facts).decode("utf-8"), body


def take_up(key: bytes, facts: str, invocation: str) -> Entry:
    """Give an entry without its body."""
    return _entry(key, b"", _decode_one(facts), invocation)


def take_up_whole(key: bytes, facts: str, body: bytes, invocation: str) -> Entry:
    """Give an entry with its body, from the body as it lies in the table."""
    decoded = _decode_one(facts)
    if decoded.unpacked is not None:
        body = unpack(body, decoded.unpacked)
    return _entry(key, body, decoded, invocation)


def invocation_of(facts: str) -> int:
    """Give the number of the invocation that paid for an entry."""
    return _decode_one(facts).invocation


def _lookup(columns: str, table: str) -> str:
    # The keys come end to end in one value, and SQLite cuts it up by itself. CROSS JOIN makes it walk the keys and
    # seek each one in the index, which holds the rows of one key in the order in which they were put.
    key = f"substr(?1, {{}}, {KEY_BYTES})"
    return (
        f"WITH RECURSIVE wanted (place, wanted_key) AS (SELECT 1, {key.format(1)} UNION ALL "  # noqa: S608 - our own names
        f"SELECT place + {KEY_BYTES}, {key.format(f'place + {KEY_BYTES}')} FROM wanted "
        f"WHERE place + {KEY_BYTES} < length(?1)) "
        f"SELECT {columns} FROM wanted CROSS JOIN {table} ON key = wanted_key"
    )


_FACTS = "'[' || group_concat(facts) || ']'"
_BY_KEY = "completions INDEXED BY completions_by_key"
_KEYS = "CAST(group_concat(key, '') AS BLOB)"
_ENTRIES = _lookup(f"{_KEYS}, CAST(group_concat(body, '') AS BLOB), {_FACTS}", _BY_KEY)
_FACTS_ONLY = _lookup(f"{_KEYS}, {_FACTS}", _BY_KEY)
_CLAIMS = _lookup("key, owner, lost", "claims")


def entries_of(
    connection: sqlite3.Connection, keys: Sequence[bytes], names: Mapping[int, str]
) -> dict[bytes, list[Entry]]:
    """Give the entries of these keys, oldest first in each; `names` maps the number of an invocation to it."""
    found: dict[bytes, list[Entry]] = {}
    for group in _groups(keys):
        for laid, bodies, encoded in _read(connection, group):
            end = 0
            for key, facts in zip(_keys_of(laid, group), _decode(encoded), strict=True):
                start, end = end, end + facts.length
                body = bodies[start:end]
                if facts.unpacked is not None:
                    body = unpack(body, facts.unpacked)
                entry = _entry(key, body, facts, names[facts.invocation])
                if key in found:
                    found[key].append(entry)
                else:
                    found[key] = [entry]
    return found


def facts_of(connection: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, list[Entry]]:
    """Give the entries of these keys, oldest first in each, without bodies and invocations."""
    found: dict[bytes, list[Entry]] = {}
    for group in _groups(keys):
        laid, encoded = connection.execute(_FACTS_ONLY, (b"".join(group),)).fetchone()
        if encoded is not None:
            for position, facts in enumerate(_decode(encoded)):
                key = laid[position * KEY_BYTES : (position + 1) * KEY_BYTES]
                found.setdefault(key, []).append(_entry(key, b"", facts, ""))
    return found


def claims_of(connection: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, tuple[int, bool]]:
    """Give the owner of each claim on these keys, and whether it is the mark of a lost attempt."""
    return {
        key: (owner, bool(lost))
        for group in _groups(keys)
        for key, owner, lost in connection.execute(_CLAIMS, (b"".join(group),))
    }


def _keys_of(laid: bytes, group: Sequence[bytes]) -> Sequence[bytes]:
    if laid == b"".join(group):
        return group  # one entry for each key, as nearly always in a replay
    return [laid[at : at + KEY_BYTES] for at in range(0, len(laid), KEY_BYTES)]


def _read(connection: sqlite3.Connection, group: Sequence[bytes]) -> Iterator[tuple[bytes, bytes, str]]:
    try:
        laid, bodies, encoded = connection.execute(_ENTRIES, (b"".join(group),)).fetchone()
    except sqlite3.DataError:
        # More bytes than SQLite lets a value have, about a gigabyte.
        if len(group) == 1:
            raise
        for key in group:
            yield from _read(connection, [key])
        return
    if encoded is not None:
        yield laid, bodies, encoded


def _entry(key: bytes, body: bytes, facts: Facts, invocation: str) -> Entry:
    return Entry(
        key,
        body,
        facts.ceiling,
        facts.finish_reason,
        facts.prompt_tokens,
        facts.completion_tokens,
        facts.choices,
        facts.created_at,
        invocation,
        "rejected" if facts.rejected else "completion",
    )


def _groups(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    distinct = list(dict.fromkeys(keys))
    for start in range(0, len(distinct), GROUP_KEYS):
        yield distinct[start : start + GROUP_KEYS]
