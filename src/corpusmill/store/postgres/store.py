"""The store in a PostgreSQL database, for tasks that run on several machines.

What SQLite has by letting one write at a time, is had here by locks on rows: on a claim by whoever wants its key, on
a run's account by whoever spends. Answers, claims and releases are committed durably, and once, also where the server
goes away in mid-run; what is of use for a moment only has to outlive a process.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from corpusmill.errors import StoreError
from corpusmill.killpoints import reach
from corpusmill.store import liveness
from corpusmill.store.explain import NearestSoFar
from corpusmill.store.housekeeping import IDENTITIES
from corpusmill.store.packing import unpack_digests
from corpusmill.store.postgres import accounts, claims, entries
from corpusmill.store.postgres.links import Links
from corpusmill.store.protocol import Nearest, Quota, StoreStats, UsageSample
from corpusmill.store.rates import Levels, Rates, take
from corpusmill.store.records import take_up

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

    from corpusmill.policy import Budget
    from corpusmill.store.protocol import (
        Claim,
        Entry,
        Membership,
        Put,
        Release,
        Reservation,
        Spend,
        Wanted,
    )

    Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresStore:
    """A `Store` in the database at a `postgresql://` URL, in the schema `corpusmill` or in `?schema=another`.

    Its tables are made when they are not there. With `read_only` nothing is made and nothing written. Raises
    `StoreError` when the server cannot be used, `MissingExtraError` without psycopg.
    """

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self._links = Links(url, read_only=read_only)
        self._members: dict[int, tuple[Membership, int]] = {}

    def __repr__(self) -> str:
        return f"PostgresStore({self._links.shown!r})"

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, list[Entry]]:
        """Give all entries of these keys, oldest first."""
        return self._links.run(lambda connection: entries.entries_of(connection, keys))

    def join(self, run_key: str, *, label: str = "") -> Membership:
        """Register an owner for a run key."""
        invocation = str(uuid.uuid4())
        self._links.outage.be_patient()
        membership = self._links.run(
            lambda connection: accounts.join(connection, run_key=run_key, label=label, invocation=invocation),
            once=True,
        )
        self._members[membership.owner] = (membership, os.getpid())
        return membership

    def heartbeat(self, owner: int) -> None:
        """Renew the owner's lease."""

        def renew(connection: Connection) -> None:
            now = accounts.now_of(connection)
            renewed = connection.execute(
                "UPDATE owners SET lease_until = %s WHERE id = %s", (now + accounts.LEASE, owner)
            ).rowcount
            if not renewed and owner in self._members:
                # Taken for dead, as happens to a machine that slept; from now on its claims hold again.
                member, _ = self._members[owner]
                accounts.register(
                    connection, owner, run_key=member.run_key, invocation=member.invocation, now=now
                )

        self._links.run(renew, durable=False)

    def write(
        self,
        owner: int,
        *,
        puts: Sequence[Put] = (),
        releases: Sequence[Release] = (),
        wanted: Sequence[Wanted] = (),
    ) -> list[Claim]:
        """Put, release and claim, in this order and in one transaction."""
        if not (puts or releases or wanted):
            return []
        costs = [put.cost for put in puts] + [release.cost for release in releases]

        def do(connection: Connection) -> list[Claim]:
            made: list[Claim] = []
            twice = 0
            if puts:
                entries.insert(connection, owner, puts)
            if releases:
                claims.release(connection, owner, releases)
            if wanted:
                made, twice = claims.claim(connection, owner, wanted)
            if costs or twice:
                run_key = self._run_key(connection, owner)
                accounts.settle(
                    connection, owner, run_key, costs, requests=len(puts), possibly_paid_twice=twice
                )
            if puts:
                reach("store.commit")
            return made

        # A server may crash while its clients live on. Without their claims nobody would count the answers that are
        # under way when they are paid for again; without their releases they would wait for themselves.
        made = self._links.run(do, once=True)
        if puts:
            reach("store.committed")
        return made

    def leave(self, owner: int) -> None:
        """Remove the owner and the claims that it holds; the marks of lost attempts stay."""
        self.abandon(owner)

        def remove(connection: Connection) -> None:
            connection.execute("DELETE FROM claims WHERE owner = %s AND NOT lost", (owner,))
            connection.execute("DELETE FROM owners WHERE id = %s", (owner,))

        self._links.run(remove, durable=False)

    def abandon(self, owner: int) -> None:
        """Stop being the owner without a word; what it was asking counts as lost, as if its process had died."""
        member, _ = self._members.pop(owner, (None, 0))
        if member is not None:
            liveness.here.discard(member.invocation)

    def finish(self, run_key: str) -> None:
        """Close the account of a run key."""
        self._links.run(
            lambda connection: connection.execute(
                "UPDATE runs SET finished_at = extract(epoch FROM clock_timestamp()) WHERE run_key = %s",
                (run_key,),
            ),
            once=True,
        )

    def spend(self, run_key: str) -> Spend:
        """Tell what a run key has spent; zero for an unknown one."""
        return self._links.run(lambda connection: accounts.spend_of(connection, run_key))

    def reserve(self, owner: int, *, tokens: int, usd: float, budget: Budget) -> Reservation:
        """Set so much of the budget aside until a `Cost` gives it back; the dead hold nothing."""
        return self._links.run(
            lambda connection: accounts.reserve(
                connection,
                owner,
                self._run_key(connection, owner),
                tokens=tokens,
                usd=usd,
                budget=budget,
            ),
            durable=False,
            once=True,
        )

    def quota(self, identity: str) -> Quota | None:
        """Tell whether a quota of this endpoint is used up now."""
        row = self._links.run(
            lambda connection: connection.execute(
                "SELECT resets_at, reason FROM quotas "
                "WHERE identity = %s AND resets_at > extract(epoch FROM clock_timestamp())",
                (accounts.clean(identity),),
            ).fetchone()
        )
        return None if row is None else Quota(identity=identity, resets_at=row[0], reason=row[1])

    def set_quota(self, identity: str, *, resets_at: float, reason: str) -> None:
        """Note that a quota is used up, for every process that shares the store."""
        self._links.run(
            lambda connection: connection.execute(
                "INSERT INTO quotas (identity, resets_at, reason) VALUES (%s, %s, %s) ON CONFLICT (identity) "
                "DO UPDATE SET resets_at = excluded.resets_at, reason = excluded.reason",
                (accounts.clean(identity), resets_at, accounts.clean(reason)),
            )
        )

    def clear_quota(self, identity: str) -> None:
        """Forget it: the endpoint has answered."""
        self._links.run(
            lambda connection: connection.execute(
                "DELETE FROM quotas WHERE identity = %s", (accounts.clean(identity),)
            ),
            durable=False,
        )

    def take(self, identity: str, *, rates: Rates, tokens: float) -> float:
        """Take one request of so many tokens from what all processes may send, or tell how long to wait."""
        name = accounts.clean(identity)

        def try_once(connection: Connection) -> float:
            # The row is there before it is locked, so that two who are first cannot both take all there is.
            connection.execute(
                "INSERT INTO rates (identity, requests, tokens, updated) VALUES (%s, 0, 0, -1) "
                "ON CONFLICT DO NOTHING",
                (name,),
            )
            requests, left, updated = accounts.fetched(
                connection,
                "SELECT requests, tokens, updated FROM rates WHERE identity = %s FOR UPDATE",
                (name,),
            )
            levels = None if updated < 0 else Levels(requests=requests, tokens=left, updated=updated)
            after, wait = take(levels, rates, tokens=tokens, now=accounts.now_of(connection))
            if after is not None:
                connection.execute(
                    "UPDATE rates SET requests = %s, tokens = %s, updated = %s WHERE identity = %s",
                    (after.requests, after.tokens, after.updated, name),
                )
            return wait

        return self._links.run(try_once, durable=False)

    def put_fields(self, shape: str, fields: Mapping[str, str]) -> None:
        """Keep the digests that many requests share, once."""
        encoded = msgspec.json.encode(dict(fields)).decode("utf-8")
        self._links.run(
            lambda connection: connection.execute(
                "INSERT INTO shapes (name, fields) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                (accounts.clean(shape), encoded),
            ),
            durable=False,
        )

    def nearest(self, fields: Mapping[str, str]) -> Nearest | None:
        """Find the stored request that differs in the fewest fields; reads the whole store if it must."""
        return self._links.run(lambda connection: _nearest(connection, fields))

    def identities(self) -> list[str]:
        """Name the identities of the endpoints that runs have asked, those of the latest runs first."""
        rows = self._links.run(lambda connection: connection.execute(IDENTITIES).fetchall())
        return [identity for (identity,) in rows]

    def usage_samples(self, *, model: str | None = None, limit: int = 10_000) -> list[UsageSample]:
        """Give what is known of characters and tokens, the newest first, of one model or of all."""
        rows = self._links.run(
            lambda connection: connection.execute(
                "SELECT model, script, characters, prompt_tokens, completion_tokens FROM completions "
                "WHERE characters IS NOT NULL AND prompt_tokens IS NOT NULL "
                "AND (%s::text IS NULL OR model = %s) ORDER BY id DESC LIMIT %s",
                (accounts.clean(model), accounts.clean(model), limit),
            ).fetchall()
        )
        names = ("model", "script", "characters", "prompt_tokens", "completion_tokens")
        return [UsageSample(**dict(zip(names, row, strict=True))) for row in rows]

    def stats(self) -> StoreStats:
        """Count."""
        return self._links.run(_count)

    def prune(
        self, *, older_than: float | None = None, model: str | None = None, rejected_only: bool = False
    ) -> int:
        """Delete the entries that meet all conditions given, at least one, and tell how many they were."""
        conditions: list[str] = []
        values: list[object] = []
        if older_than is not None:
            conditions.append("created_at < %s")
            values.append(older_than)
        if model is not None:
            conditions.append("model = %s")
            values.append(accounts.clean(model))
        if rejected_only:
            conditions.append("rejected")
        if not conditions:
            raise StoreError("prune needs a condition: older_than, model or rejected_only")
        statement = f"DELETE FROM completions WHERE {' AND '.join(conditions)}"  # noqa: S608 - those above
        return self._links.run(
            lambda connection: connection.execute(statement.encode(), values).rowcount, once=True
        )

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Raise `StoreError`: the server's own tools copy it, consistently and while it is in use."""
        raise StoreError(
            f"store {self._links.shown} lies on a server and is not copied to {os.fspath(path)}: use "
            f"pg_dump --schema={self._links.schema}"
        )

    def hurry(self) -> None:
        """Wait for a server that is away for no more than a few seconds from now on; `join` is patient again."""
        self._links.outage.hurry()

    def waiting(self) -> str | None:
        """Say that the server is waited for, and how long still; None when it is not."""
        return self._links.outage.told()

    def close(self) -> None:
        """Let go of everything. Owners that joined through this object leave."""
        try:
            for owner, (_, process) in list(self._members.items()):
                # A child of a fork knows its parent's owners, and must leave them alone.
                if process == os.getpid():
                    self.leave(owner)
        finally:
            self._links.close()

    def _run_key(self, connection: Connection, owner: int) -> str:
        # An owner that was taken for dead while its machine slept still has an account.
        if owner in self._members:
            return self._members[owner][0].run_key
        return accounts.run_key_of(connection, owner)


