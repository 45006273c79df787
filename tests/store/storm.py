"""Eight processes on one store, one of which is killed again and again, or whose server crashes: nothing is lost.

What a process was told to be durable it writes down. `tests/store/test_processes.py` lets a few kills happen,
`benchmarks/storm.py` as many as it is told to.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from corpusmill.errors import StoreError
from corpusmill.store import Entry, Put, Wanted, open_store
from corpusmill.store.postgres.links import taken_apart

if TYPE_CHECKING:
    from tests.proof.warm import Child, Warm

    from corpusmill.store import Store

PROCESSES = 8
GROUP = 10
MOST_ERRORS = 2_000

WORKER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.store.storm import Worker
Worker(*sys.argv[1:]).run()
"""


def key_of(number: int) -> bytes:
    """Give the key of a request by its number."""
    return hashlib.blake2b(str(number).encode(), digest_size=20).digest()


def body_of(key: bytes) -> bytes:
    """Give the answer that belongs to a key, which shows whose it is."""
    return b'{"answer": "' + hashlib.sha256(key).hexdigest().encode() * 8 + b'"}'


def put_of(key: bytes) -> Put:
    """Give the answer to a key, ready to be kept."""
    return Put(entry=Entry(key, body_of(key), None, "stop", 1, 1, 1, 1.0, "storm"))


class Worker:
    """One process: puts what nobody has put yet and looks at what others did, until all keys are there.

    Each key that is durable goes into the file `notes`. A server that goes away is waited for by the store itself, but
    not while the store is opened.
    """

    def __init__(self, url: str, count: str, seed: str, notes: str) -> None:
        self._url = url
        self._chance = random.Random(seed)
        self._keys = [key_of(number) for number in range(int(count))]
        self._left = list(self._keys)
        self._notes = Path(notes)

    def run(self) -> None:
        """Open the store and work to the end."""
        with contextlib.closing(self._opened()) as store:
            self._work(store)

    def _opened(self) -> Store:
        for _ in range(MOST_ERRORS):
            try:
                return open_store(self._url)
            except StoreError:
                time.sleep(0.05)  # the server is another process, and is coming back
        raise AssertionError("the server has not come back")

    def _work(self, store: Store) -> None:
        owner = store.join("run").owner
        with self._notes.open("a", encoding="ascii") as notes:
            while self._left:
                self._chance.shuffle(self._left)
                group = self._left[:GROUP]
                claims = zip(group, store.write(owner, wanted=[Wanted(key) for key in group]), strict=True)
                mine = [key for key, claim in claims if claim.startswith("granted")]
                if mine:
                    store.write(owner, puts=[put_of(key) for key in mine])
                    notes.write("".join(f"{key.hex()}\n" for key in mine))
                    notes.flush()
                found = store.get_many(group + self._chance.sample(self._keys, 40))
                for key, entries in found.items():
                    assert [entry.body for entry in entries] == [body_of(key)], f"{key.hex()}: {entries}"
                self._left = [key for key in self._left if key not in found]


@dataclass(kw_only=True)
class Storm:
    """So many keys, put into the store at `url` by eight processes; `kills` of them die, and the server crashes."""

    warm: Warm
    url: str
    folder: Path
    keys: int
    kills: int = 0
    crashes: int = 0
    seed: int = 1
    killed: int = 0
    noted: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        """Let it rage to its end: until each process has seen every key."""
        chance = random.Random(self.seed)
        open_store(self.url).close()
        self._starts = 0
        living = [self._start() for _ in range(PROCESSES)]
        # Of what a process put when it was killed it may not have written anything down.
        last = self.keys - (self.kills + self.crashes * PROCESSES) * GROUP
        moments = sorted(chance.sample(range(last // 20, last), self.kills + self.crashes))
        crashing = set(chance.sample(moments, self.crashes))
        for moment in moments:
            while self._progress() < moment:
                time.sleep(0.002)  # the processes are others; nothing here moves their clocks
            if moment in crashing:
                crash_server(self.url)
                continue
            victim = living.pop(chance.randrange(len(living)))
            victim.signal(signal.SIGKILL)
            ended = victim.wait()
            if ended.code != -signal.SIGKILL:
                # It had seen every key before the signal came, and so may the others have.
                assert ended.code == 0, ended.err
                living.append(self._start())
                continue
            self.killed += 1
            living.append(self._start())
        for child in living:
            ended = child.wait()
            assert ended.code == 0, ended.err
        for file in self.folder.glob("*.noted"):
            # What a process was writing down when it was killed is no whole line.
            self.noted.update(line for line in file.read_text("ascii").split("\n")[:-1] if len(line) == 40)

    def check(self) -> None:
        """Nothing that was durable is lost, nothing is there twice, and each key has its own answer."""
        assert self.noted
        assert self.killed or not self.kills
        assert set(self.noted.values()) == {1}, "a key was put by two processes"
        store = open_store(self.url)
        keys = [key_of(number) for number in range(self.keys)]
        found = store.get_many(keys)
        stats, spend = store.stats(), store.spend("run")
        store.close()
        assert {bytes.fromhex(key) for key in self.noted} <= found.keys() == set(keys)
        assert {key: [entry.body for entry in entries] for key, entries in found.items()} == {
            key: [body_of(key)] for key in keys
        }
        assert (stats.completions, stats.claims) == (self.keys, 0)
        assert spend.requests == self.keys, "an answer was counted twice, or not at all"
        assert spend.possibly_paid_twice <= self.kills * GROUP
        if self.url.startswith("sqlite"):
            check_integrity(Path(self.url.removeprefix("sqlite:///")))

    def _start(self) -> Child:
        self._starts += 1
        return self.warm.start(
            self.url,
            str(self.keys),
            str(self.seed * 10_000 + self._starts),
            str(self.folder / f"{self._starts}.noted"),
            environment={"WARM_CODE": WORKER},
        )

    def _progress(self) -> int:
        return sum(file.stat().st_size for file in self.folder.glob("*.noted")) // 41


def check_integrity(path: Path) -> None:
    """SQLite finds nothing wrong with the file, down to each index entry."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    finally:
        connection.close()


def crash_server(url: str) -> None:
    """Let a process of the PostgreSQL server die of SIGKILL: the server ends all others, and recovers from its log."""
    with psycopg.connect(taken_apart(url)[0]) as connection:
        pid = connection.info.backend_pid
        os.kill(pid, signal.SIGKILL)
        try:
            connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return
        raise AssertionError("the server has survived the death of one of its processes")
