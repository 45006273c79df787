"""A server that goes away in mid-run: what is waited for, and that nothing takes effect twice or is lost."""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.store.postgres_server import Cut, Line, Mode, Server

from corpusmill.errors import StoreError
from corpusmill.policy import Budget
from corpusmill.store import Cost, PostgresStore, ReadOnlyStore, Release, Spend, Wanted
from corpusmill.store.postgres import outage
from corpusmill.store.postgres.accounts import LEASE
from corpusmill.store.postgres.links import Links, taken_apart
from corpusmill.store.postgres.receipts import Receipts
from corpusmill.store.writer import HEARTBEAT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from corpusmill.store import Put

    KeyOf = Callable[[str], bytes]
    PutOf = Callable[..., Put]
    Connection = psycopg.Connection[tuple[Any, ...]]

CUTS: list[list[Cut]] = [["before"], ["after"], ["before", "after"], ["before", "before", "after"]]


class Clock:
    """Time that passes only while somebody sleeps; stands in for the module `time`."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.sleeps: list[float] = []
        self.slept: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept()
        self.sleeps.append(seconds)
        self.seconds += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let waiting take no time."""
    clock = Clock()
    monkeypatch.setattr(outage, "time", clock)
    return clock


@pytest.fixture
def schema() -> str:
    """Name a schema of the test's own."""
    return f"outage_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def url(postgres_server: str, schema: str) -> str:
    """Name a store on the server."""
    return f"{postgres_server}&schema={schema}"


@pytest.fixture
def line(postgres_server: str) -> Iterator[Line]:
    """Lay a line to the server that can be cut."""
    with Line(postgres_server) as line:
        yield line


