"""The store in one SQLite file, shared by all processes of a machine.

Writes are transactions that take the write lock at their start, so that what they read cannot change before
they commit. Answers are committed with an fsync; claims alone are not: they have to outlive a process, not a
power cut, after which no request is in flight anyway.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil

from corpusmill.errors import StoreError
from corpusmill.killpoints import reach
from corpusmill.store import accounts, housekeeping, liveness, records
from corpusmill.store.connections import Connections, explained
from corpusmill.store.deciding import grant
from corpusmill.store.filesystems import refuse_network
from corpusmill.store.liveness import LEASE
from corpusmill.store.names import Names
from corpusmill.store.packing import pack_digests, text, whole
from corpusmill.store.protocol import Quota
from corpusmill.store.rates import Levels, take

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from corpusmill.policy import Budget
    from corpusmill.store.filesystems import Mount
    from corpusmill.store.protocol import (
        Claim,
        Entry,
        Membership,
        Nearest,
        Put,
        Release,
        Reservation,
        Spend,
        StoreStats,
        UsageSample,
        Wanted,
    )
    from corpusmill.store.rates import Rates

_INSERT = (
    "INSERT INTO completions (key, created_at, rejected, facts, model, characters, script, shape, field_names, "
    "field_digests, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_CLAIM = (
    "INSERT INTO claims (key, owner, lost, claimed_at) VALUES (?, ?, 0, ?) ON CONFLICT (key) DO UPDATE SET "
    "owner = excluded.owner, lost = 0, claimed_at = excluded.claimed_at"
)


def _mounted() -> Iterable[Mount]:
    return psutil.disk_partitions(all=True)


class SQLiteStore:
    """A `Store` in the file at `path`, which is made with its folder when it does not exist.

    `clock` tells the time in Unix seconds; `mounts` lists the mounted file systems as psutil does. With
    `read_only` nothing is made and nothing written; a missing file is an error. Raises `StoreError`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        clock: Callable[[], float] = time.time,
        mounts: Callable[[], Iterable[Mount]] = _mounted,
    ) -> None:
        self.path = Path(path).absolute()
        self._clock = clock
        self._names = Names()
        self._shapes: dict[str, int] = {}
        self._members: dict[int, tuple[Membership, int]] = {}
        _check_place(self.path, mounts, read_only=read_only)
        self._connections = Connections(self.path, read_only=read_only)
        try:
            with self._connections.reading() as connection:
                self._names.learn(connection)
        except BaseException:
            self._connections.close()
            raise

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r})"

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, list[Entry]]:
        """Give all entries of these keys, oldest first."""
        with self._connections.reading() as connection:
            try:
                return records.entries_of(connection, keys, self._names)
            except KeyError:
                # Somebody has joined and put since; names are never taken back.
                self._names.learn(connection)
                return records.entries_of(connection, keys, self._names)

    def write(
        self,
        owner: int,
        *,
        puts: Sequence[Put] = (),
        releases: Sequence[Release] = (),
        wanted: Sequence[Wanted] = (),
    ) -> list[Claim]:
        """Put, release and claim, in this order and in one transaction."""
        claims: list[Claim] = []
        twice = 0
        if not (puts or releases or wanted):
            return claims
        with self._connections.writing(durable=bool(puts), undo=self._forget) as connection:
            if puts:
                self._put(connection, owner, puts)
            if releases:
                _release(connection, owner, releases)
            if wanted:
                claims, twice = _claim(connection, owner, wanted, self._clock())
            costs = [put.cost for put in puts] + [release.cost for release in releases]
            if costs or twice:
                run_key = self._run_key(connection, owner)
                accounts.settle(
                    connection, owner, run_key, costs, requests=len(puts), possibly_paid_twice=twice
                )
            if puts:
                reach("store.commit")
        if puts:
            reach("store.committed")
        return claims

    def join(self, run_key: str, *, label: str = "") -> Membership:
        """Register an owner for a run key."""
        with self._connections.writing(durable=False) as connection:
            membership = accounts.join(
                connection, run_key=run_key, label=label, invocation=str(uuid.uuid4()), now=self._clock()
            )
        self._members[membership.owner] = (membership, os.getpid())
        return membership

    def heartbeat(self, owner: int) -> None:
        """Renew the owner's lease."""
        now = self._clock()
        with self._connections.writing(durable=False) as connection:
            renewed = connection.execute(
                "UPDATE owners SET lease_until = ? WHERE id = ?", (now + LEASE, owner)
            ).rowcount
            if not renewed and owner in self._members:
                # Taken for dead, as happens to a machine that slept; from now on its claims hold again.
                member, _ = self._members[owner]
                accounts.register(
                    connection, owner, run_key=member.run_key, invocation=member.invocation, now=now
                )

    def leave(self, owner: int) -> None:
        """Remove the owner and the claims that it holds; the marks of lost attempts stay."""
        self.abandon(owner)
        with self._connections.writing(durable=False) as connection:
            connection.execute("DELETE FROM claims WHERE owner = ? AND NOT lost", (owner,))
            connection.execute("DELETE FROM owners WHERE id = ?", (owner,))

    def abandon(self, owner: int) -> None:
        """Stop being the owner without a word; what it was asking counts as lost, as if its process had died."""
        member, _ = self._members.pop(owner, (None, 0))
        if member is not None:
            liveness.here.discard(member.invocation)

    def finish(self, run_key: str) -> None:
        """Close the account of a run key."""
        with self._connections.writing() as connection:
            connection.execute("UPDATE runs SET finished_at = ? WHERE run_key = ?", (self._clock(), run_key))

    def spend(self, run_key: str) -> Spend:
        """Tell what a run key has spent; zero for an unknown one."""
        with self._connections.reading() as connection:
            return accounts.spend_of(connection, run_key)

    def reserve(self, owner: int, *, tokens: int, usd: float, budget: Budget) -> Reservation:
        """Set so much of the budget aside until a `Cost` gives it back; the dead hold nothing."""
        with self._connections.writing(durable=False) as connection:
            return accounts.reserve(
                connection,
                owner,
                self._run_key(connection, owner),
                tokens=tokens,
                usd=usd,
                budget=budget,
                now=self._clock(),
            )

    def quota(self, identity: str) -> Quota | None:
        """Tell whether a quota of this endpoint is used up now."""
        with self._connections.reading() as connection:
            row = connection.execute(
                "SELECT resets_at, reason FROM quotas WHERE identity = ? AND resets_at > ?",
                (identity, self._clock()),
            ).fetchone()
        return None if row is None else Quota(identity=identity, resets_at=row[0], reason=row[1])

    def set_quota(self, identity: str, *, resets_at: float, reason: str) -> None:
        """Note that a quota is used up, for every process that shares the store."""
        with self._connections.writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO quotas (identity, resets_at, reason) VALUES (?, ?, ?)",
                (identity, resets_at, text(reason)),
            )

    def clear_quota(self, identity: str) -> None:
        """Forget it: the endpoint has answered."""
        with self._connections.writing(durable=False) as connection:
            connection.execute("DELETE FROM quotas WHERE identity = ?", (identity,))

    def take(self, identity: str, *, rates: Rates, tokens: float) -> float:
        """Take one request of so many tokens from what all processes may send, or tell how long to wait."""
        with self._connections.writing(durable=False) as connection:
            row = connection.execute(
                "SELECT requests, tokens, updated FROM rates WHERE identity = ?", (identity,)
            ).fetchone()
            levels = None if row is None else Levels(requests=row[0], tokens=row[1], updated=row[2])
            after, wait = take(levels, rates, tokens=tokens, now=self._clock())
            if after is not None:
                connection.execute(
                    "INSERT OR REPLACE INTO rates (identity, requests, tokens, updated) VALUES (?, ?, ?, ?)",
                    (identity, after.requests, after.tokens, after.updated),
                )
        return wait

    def put_fields(self, shape: str, fields: Mapping[str, str]) -> None:
        """Keep the digests that many requests share, once."""
        with self._connections.writing(durable=False) as connection:
            connection.execute(
                "INSERT INTO shapes (name, fields) VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET fields = excluded.fields",
                (shape, msgspec.json.encode(dict(fields)).decode("utf-8")),
            )

    def nearest(self, fields: Mapping[str, str]) -> Nearest | None:
        """Find the stored request that differs in the fewest fields; reads the whole store if it must."""
        with self._connections.reading() as connection:
            return housekeeping.nearest(connection, fields)

    def identities(self) -> list[str]:
        """Name the identities of the endpoints that runs have asked, those of the latest runs first."""
        with self._connections.reading() as connection:
            return housekeeping.identities(connection)

    def usage_samples(self, *, model: str | None = None, limit: int = 10_000) -> list[UsageSample]:
        """Give what is known of characters and tokens, the newest first, of one model or of all."""
        with self._connections.reading() as connection:
            return housekeeping.usage_samples(connection, model=model, limit=limit)

    def stats(self) -> StoreStats:
        """Count."""
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        with self._connections.reading() as connection:
            size = sum(file.stat().st_size for file in files if file.exists())
            return housekeeping.count(connection, size, self._clock())

    def prune(
        self, *, older_than: float | None = None, model: str | None = None, rejected_only: bool = False
    ) -> int:
        """Delete the entries that meet all conditions given, at least one, and tell how many they were.

        The file shrinks, for which as much free space is needed as it will take.
        """
        with self._connections.writing() as connection:
            deleted = housekeeping.delete(
                connection, older_than=older_than, model=model, rejected_only=rejected_only
            )
        if deleted:
            with self._connections.reading() as connection:
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return deleted

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Write a consistent copy, one file that needs no other, while the store may be in use.

        Raises `StoreError` when `path` exists.
        """
        target = Path(path).absolute()
        if target.exists():
            raise StoreError(f"{target} exists: name a new file for the copy of the store")
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
        try:
            with self._connections.reading() as connection, explained(half):
                connection.execute("VACUUM INTO ?", (str(half),))
            half.replace(target)
        finally:
            half.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of everything; the last one to close leaves one file that holds everything."""
        try:
            for owner, (_, process) in list(self._members.items()):
                # A child of a fork knows its parent's owners, and must leave them alone.
                if process == os.getpid():
                    self.leave(owner)
        finally:
            self._connections.close()

    def _put(self, connection: sqlite3.Connection, owner: int, puts: Sequence[Put]) -> None:
        number = self._names.number
        rows = []
        for put in puts:
            entry = put.entry
            facts, body = records.lay_down(entry, number(connection, entry.invocation) or 0)
            names, digests = pack_digests(put.fields) if put.fields else (None, None)
            rows.append(
                (
                    entry.key,
                    entry.created_at,
                    entry.kind == "rejected",
                    facts,
                    number(connection, put.model),
                    whole(put.characters),
                    number(connection, put.script),
                    self._shape(connection, put.shape),
                    number(connection, names),
                    digests,
                    body,
                )
            )
        connection.executemany(_INSERT, rows)
        # The mark of a lost attempt goes too: the key has its answer, and asking for another is another
        # request.
        connection.executemany(
            "DELETE FROM claims WHERE key = ? AND (owner = ? OR lost)",
            [(put.entry.key, owner) for put in puts if not put.keeps_claim],
        )

    def _shape(self, connection: sqlite3.Connection, shape: str | None) -> int | None:
        if shape is None:
            return None
        number = self._shapes.get(shape)
        if number is None:
            # Its fields may come later.
            connection.execute("INSERT OR IGNORE INTO shapes (name, fields) VALUES (?, '{}')", (shape,))
            number = int(connection.execute("SELECT id FROM shapes WHERE name = ?", (shape,)).fetchone()[0])
            self._shapes[shape] = number
        return number

    def _run_key(self, connection: sqlite3.Connection, owner: int) -> str:
        # An owner that was taken for dead while its machine slept still has an account.
        if owner in self._members:
            return self._members[owner][0].run_key
        return accounts.run_key_of(connection, owner)

    def _forget(self) -> None:
        self._names.forget()
        self._shapes.clear()


