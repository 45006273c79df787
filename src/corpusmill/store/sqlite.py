"""The store in one SQLite file, shared by all processes of a machine.

Writes are transactions that take the write lock at their start, so that what they read cannot change before
they commit. Answers are committed with an fsync; claims alone are not: they have to outlive a process, not a
power cut, after which no request is in flight anyway.
"""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psutil

from corpusmill.errors import StoreError
from corpusmill.store.connections import Connections, explained
from corpusmill.store.explain import NearestSoFar
from corpusmill.store.filesystems import refuse_network
from corpusmill.store.liveness import LEASE, Process, is_alive, this_host, this_process
from corpusmill.store.packing import pack, pack_digests, text, unpack, unpack_digests, whole
from corpusmill.store.protocol import (
    Entry,
    Membership,
    Nearest,
    Quota,
    Spend,
    StoreStats,
    UsageSample,
)
from corpusmill.store.serving import choose

if TYPE_CHECKING:
    import os
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from corpusmill.policy import Budget
    from corpusmill.store.filesystems import Mount
    from corpusmill.store.protocol import Claim, Cost, Put, Release, Reservation, Wanted

GROUP_SIZES = (1, 8, 64, 256, 1024)
"""Keys are looked up in groups of these sizes, so that few statements are ever prepared."""

_FACTS = (
    "key, ceiling, finish_reason, prompt_tokens, completion_tokens, choices, created_at, invocation, rejected"
)


def _lookup(columns: str, table: str, size: int) -> str:
    # CROSS JOIN and the order of the tables make SQLite walk the keys and seek each in the index; the index
    # holds the rows of one key in the order in which they were put.
    values = ",".join(["(?)"] * size)
    return (
        f"WITH wanted (wanted_key) AS (VALUES {values}) "  # noqa: S608 - placeholders and our own names
        f"SELECT {columns} FROM wanted CROSS JOIN {table} ON key = wanted_key"
    )


_BY_KEY = "completions INDEXED BY completions_by_key"
_ENTRIES = {size: _lookup(f"{_FACTS}, body, unpacked", _BY_KEY, size) for size in GROUP_SIZES}
_FACTS_ONLY = {size: _lookup(_FACTS, _BY_KEY, size) for size in GROUP_SIZES}
_CLAIMS = {size: _lookup("key, owner, lost", "claims", size) for size in GROUP_SIZES}

_INSERT = (
    "INSERT INTO completions (key, rejected, ceiling, finish_reason, prompt_tokens, completion_tokens, "
    "choices, created_at, invocation, model, characters, script, shape, field_names, field_digests, "
    "unpacked, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_CLAIM = (
    "INSERT INTO claims (key, owner, lost, claimed_at) VALUES (?, ?, 0, ?) ON CONFLICT (key) DO UPDATE SET "
    "owner = excluded.owner, lost = 0, claimed_at = excluded.claimed_at"
)
_SPEND = "requests, attempts, prompt_tokens, completion_tokens, usd, possibly_paid_twice"