@pytest.fixture
def store(line: Line, schema: str) -> Iterator[PostgresStore]:
    """Open a store through the line."""
    store = PostgresStore(f"{line.url}&schema={schema}")
    yield store
    line.cuts.clear()
    store.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Run a server that may be stopped."""
    with Server() as server:
        yield server


def look(url: str, query: str) -> list[tuple[Any, ...]]:
    """Ask the server itself."""
    conninfo, schema = taken_apart(url)
    with psycopg.connect(conninfo, autocommit=True, options=f"-c search_path={schema}") as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.mark.parametrize("cuts", CUTS, ids="-".join)
def test_a_write_whose_commit_is_cut_takes_effect_once(
    store: PostgresStore, line: Line, put_of: PutOf, key_of: KeyOf, cuts: list[Cut]
) -> None:
    """Whether the server had done it or not: entries, costs, releases and claims are there once, and told rightly."""
    owner = store.join("run").owner
    store.write(owner, wanted=[Wanted(key_of(name)) for name in ("a", "b", "c")])
    store.write(owner, releases=[Release(key=key_of("c"), possibly_paid=True)])
    cost = Cost(attempts=2, prompt_tokens=7, completion_tokens=11, usd=0.5)
    line.cuts += cuts
    claims = store.write(
        owner,
        puts=[put_of("a", cost=cost), put_of("a", cost=cost)],
        releases=[Release(key=key_of("b"), possibly_paid=False, cost=Cost(attempts=1))],
        wanted=[Wanted(key_of("a")), Wanted(key_of("b")), Wanted(key_of("c"))],
    )
    assert not line.cuts
    assert claims == ["answered", "granted", "granted_again"]
    assert len(store.get_many([key_of("a")])[key_of("a")]) == 2
    assert store.spend("run") == Spend(
        requests=2, attempts=5, prompt_tokens=14, completion_tokens=22, usd=1.0, possibly_paid_twice=1
    )
    assert store.stats().claims == 2
    store.write(owner, puts=[put_of("d")])
    assert store.spend("run").requests == 3


def test_a_commit_that_arrives_after_the_line_was_given_up_counts(
    store: PostgresStore, line: Line, url: str, put_of: PutOf, key_of: KeyOf
) -> None:
    """The second try waits for the first one, of which the server has not heard the end, and finds it done."""
    owner = store.join("run").owner
    line.cuts.append("late")
    thread = threading.Thread(
        target=store.write, args=(owner,), kwargs={"puts": [put_of("a", cost=Cost(attempts=1))]}
    )
    thread.start()
    waiting = threading.Event()
    for _ in range(3_000):
        held_up = look(
            url, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%receipts%'"
        )
        if held_up:
            break
        waiting.wait(0.01)  # the server is another process
    else:
        raise AssertionError("nobody waits for the transaction that was left open")
    line.deliver()
    thread.join()
    assert len(store.get_many([key_of("a")])[key_of("a")]) == 1
    assert (store.spend("run").requests, store.spend("run").attempts) == (1, 1)


def test_a_transaction_that_was_left_open_is_ended_by_the_server(url: str) -> None:
    """It would hold the locks that whoever tries again waits for."""
    links = Links(url, read_only=False)
    (timeout,) = links.run(
        lambda connection: connection.execute("SHOW idle_in_transaction_session_timeout").fetchone() or ()
    )
    assert timeout == "30s"
    links.close()


@pytest.mark.parametrize("cut", ["before", "after"])
def test_what_is_reserved_joined_and_pruned_is_so_once(
    store: PostgresStore, line: Line, url: str, put_of: PutOf, cut: Cut
) -> None:
    """A reservation that counted twice would never be given back whole."""
    line.cuts.append(cut)
    owner = store.join("run").owner
    assert look(url, "SELECT count(*) FROM owners") == [(1,)]
    line.cuts.append(cut)
    assert store.reserve(owner, tokens=60, usd=0.0, budget=Budget(tokens=100)) == "granted"
    assert look(url, "SELECT reserved_tokens FROM owners") == [(60,)]
    store.write(owner, puts=[put_of("a"), put_of("b")])
    line.cuts.append(cut)
    assert store.prune(model=None, older_than=2_000.0) == 2
    assert not line.cuts


def test_reads_and_heartbeats_come_through_when_all_links_have_died(
    url: str, clock: Clock, put_of: PutOf, key_of: KeyOf
) -> None:
    """A link that died while nobody used it costs one more try, at once and without a word."""
    store = PostgresStore(url)
    owner = store.join("run").owner
    store.write(owner, puts=[put_of("a")])
    for call in (lambda: store.get_many([key_of("a")]), lambda: store.heartbeat(owner), store.stats):
        look(
            url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'corpusmill'",
        )
        call()
    assert clock.sleeps == []
    assert store.waiting() is None
    store.close()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_that_is_stopped_and_started_is_waited_for(
    server: Server, schema: str, put_of: PutOf, mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    """All calls meanwhile are only slow, and it is said that and how long they wait."""
    store = PostgresStore(f"{server.url}&schema={schema}")
    owner = store.join("run").owner
    server.stop(mode)
    put = threading.Thread(target=store.write, args=(owner,), kwargs={"puts": [put_of("a")]})
    put.start()
    waiting = threading.Event()
    while (told := store.waiting()) is None:
        waiting.wait(0.01)  # the thread is on its way
    assert "postgresql://" in told
    assert "is away; unless it comes back, the run ends in " in told
    server.start()
    put.join()
    store.heartbeat(owner)
    assert store.waiting() is None
    assert store.stats().completions == 1
    waited, back = (record.getMessage() for record in caplog.records if record.name == "corpusmill")
    assert "is waited for, for 60 s at most: " in waited
    assert " is back after " in back
    store.close()


def test_a_server_that_stays_away_is_given_up_after_a_while(
    line: Line, schema: str, clock: Clock, put_of: PutOf
) -> None:
    """The error names it; what is tried afterwards is tried once, and does not wait again."""
    store = PostgresStore(f"{line.url}&schema={schema}")
    owner = store.join("run").owner
    line.dead = True
    with pytest.raises(StoreError, match=r"^store postgresql://127.*It has been away for 6\d s; run again"):
        store.write(owner, puts=[put_of("a")])
    assert outage.WAIT_SECONDS <= sum(clock.sleeps) < outage.WAIT_SECONDS + 2 * outage.LONGEST_PAUSE
    assert len(set(clock.sleeps)) > 10, "not all who share the server may come back at the same time"
    before = len(clock.sleeps)
    with pytest.raises(StoreError, match=r"^store postgresql://127"):
        store.write(owner, puts=[put_of("a")])
    assert len(clock.sleeps) == before
    line.dead = False
    store.write(owner, puts=[put_of("a")])
    assert store.stats().completions == 1
    store.close()


def test_a_run_that_is_told_to_stop_waits_for_a_few_seconds_only(
    line: Line, schema: str, clock: Clock
) -> None:
    """From then on; the next run of the same store is patient again."""
    store = PostgresStore(f"{line.url}&schema={schema}")
    line.dead = True
    store.hurry()
    with pytest.raises(StoreError, match="postgresql"):
        store.stats()
    assert outage.LAST_SECONDS <= sum(clock.sleeps) < outage.LAST_SECONDS + 2 * outage.LONGEST_PAUSE
    line.dead = False
    store.join("next run")
    line.dead = True
    with pytest.raises(StoreError, match="postgresql"):
        store.stats()
    assert sum(clock.sleeps) > outage.WAIT_SECONDS
    line.dead = False
    store.close()


def test_a_store_that_is_only_read_waits_likewise(line: Line, schema: str, clock: Clock) -> None:
    """What a run is told of its store, and tells it, goes through to the one that it reads from."""
    url = f"{line.url}&schema={schema}"
    PostgresStore(url).close()
    store = ReadOnlyStore(PostgresStore(url, read_only=True))
    told: list[str | None] = []
    clock.slept = lambda: told.append(store.waiting())
    store.hurry()
    line.dead = True
    with pytest.raises(StoreError, match="postgresql"):
        store.get_many([b"k" * 20])
    assert told[0] is not None
    assert "the run ends in 5 s" in told[0]
    assert sum(clock.sleeps) < outage.LAST_SECONDS + 2 * outage.LONGEST_PAUSE
    store.close()


def test_work_that_kills_the_server_each_time_comes_to_an_end(url: str, clock: Clock) -> None:
    """Although others get through in between, one call waits no longer than its own time."""
    links = Links(url, read_only=False)
    tries = 0

    def deadly(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        links.run(lambda other: other.execute("SELECT 1"))
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(StoreError, match="terminating connection"):
        links.run(deadly)
    assert outage.WAIT_SECONDS / outage.LONGEST_PAUSE < tries < 3 * outage.WAIT_SECONDS / outage.LONGEST_PAUSE
    links.close()


@pytest.mark.parametrize(
    "error", [psycopg.errors.DiskFull, psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.QueryCanceled]
)
def test_what_no_waiting_helps_is_an_error_at_once(
    url: str, clock: Clock, error: type[psycopg.Error]
) -> None:
    """A full disk, a server that may only be read: the work is not tried again."""
    links = Links(url, read_only=False)
    tries = 0

    def fail(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        raise error("no")

    with pytest.raises(StoreError):
        links.run(fail)
    assert (tries, clock.sleeps) == (1, [])
    links.close()


@pytest.mark.parametrize("wrong", ["dbname=nowhere", "user=nobody", "port=1"])
def test_a_store_that_was_never_open_is_not_waited_for(url: str, clock: Clock, wrong: str) -> None:
    """A wrong address or name is told at once."""
    with pytest.raises(StoreError, match="store postgresql"):
        PostgresStore(f"{url}&{wrong}")
    assert clock.sleeps == []


def test_a_server_that_lost_what_it_had_committed_ends_the_run(
    store: PostgresStore, url: str, put_of: PutOf, key_of: KeyOf
) -> None:
    """A replica that took over too early is found out; answers that come after it are kept all the same."""
    owner = store.join("run").owner
    store.write(owner, puts=[put_of("a")])
    look(url, "UPDATE receipts SET number = number - 1")
    with pytest.raises(StoreError, match="lost what it had committed"):
        store.write(owner, puts=[put_of("b")])
    store.write(owner, puts=[put_of("c")])
    assert set(store.get_many([key_of(name) for name in "bc"])) == {key_of("b"), key_of("c")}


def test_an_owner_that_lost_the_server_is_not_taken_for_dead_when_it_is_back(url: str) -> None:
    """Its lease, which no heartbeat renews meanwhile, outlasts the wait."""
    store = PostgresStore(url)
    owner = store.join("run").owner
    store.heartbeat(owner)
    look(url, "UPDATE owners SET host = 'elsewhere'")
    ((left,),) = look(url, "SELECT lease_until - extract(epoch FROM clock_timestamp()) FROM owners")
    assert LEASE > left > outage.WAIT_SECONDS + HEARTBEAT + 10
    store.close()


def test_a_lost_transaction_is_not_mistaken_for_that_of_a_child() -> None:
    """A thread that goes on in a forked process has another receipt there."""
    receipts = Receipts()
    ours = receipts.next()
    assert receipts.next() is ours
    ours.process = os.getpid() + 1  # as a child sees it
    assert receipts.next().name != ours.name


def test_old_receipts_are_swept_when_somebody_joins(store: PostgresStore, url: str) -> None:
    """What nobody comes back to does not stay for ever."""
    store.join("run")
    look(url, f"UPDATE receipts SET at = {time.time() - 8 * 86_400}")
    other = PostgresStore(url)
    (old,) = look(url, "SELECT name FROM receipts")
    other.join("run")
    assert old not in look(url, "SELECT name FROM receipts")
    other.close()


def test_of_several_servers_the_one_that_has_taken_over_is_found(
    postgres_server: str, line: Line, schema: str, put_of: PutOf
) -> None:
    """A URL may name more than one; whoever loses the first goes on with the next."""
    with Line(postgres_server) as other:
        ports = [one.url.rpartition(":")[2].partition("/")[0] for one in (line, other)]
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        store = PostgresStore(
            f"postgresql://postgres@{hosts}/postgres?sslmode=disable&target_session_attrs=read-write&schema={schema}"
        )
        owner = store.join("run").owner
        line.dead = True
        store.write(owner, puts=[put_of("a")])
        assert store.spend("run").requests == 1
        store.close()


def test_a_server_that_died_without_a_word_is_found_out_by_libpq(line: Line, schema: str) -> None:
    """Sockets are probed, unless the URL says how."""
    for option, expected in (("", "10"), ("&keepalives_idle=77", "77")):
        links = Links(f"{line.url}&schema={schema}{option}", read_only=False)
        found = links.run(lambda connection: connection.info.get_parameters())
        assert found["keepalives_idle"] == expected
        assert found["tcp_user_timeout"] == "30000"
        links.close()
