"""Who may ask: claims, in one statement that takes what is free and locks what is not.

The order is what makes it right. A claim is put down first, and only then it is looked whether an answer has come:
whoever answers a key removes its claim in the transaction that puts the answer, so that one of the two is seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corpusmill.store.deciding import grant
from corpusmill.store.postgres import accounts
from corpusmill.store.postgres.entries import entries_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from corpusmill.store.protocol import Claim, Release, Wanted

    Connection = psycopg.Connection[tuple[Any, ...]]

# The update changes nothing: it locks the claim that stands, and lets it be read in the same step. Keys are sorted,
# so that two transactions wait for each other in one order.
_TAKE = """
INSERT INTO claims (key, owner, lost, claimed_at)
SELECT key, %s, false, %s FROM unnest(%s::bytea[]) AS wanted (key) ORDER BY key
ON CONFLICT (key) DO UPDATE SET key = excluded.key
RETURNING key, owner, lost, (xmax = 0)
"""


def claim(connection: Connection, owner: int, wanted: Sequence[Wanted]) -> tuple[list[Claim], int]:
    """Decide and note down; give the claims, and how many of them may be paid twice."""
    now = accounts.now_of(connection)
    keys = sorted({want.key for want in wanted})
    fresh: set[bytes] = set()
    holders: dict[bytes, tuple[int, bool]] = {}
    for key, holder, lost, is_new in connection.execute(_TAKE, (owner, now, keys)):
        if is_new:
            fresh.add(key)
        else:
            holders[key] = (holder, lost)
    claims, taken = grant(
        owner,
        wanted,
        entries=entries_of(connection, keys, bodies=False),
        holders=holders,
        lives=lambda holder: accounts.lives(connection, holder, now),
    )
    again = sorted(set(taken) - fresh)
    if again:
        connection.execute(
            "UPDATE claims SET owner = %s, lost = false, claimed_at = %s WHERE key = ANY(%s)",
            (owner, now, again),
        )
    needless = sorted(fresh.difference(taken))
    if needless:
        connection.execute("DELETE FROM claims WHERE key = ANY(%s) AND owner = %s", (needless, owner))
    return claims, claims.count("granted_again")


def release(connection: Connection, owner: int, releases: Sequence[Release]) -> None:
    """Give claims up without an answer; those that may have been paid leave a mark."""
    free = sorted(release.key for release in releases if not release.possibly_paid)
    marked = sorted(release.key for release in releases if release.possibly_paid)
    if free:
        connection.execute("DELETE FROM claims WHERE key = ANY(%s) AND owner = %s", (free, owner))
    if marked:
        connection.execute(
            "UPDATE claims SET lost = true WHERE key = ANY(%s) AND owner = %s", (marked, owner)
        )
