"""What a store can tell about itself, and the only way in which it forgets; nothing here is on a row's way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from corpusmill.errors import StoreError
from corpusmill.store.accounts import lives
from corpusmill.store.explain import NearestSoFar
from corpusmill.store.packing import unpack_digests
from corpusmill.store.protocol import Nearest, StoreStats, UsageSample
from corpusmill.store.records import invocation_of, take_up

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping


def nearest(connection: sqlite3.Connection, fields: Mapping[str, str]) -> Nearest | None:
    """Find the stored request that differs in the fewest fields, the youngest of equals."""
    shapes = {
        number: msgspec.json.decode(encoded, type=dict[str, str])
        for number, encoded in connection.execute("SELECT id, fields FROM shapes")
    }
    best = NearestSoFar(fields, shapes)
    for number, shape, names, digests in connection.execute(
        "SELECT completions.id, shape, name, field_digests FROM completions "
        "LEFT JOIN names ON names.id = field_names WHERE shape IS NOT NULL ORDER BY completions.id DESC"
    ):
        if best.see(number, shape, unpack_digests(names, digests)):
            break
    if best.number is None:
        return None
    key, facts, model = connection.execute(
        "SELECT key, facts, name FROM completions LEFT JOIN names ON names.id = model WHERE completions.id = ?",
        (best.number,),
    ).fetchone()
    (invocation,) = connection.execute(
        "SELECT name FROM names WHERE id = ?", (invocation_of(facts),)
    ).fetchone()
    return Nearest(entry=take_up(key, facts, invocation), model=model, differs=best.differs)


def usage_samples(connection: sqlite3.Connection, *, model: str | None, limit: int) -> list[UsageSample]:
    """Give the characters and tokens of the youngest entries that have both."""
    rows = connection.execute(
        "SELECT models.name, scripts.name, characters, facts ->> 2, facts ->> 3 FROM completions "
        "LEFT JOIN names AS models ON models.id = model LEFT JOIN names AS scripts ON scripts.id = script "
        "WHERE characters IS NOT NULL AND facts ->> 2 IS NOT NULL AND (? IS NULL OR models.name = ?) "
        "ORDER BY completions.id DESC LIMIT ?",
        (model, model, limit),
    ).fetchall()
    return [
        UsageSample(
            model=model,
            script=script,
            characters=characters,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
        )
        for model, script, characters, prompt_tokens, completion_tokens in rows
    ]


IDENTITIES = (
    "SELECT label FROM runs WHERE label != '' GROUP BY label ORDER BY max(first_started_at) DESC LIMIT 100"
)


def identities(connection: sqlite3.Connection) -> list[str]:
    """Name the identities of the endpoints that runs have asked, those of the latest runs first."""
    return [identity for (identity,) in connection.execute(IDENTITIES)]


def count(connection: sqlite3.Connection, size: int, now: float) -> StoreStats:
    """Count what there is at the moment `now`; `size` is that of the files, in bytes."""
    rejected, completions, oldest, newest = connection.execute(
        "SELECT coalesce(sum(rejected), 0), count(*) - coalesce(sum(rejected), 0), min(created_at), "
        "max(created_at) FROM completions"
    ).fetchone()
    by_model = connection.execute(
        "SELECT coalesce(name, ''), count(*) FROM completions LEFT JOIN names ON names.id = model "
        "WHERE NOT rejected GROUP BY 1 ORDER BY 1"
    ).fetchall()
    claims = lost = 0
    for owner, marked, number in connection.execute(
        "SELECT owner, lost, count(*) FROM claims GROUP BY owner, lost"
    ).fetchall():
        if marked or not lives(connection, owner, now):
            lost += number
        else:
            claims += number
    (runs,) = connection.execute("SELECT count(*) FROM runs").fetchone()
    return StoreStats(
        completions=completions,
        rejected=rejected,
        by_model=dict(by_model),
        size=size,
        oldest=oldest,
        newest=newest,
        claims=claims,
        lost=lost,
        runs=runs,
    )


def delete(
    connection: sqlite3.Connection, *, older_than: float | None, model: str | None, rejected_only: bool
) -> int:
    """Delete the entries that meet all conditions given, at least one, and tell how many they were."""
    conditions: list[str] = []
    values: list[object] = []
    if older_than is not None:
        conditions.append("created_at < ?")
        values.append(older_than)
    if model is not None:
        conditions.append("model = (SELECT id FROM names WHERE name = ?)")
        values.append(model)
    if rejected_only:
        conditions.append("rejected")
    if not conditions:
        raise StoreError("prune needs a condition: older_than, model or rejected_only")
    statement = f"DELETE FROM completions WHERE {' AND '.join(conditions)}"  # noqa: S608 - those above
    return connection.execute(statement, values).rowcount