def _nearest(connection: Connection, fields: Mapping[str, str]) -> Nearest | None:
    numbers: dict[str, int] = {}
    shapes: dict[int, dict[str, str]] = {}
    for number, (name, encoded) in enumerate(connection.execute("SELECT name, fields FROM shapes")):
        numbers[name] = number
        shapes[number] = msgspec.json.decode(encoded, type=dict[str, str])
    best = NearestSoFar(fields, shapes)
    with connection.cursor(name="nearest") as cursor:
        cursor.itersize = 2000
        cursor.execute(
            "SELECT id, shape, field_names, field_digests FROM completions WHERE shape IS NOT NULL ORDER BY id DESC"
        )
        for number, shape, names, digests in cursor:
            if best.see(number, numbers.get(shape, -1), unpack_digests(names, digests)):
                break
    if best.number is None:
        return None
    key, facts, invocation, model = accounts.fetched(
        connection, "SELECT key, facts, invocation, model FROM completions WHERE id = %s", (best.number,)
    )
    return Nearest(entry=take_up(key, facts, invocation), model=model, differs=best.differs)


def _count(connection: Connection) -> StoreStats:
    rejected, completions, oldest, newest = accounts.fetched(
        connection,
        "SELECT count(*) FILTER (WHERE rejected), count(*) FILTER (WHERE NOT rejected), min(created_at), "
        "max(created_at) FROM completions",
    )
    by_model = connection.execute(
        "SELECT coalesce(model, ''), count(*) FROM completions WHERE NOT rejected GROUP BY 1 ORDER BY 1"
    ).fetchall()
    now = accounts.now_of(connection)
    held = lost = 0
    for owner, marked, number in connection.execute(
        "SELECT owner, lost, count(*) FROM claims GROUP BY owner, lost"
    ).fetchall():
        if marked or not accounts.lives(connection, owner, now):
            lost += number
        else:
            held += number
    (runs,) = accounts.fetched(connection, "SELECT count(*) FROM runs")
    (size,) = accounts.fetched(connection, "SELECT pg_total_relation_size('completions')")
    return StoreStats(
        completions=completions,
        rejected=rejected,
        by_model=dict(by_model),
        size=size,
        oldest=oldest,
        newest=newest,
        claims=held,
        lost=lost,
        runs=runs,
    )
