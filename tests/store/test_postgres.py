"""What is PostgreSQL's own: names, schemas, errors without secrets, deadlocks, leases of other machines."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

from corpusmill.endpoints.endpoint import shown_url
from corpusmill.errors import StoreError, UsageError
from corpusmill.policy import Budget
from corpusmill.store import Wanted, open_store
from corpusmill.store.postgres.links import Links, taken_apart
from corpusmill.store.protocol import Cost, Release
from corpusmill.store.urls import store_exists

if TYPE_CHECKING:
    from corpusmill.store import Store


@pytest.fixture
def url(postgres_server: str, request: pytest.FixtureRequest) -> str:
    """Name a store on the server, in a schema of the test's own."""
    return f"{postgres_server}&schema=own_{abs(hash(request.node.name)) % 10**9}"


def test_a_url_is_shown_without_its_secrets() -> None:
    """User, password and options are left out wherever a store is named."""
    url = "postgres://user:hunter2@db.invalid:5432/corpus?sslmode=require&password=hunter2&schema=mine"
    assert shown_url(url) == "postgres://db.invalid:5432/corpus"
    conninfo, schema = taken_apart(url)
    assert schema == "mine"
    assert "schema" not in conninfo


def test_a_server_that_is_not_there_is_a_store_error_without_the_password() -> None:
    """The message says where it was looked for."""
    with pytest.raises(StoreError, match=r"store postgresql://127\.0\.0\.1:1/corpus: ") as caught:
        open_store("postgresql://user:hunter2@127.0.0.1:1/corpus")
    assert "hunter2" not in str(caught.value)


def test_a_schema_that_could_not_be_quoted_is_refused() -> None:
    """Its name goes into statements."""
    with pytest.raises(UsageError, match="plain name"):
        open_store('postgresql://127.0.0.1:1/corpus?schema=a"b')


def test_a_schema_of_another_program_is_left_alone(url: str) -> None:
    """A table that is there already and is none of ours is an error, and nothing is made."""
    conninfo, schema = taken_apart(url)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        connection.execute(f"CREATE TABLE {schema}.orders (id int)".encode())
    with pytest.raises(StoreError, match="another program"):
        open_store(url)


def test_reading_only_makes_nothing(url: str) -> None:
    """A store that is not there is an error, and is not there afterwards."""
    assert not store_exists(url)
    with pytest.raises(StoreError, match="there is no store"):
        open_store(url, read_only=True)
    assert not store_exists(url)
    store = open_store(url)
    store.close()
    assert store_exists(url)


def test_a_store_of_a_newer_format_is_refused(url: str) -> None:
    """It says which formats are meant."""
    open_store(url).close()
    conninfo, schema = taken_apart(url)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"UPDATE {schema}.meta SET value = '99'".encode())
    with pytest.raises(StoreError, match="format 99"):
        open_store(url)


def test_a_lease_of_another_machine_holds_until_it_ends(url: str) -> None:
    """Its process cannot be seen, so the lease decides, by the server's clock."""
    one, other = open_store(url), open_store(url)
    key = b"k" * 20
    owner = one.join("run").owner
    assert one.write(owner, wanted=[Wanted(key)]) == ["granted"]
    conninfo, schema = taken_apart(url)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"UPDATE {schema}.owners SET host = 'elsewhere'".encode())
        second = other.join("run").owner
        assert other.write(second, wanted=[Wanted(key)]) == ["held"]
        connection.execute(f"UPDATE {schema}.owners SET lease_until = 0 WHERE host = 'elsewhere'".encode())
    assert other.write(second, wanted=[Wanted(key)]) == ["granted_again"]
    assert other.spend("run").possibly_paid_twice == 1
    one.close()
    other.close()


def test_a_transaction_that_the_server_ends_for_another_is_run_again(url: str) -> None:
    """Two that lock in opposite order deadlock; one is ended by the server, and both come to their end."""
    open_store(url).close()
    links = [Links(url, read_only=False) for _ in range(2)]
    links[0].run(
        lambda connection: connection.execute(
            "INSERT INTO shapes (name, fields) VALUES ('a', '0'), ('b', '0')"
        )
    )
    barrier = threading.Barrier(2)
    tries = [0, 0]

    def work(number: int, names: tuple[str, str]) -> None:
        def both(connection: psycopg.Connection[tuple[object, ...]]) -> None:
            tries[number] += 1
            for position, name in enumerate(names):
                connection.execute(
                    "UPDATE shapes SET fields = (fields::int + 1)::text WHERE name = %s", (name,)
                )
                if position == 0 and tries[number] == 1:
                    barrier.wait()

        links[number].run(both)

    threads = [
        threading.Thread(target=work, args=(number, names))
        for number, names in enumerate([("a", "b"), ("b", "a")])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(tries) == [1, 2]
    rows = links[0].run(lambda connection: connection.execute("SELECT fields FROM shapes").fetchall())
    assert rows == [("2",), ("2",)]
    for one in links:
        one.close()


def test_a_copy_is_left_to_the_server_s_tools(url: str) -> None:
    """The error names them."""
    store = open_store(url)
    with pytest.raises(StoreError, match="pg_dump --schema="):
        store.copy_to("copy.db")
    store.close()


def test_owners_claims_of_many_threads_do_not_meet(url: str) -> None:
    """Eight owners ask for the same keys in different orders; each key is granted once."""
    stores: list[Store] = [open_store(url) for _ in range(8)]
    keys = [number.to_bytes(20, "big") for number in range(200)]
    granted: list[int] = []

    def work(number: int, store: Store, owner: int) -> None:
        turned = keys[number * 25 :] + keys[: number * 25]
        got = 0
        for start in range(0, 200, 40):
            group = turned[start : start + 40] if number % 2 else turned[start : start + 40][::-1]
            got += store.write(owner, wanted=[Wanted(key) for key in group]).count("granted")
        granted.append(got)

    threads = [
        threading.Thread(target=work, args=(number, store, store.join("run").owner))
        for number, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(granted) == 200
    for store in stores:
        store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_opens_a_link_of_its_own(url: str) -> None:
    """What the parent has idle is not used by a forked child, and goes on working after the child has ended."""
    links = Links(url, read_only=False)
    ours = links.run(lambda connection: connection.info.backend_pid)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        theirs = links.run(lambda connection: connection.info.backend_pid)
        os.write(writing, str(theirs).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reading, 20)) != ours
    assert links.run(lambda connection: connection.info.backend_pid) == ours
    os.close(reading)
    os.close(writing)
    links.close()


def test_reserving_and_settling_do_not_wait_for_one_another(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both lock a run and its owner, in the same order: the server has to end neither of them, which takes a second."""
    ended: list[float] = []
    monkeypatch.setattr("corpusmill.store.postgres.links.time.sleep", ended.append)
    store = open_store(url)
    owner = store.join("run").owner
    budget, left = Budget(tokens=10**9), iter(range(300))

    def settle() -> None:
        for number in left:
            key = number.to_bytes(20, "big")
            cost = Cost(attempts=1, reserved_tokens=1)
            store.write(owner, releases=[Release(key=key, possibly_paid=False, cost=cost)])

    settling = threading.Thread(target=settle)
    settling.start()
    while settling.is_alive():
        assert store.reserve(owner, tokens=1, usd=0.0, budget=budget) == "granted"
    settling.join()
    assert store.spend("run").attempts == 300
    assert ended == []
    store.close()