def _claim(
    connection: sqlite3.Connection, owner: int, wanted: Sequence[Wanted], now: float
) -> tuple[list[Claim], int]:
    """Decide and note down; give the claims, and how many of them may be paid twice."""
    keys = [want.key for want in wanted]
    claims, taken = grant(
        owner,
        wanted,
        entries=records.facts_of(connection, keys),
        holders=records.claims_of(connection, keys),
        lives=lambda holder: accounts.lives(connection, holder, now),
    )
    connection.executemany(_CLAIM, [(key, owner, now) for key in taken])
    return claims, claims.count("granted_again")


def _release(connection: sqlite3.Connection, owner: int, releases: Sequence[Release]) -> None:
    connection.executemany(
        "DELETE FROM claims WHERE key = ? AND owner = ?",
        [(release.key, owner) for release in releases if not release.possibly_paid],
    )
    connection.executemany(
        "UPDATE claims SET lost = 1 WHERE key = ? AND owner = ?",
        [(release.key, owner) for release in releases if release.possibly_paid],
    )


def _check_place(path: Path, mounts: Callable[[], Iterable[Mount]], *, read_only: bool) -> None:
    refuse_network(path.resolve(), mounts())
    if path.is_dir():
        raise StoreError(f"store {path} is a folder: name a file")
    if read_only:
        if not path.exists():
            raise StoreError(f"there is no store at {path}")
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"store {path}: its folder cannot be made ({error.strerror})") from error