def _groups(keys: Iterable[bytes]) -> Iterator[tuple[int, list[bytes | None]]]:
    distinct = list(dict.fromkeys(keys))
    for start in range(0, len(distinct), GROUP_SIZES[-1]):
        group: list[bytes | None] = [*distinct[start : start + GROUP_SIZES[-1]]]
        size = next(size for size in GROUP_SIZES if size >= len(group))
        group.extend([None] * (size - len(group)))
        yield size, group


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
        mounts: Callable[[], Iterable[Mount]] = lambda: psutil.disk_partitions(all=True),
    ) -> None:
        self.path = Path(path).absolute()
        self._clock = clock
        self._names: dict[str, int] = {}
        self._name_of: dict[int, str] = {}
        self._shapes: dict[str, int] = {}
        self._run_of: dict[int, str] = {}
        _check_place(self.path, mounts, read_only=read_only)
        self._connections = Connections(self.path, read_only=read_only)
        try:
            with self._connections.reading() as connection:
                connection.execute("SELECT count(*) FROM runs").fetchone()
        except BaseException:
            self._connections.close()
            raise

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self.path)!r})"

    # Completions and claims

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, list[Entry]]:
        """Give all entries of these keys, oldest first."""
        found: dict[bytes, list[Entry]] = {}
        names = self._name_of
        with self._connections.reading() as connection:
            for size, group in _groups(keys):
                for (
                    key,
                    ceiling,
                    finish_reason,
                    prompt_tokens,
                    completion_tokens,
                    choices,
                    created_at,
                    invocation,
                    rejected,
                    body,
                    unpacked,
                ) in connection.execute(_ENTRIES[size], group):
                    entry = Entry(
                        key,
                        body if unpacked is None else unpack(body, unpacked),
                        ceiling,
                        finish_reason,
                        prompt_tokens,
                        completion_tokens,
                        choices,
                        created_at,
                        names.get(invocation) or self._name(connection, invocation),
                        "rejected" if rejected else "completion",
                    )
                    if key in found:
                        found[key].append(entry)
                    else:
                        found[key] = [entry]
        return found

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
        prepared = [(put, *pack(put.entry.body)) for put in puts]
        now = self._clock()
        try:
            with self._connections.writing(durable=bool(puts)) as connection:
                if puts:
                    self._put(connection, owner, prepared)
                if releases:
                    _release(connection, owner, releases)
                costs = [put.cost for put in puts] + [release.cost for release in releases]
                claims, twice = self._claim(connection, owner, wanted, now) if wanted else ([], 0)
                if costs or twice:
                    self._settle(connection, owner, costs, requests=len(puts), twice=twice)
        except BaseException:
            # Names that were given a number in the transaction have none now.
            self._names.clear()
            self._shapes.clear()
            raise
        return claims

    def claim_many(self, owner: int, wanted: Sequence[Wanted]) -> list[Claim]:
        """Ask for the right to ask these keys."""
        return self.write(owner, wanted=wanted)

    def put_many(self, owner: int, puts: Sequence[Put]) -> None:
        """Keep answers durably, drop the owner's claims on their keys, and add what they cost."""
        self.write(owner, puts=puts)

    def release_many(self, owner: int, releases: Sequence[Release]) -> None:
        """Give claims up without an answer."""
        self.write(owner, releases=releases)

    def _put(
        self, connection: sqlite3.Connection, owner: int, puts: Sequence[tuple[Put, bytes, int | None]]
    ) -> None:
        rows = []
        done = []
        for put, body, unpacked in puts:
            entry = put.entry
            names, digests = pack_digests(put.fields) if put.fields else (None, None)
            rows.append(
                (
                    entry.key,
                    entry.kind == "rejected",
                    whole(entry.ceiling),
                    text(entry.finish_reason),
                    whole(entry.prompt_tokens),
                    whole(entry.completion_tokens),
                    whole(entry.choices) or 1,
                    entry.created_at,
                    self._number(connection, entry.invocation),
                    self._number(connection, put.model),
                    whole(put.characters),
                    self._number(connection, put.script),
                    self._shape(connection, put.shape),
                    self._number(connection, names),
                    digests,
                    unpacked,
                    body,
                )
            )
            if not put.keeps_claim:
                done.append((entry.key, owner))
        connection.executemany(_INSERT, rows)
        # The mark of a lost attempt goes too: the key has its answer, and asking for another one is another
        # request.
        connection.executemany("DELETE FROM claims WHERE key = ? AND (owner = ? OR lost)", done)

    def _claim(
        self, connection: sqlite3.Connection, owner: int, wanted: Sequence[Wanted], now: float
    ) -> tuple[list[Claim], int]:
        keys = [want.key for want in wanted]
        entries: dict[bytes, list[Entry]] = {}
        holders: dict[bytes, tuple[int, bool]] = {}
        for size, group in _groups(keys):
            for facts in connection.execute(_FACTS_ONLY[size], group):
                entries.setdefault(facts[0], []).append(_facts_only(facts))
            for key, holder, lost in connection.execute(_CLAIMS[size], group):
                holders[key] = (holder, bool(lost))
        alive: dict[int, bool] = {owner: True}
        claims: list[Claim] = []
        taken = []
        twice = 0
        for want in wanted:
            if want.key in entries and choose(entries[want.key], want.ceiling, want.not_before) is not None:
                claims.append("answered")
                continue
            if want.key in holders:
                holder, lost = holders[want.key]
                if holder not in alive:
                    alive[holder] = self._lives(connection, holder, now)
                if alive[holder] and not lost:
                    claims.append("held")
                    continue
                twice += 1
                claims.append("granted_again")
            else:
                claims.append("granted")
            holders[want.key] = (owner, False)
            taken.append((want.key, owner, now))
        connection.executemany(_CLAIM, taken)
        return claims, twice

    def _settle(
        self, connection: sqlite3.Connection, owner: int, costs: Sequence[Cost], *, requests: int, twice: int
    ) -> None:
        connection.execute(
            "UPDATE runs SET requests = requests + ?, attempts = attempts + ?, "
            "prompt_tokens = prompt_tokens + ?, completion_tokens = completion_tokens + ?, usd = usd + ?, "
            "possibly_paid_twice = possibly_paid_twice + ? WHERE run_key = ?",
            (
                requests,
                sum(cost.attempts for cost in costs),
                sum(cost.prompt_tokens for cost in costs),
                sum(cost.completion_tokens for cost in costs),
                sum(cost.usd for cost in costs),
                twice,
                self._run_key(connection, owner),
            ),
        )
        tokens = sum(cost.reserved_tokens for cost in costs)
        usd = sum(cost.reserved_usd for cost in costs)
        if tokens or usd:
            connection.execute(
                "UPDATE owners SET reserved_tokens = max(0, reserved_tokens - ?), "
                "reserved_usd = max(0, reserved_usd - ?) WHERE id = ?",
                (tokens, usd, owner),
            )

    # Owners and runs

    def join(self, run_key: str, *, label: str = "") -> Membership:
        """Register an owner for a run key."""
        now = self._clock()
        process = this_process()
        invocation = str(uuid.uuid4())
        with self._connections.writing(durable=False) as connection:
            self._bury(connection, now)
            connection.execute("DELETE FROM runs WHERE run_key = ? AND finished_at IS NOT NULL", (run_key,))
            connection.execute(
                "INSERT OR IGNORE INTO runs (run_key, label, first_started_at) VALUES (?, ?, ?)",
                (run_key, label, now),
            )
            owner = connection.execute(
                "INSERT INTO owners (run_key, label, invocation, host, pid, process_created_at, joined_at, "
                "lease_until) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (run_key, label, invocation, process.host, process.pid, process.created_at, now, now + LEASE),
            ).lastrowid
            (first,) = connection.execute(
                "SELECT first_started_at FROM runs WHERE run_key = ?", (run_key,)
            ).fetchone()
            spend = _spend(connection, run_key)
        if owner is None:
            raise StoreError(f"store {self.path} gave the new owner no number")
        self._run_of[owner] = run_key
        return Membership(
            owner=owner, invocation=invocation, run_key=run_key, first_started_at=first, spend=spend
        )

    def heartbeat(self, owner: int) -> None:
        """Renew the owner's lease."""
        with self._connections.writing(durable=False) as connection:
            connection.execute(
                "UPDATE owners SET lease_until = ? WHERE id = ?", (self._clock() + LEASE, owner)
            )

    def leave(self, owner: int) -> None:
        """Remove the owner and the claims that it holds; the marks of lost attempts stay."""
        self._run_of.pop(owner, None)
        with self._connections.writing(durable=False) as connection:
            connection.execute("DELETE FROM claims WHERE owner = ? AND NOT lost", (owner,))
            connection.execute("DELETE FROM owners WHERE id = ?", (owner,))

    def finish(self, run_key: str) -> None:
        """Close the account of a run key."""
        with self._connections.writing() as connection:
            connection.execute("UPDATE runs SET finished_at = ? WHERE run_key = ?", (self._clock(), run_key))

    def spend(self, run_key: str) -> Spend:
        """Tell what a run key has spent; zero for an unknown one."""
        with self._connections.reading() as connection:
            return _spend(connection, run_key)

    def reserve(self, owner: int, *, tokens: int, usd: float, budget: Budget) -> Reservation:
        """Set so much of the budget aside until a `Cost` gives it back; the dead hold nothing."""
        now = self._clock()
        with self._connections.writing(durable=False) as connection:
            run_key = self._run_key(connection, owner)
            spent = _spend(connection, run_key)
            reserved_tokens, reserved_usd = 0, 0.0
            for other, their_tokens, their_usd in connection.execute(
                "SELECT id, reserved_tokens, reserved_usd FROM owners "
                "WHERE run_key = ? AND (reserved_tokens > 0 OR reserved_usd > 0)",
                (run_key,),
            ).fetchall():
                if other == owner or self._lives(connection, other, now):
                    reserved_tokens += their_tokens
                    reserved_usd += their_usd
            total_tokens = spent.prompt_tokens + spent.completion_tokens + tokens
            total_usd = spent.usd + usd
            if _exceeds(total_tokens, total_usd, budget):
                return "used_up"
            if _exceeds(total_tokens + reserved_tokens, total_usd + reserved_usd, budget):
                return "waits"
            connection.execute(
                "UPDATE owners SET reserved_tokens = reserved_tokens + ?, reserved_usd = reserved_usd + ? "
                "WHERE id = ?",
                (tokens, usd, owner),
            )
            return "granted"

    def _run_key(self, connection: sqlite3.Connection, owner: int) -> str:
        known = self._run_of.get(owner)
        if known is not None:
            return known
        row = connection.execute("SELECT run_key FROM owners WHERE id = ?", (owner,)).fetchone()
        if row is None:
            raise StoreError(f"store {self.path} knows no owner {owner}: join first")
        run_key: str = row[0]
        return run_key

    def _lives(self, connection: sqlite3.Connection, owner: int, now: float) -> bool:
        row = connection.execute(
            "SELECT host, pid, process_created_at, lease_until FROM owners WHERE id = ?", (owner,)
        ).fetchone()
        if row is None:
            return False
        host, pid, created_at, lease_until = row
        process = Process(host=host, pid=pid, created_at=created_at)
        return is_alive(process, lease_until=lease_until, host=this_host(), now=now)

    def _bury(self, connection: sqlite3.Connection, now: float) -> None:
        for (owner,) in connection.execute("SELECT id FROM owners").fetchall():
            if not self._lives(connection, owner, now):
                connection.execute("UPDATE claims SET lost = 1 WHERE owner = ?", (owner,))
                connection.execute("DELETE FROM owners WHERE id = ?", (owner,))

    # Quota

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

    # What explains and estimates

    def put_fields(self, shape: str, fields: Mapping[str, str]) -> None:
        """Keep the digests that many requests share, once."""
        with self._connections.writing(durable=False) as connection:
            connection.execute(
                "INSERT OR IGNORE INTO shapes (name, fields) VALUES (?, ?)",
                (shape, msgspec.json.encode(dict(fields)).decode()),
            )

    def nearest(self, fields: Mapping[str, str]) -> Nearest | None:
        """Find the stored request that differs in the fewest fields; reads the whole store if it must."""
        with self._connections.reading() as connection:
            shapes = {
                number: msgspec.json.decode(encoded, type=dict[str, str])
                for number, encoded in connection.execute("SELECT id, fields FROM shapes")
            }
            best = NearestSoFar(fields, shapes)
            for number, shape, names, digests in connection.execute(
                "SELECT completions.id, shape, name, field_digests FROM completions "
                "LEFT JOIN names ON names.id = field_names "
                "WHERE shape IS NOT NULL ORDER BY completions.id DESC"
            ):
                if best.see(number, shape, unpack_digests(names, digests)):
                    break
            if best.number is None:
                return None
            *facts, model = connection.execute(
                f"SELECT {_FACTS}, model FROM completions WHERE id = ?",  # noqa: S608 - our own names
                (best.number,),
            ).fetchone()
            return Nearest(
                entry=_facts_only(facts, self._name(connection, facts[7])),
                model=None if model is None else self._name(connection, model),
                differs=best.differs,
            )

    def usage_samples(self, *, model: str | None = None, limit: int = 10_000) -> list[UsageSample]:
        """Give what is known of characters and tokens, the newest first, of one model or of all."""
        with self._connections.reading() as connection:
            rows = connection.execute(
                "SELECT models.name, scripts.name, characters, prompt_tokens, completion_tokens "
                "FROM completions LEFT JOIN names AS models ON models.id = model "
                "LEFT JOIN names AS scripts ON scripts.id = script "
                "WHERE characters IS NOT NULL AND prompt_tokens IS NOT NULL "
                "AND (? IS NULL OR models.name = ?) ORDER BY completions.id DESC LIMIT ?",
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

    # Housekeeping

    def stats(self) -> StoreStats:
        """Count."""
        with self._connections.reading() as connection:
            completions, rejected, oldest, newest = connection.execute(
                "SELECT count(*) - coalesce(sum(rejected), 0), coalesce(sum(rejected), 0), min(created_at), "
                "max(created_at) FROM completions"
            ).fetchone()
            by_model = dict(
                connection.execute(
                    "SELECT coalesce(name, ''), count(*) FROM completions "
                    "LEFT JOIN names ON names.id = model WHERE NOT rejected GROUP BY 1 ORDER BY 1"
                ).fetchall()
            )
            claims, lost = connection.execute(
                "SELECT count(*) - coalesce(sum(lost), 0), coalesce(sum(lost), 0) FROM claims"
            ).fetchone()
            (runs,) = connection.execute("SELECT count(*) FROM runs").fetchone()
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return StoreStats(
            completions=completions,
            rejected=rejected,
            by_model=by_model,
            size=sum(file.stat().st_size for file in files if file.exists()),
            oldest=oldest,
            newest=newest,
            claims=claims,
            lost=lost,
            runs=runs,
        )

    def prune(
        self, *, older_than: float | None = None, model: str | None = None, rejected_only: bool = False
    ) -> int:
        """Delete the entries that meet all conditions given, at least one, and tell how many they were.

        The file shrinks, for which as much free space is needed as it will take.
        """
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
        where = " AND ".join(conditions)
        with self._connections.writing() as connection:
            statement = f"DELETE FROM completions WHERE {where}"  # noqa: S608 - the conditions above
            deleted = connection.execute(statement, values).rowcount
        if deleted:
            with self._connections.reading() as connection:
                connection.execute("VACUUM")
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
        for owner in list(self._run_of):
            self.leave(owner)
        self._connections.close()

    # Shared words

    def _number(self, connection: sqlite3.Connection, name: str | None) -> int | None:
        if name is None:
            return None
        number = self._names.get(name)
        if number is None:
            clean = text(name)
            connection.execute("INSERT OR IGNORE INTO names (name) VALUES (?)", (clean,))
            number = int(connection.execute("SELECT id FROM names WHERE name = ?", (clean,)).fetchone()[0])
            self._names[name] = number
        return number

    def _name(self, connection: sqlite3.Connection, number: int) -> str:
        row = connection.execute("SELECT name FROM names WHERE id = ?", (number,)).fetchone()
        name: str = "" if row is None else row[0]
        self._name_of[number] = name
        return name

    def _shape(self, connection: sqlite3.Connection, shape: str | None) -> int | None:
        if shape is None:
            return None
        number = self._shapes.get(shape)
        if number is None:
            row = connection.execute("SELECT id FROM shapes WHERE name = ?", (shape,)).fetchone()
            if row is None:
                return None
            number = self._shapes[shape] = int(row[0])
        return number


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


def _release(connection: sqlite3.Connection, owner: int, releases: Sequence[Release]) -> None:
    connection.executemany(
        "DELETE FROM claims WHERE key = ? AND owner = ?",
        [(release.key, owner) for release in releases if not release.possibly_paid],
    )
    connection.executemany(
        "UPDATE claims SET lost = 1 WHERE key = ? AND owner = ?",
        [(release.key, owner) for release in releases if release.possibly_paid],
    )


def _spend(connection: sqlite3.Connection, run_key: str) -> Spend:
    statement = f"SELECT {_SPEND} FROM runs WHERE run_key = ?"  # noqa: S608 - our own names
    row = connection.execute(statement, (run_key,)).fetchone()
    if row is None:
        return Spend()
    return Spend(**dict(zip(_SPEND.split(", "), row, strict=True)))


def _facts_only(row: Sequence[Any], invocation: str = "") -> Entry:
    key, ceiling, finish_reason, prompt_tokens, completion_tokens, choices, created_at, _, rejected = row
    return Entry(
        key=key,
        body=b"",
        ceiling=ceiling,
        finish_reason=finish_reason,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        choices=choices,
        created_at=created_at,
        invocation=invocation,
        kind="rejected" if rejected else "completion",
    )


def _exceeds(tokens: float, usd: float, budget: Budget) -> bool:
    return (budget.tokens is not None and tokens > budget.tokens) or (
        budget.usd is not None and usd > budget.usd
    )
