from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from corpusmill.errors import StoreError, UsageError
from corpusmill.store import Cost, SQLiteStore, Store, Wanted, open_store
from corpusmill.store.connections import Connections

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from corpusmill.store import Put

    KeyOf = Callable[[str], bytes]
    PutOf = Callable[..., Put]


@dataclass
class Mounted:
    mountpoint: str
    fstype: str
    opts: str = "rw"


def filled(path: Path, put_of: PutOf, *, rows: int = 200) -> None:
    """Fill a store with answers and close it."""
    store = SQLiteStore(path)
    store.write(store.join("run").owner, puts=[put_of(f"row {row}") for row in range(rows)])
    store.close()


def test_it_is_a_store(tmp_path: Path) -> None:
    """The type checker holds the class against the protocol, and the folder is made."""
    store: Store = SQLiteStore(tmp_path / "a" / "b" / "store.db")
    store.close()
    assert (tmp_path / "a" / "b" / "store.db").exists()


def test_after_a_normal_end_one_file_holds_everything(tmp_path: Path, put_of: PutOf) -> None:
    """Nothing stays behind in a log beside the file."""
    filled(tmp_path / "store.db", put_of)
    assert [path.name for path in tmp_path.iterdir()] == ["store.db"]


def test_after_a_kill_the_log_is_taken_in(tmp_path: Path, put_of: PutOf, key_of: KeyOf) -> None:
    """The file and the log of a process that was killed come to the same answers."""
    store = SQLiteStore(tmp_path / "store.db")
    store.write(store.join("run").owner, puts=[put_of("a")])
    killed = tmp_path / "killed"
    killed.mkdir()
    for name in ("store.db", "store.db-wal"):
        shutil.copy(tmp_path / name, killed / name)
    store.close()
    copy = SQLiteStore(killed / "store.db")
    assert set(copy.get_many([key_of("a")])) == {key_of("a")}
    copy.close()


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """Zero bytes are what a temporary file starts with, and hold nothing to lose."""
    path = tmp_path / "store.db"
    path.touch()
    store = SQLiteStore(path)
    assert store.stats().completions == 0
    store.close()


@pytest.mark.parametrize(
    "content", [b"x", b"garbage " * 5000, b"SQLite format 3\0", b"SQLite format 3\0" + b"\xff" * 9000]
)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(
    tmp_path: Path,
    content: bytes,
    read_only: bool,  # noqa: FBT001 - two cases
) -> None:
    """Garbage is an error that names the file, never an empty store in its place."""
    path = tmp_path / "store.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"store\.db"):
        SQLiteStore(path, read_only=read_only)
    assert path.read_bytes() == content
    assert [each.name for each in tmp_path.iterdir()] == ["store.db"]


@pytest.mark.parametrize("keep", [0.02, 0.5, 0.99])
def test_a_truncated_store_is_refused_and_left_as_it_is(tmp_path: Path, put_of: PutOf, keep: float) -> None:
    """A file that is shorter than it says is an error that names it."""
    path = tmp_path / "store.db"
    filled(path, put_of, rows=2000)
    os.truncate(path, int(path.stat().st_size * keep))
    content = path.read_bytes()
    with pytest.raises(StoreError, match=r"store\.db.*Restore it from a copy"):
        SQLiteStore(path)
    assert path.read_bytes() == content


def test_a_store_of_a_newer_format_is_refused(tmp_path: Path, put_of: PutOf) -> None:
    """The message says which format it has, and to upgrade."""
    path = tmp_path / "store.db"
    filled(path, put_of)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match=r"store\.db has format 99.*upgrade"):
        SQLiteStore(path)


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    """Somebody's data next to ours would be somebody's data lost."""
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    content = path.read_bytes()
    with pytest.raises(StoreError, match=r"theirs\.db is an SQLite database of another program"):
        SQLiteStore(path)
    assert path.read_bytes() == content


def test_a_page_that_is_damaged_is_an_error_when_it_is_read(
    tmp_path: Path, put_of: PutOf, key_of: KeyOf
) -> None:
    """Unreadable is not absent: a damaged page never looks like a miss."""
    path = tmp_path / "store.db"
    filled(path, put_of, rows=2000)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 4)
        file.write(b"\xa5" * (size // 2))
    with pytest.raises(StoreError, match=r"store\.db cannot be read"):
        SQLiteStore(path).get_many([key_of(f"row {row}") for row in range(2000)])


@pytest.mark.parametrize(
    "mount",
    [Mounted("/data", "nfs4"), Mounted("/data", "fuse.sshfs"), Mounted("/data", "NTFS", "rw,remote")],
)
def test_a_network_file_system_is_refused(tmp_path: Path, mount: Mounted) -> None:
    """The mount that the path lies on decides, and a local one below it does not matter."""
    mount.mountpoint = str(tmp_path.resolve() / "shared")
    table = [Mounted("/", "ext4"), mount, Mounted(f"{mount.mountpoint}/local", "ext4")]
    with pytest.raises(StoreError, match=r"store\.db lies on a network file system"):
        SQLiteStore(tmp_path / "shared" / "store.db", mounts=lambda: table)
    assert not (tmp_path / "shared").exists()
    SQLiteStore(tmp_path / "shared" / "local" / "store.db", mounts=lambda: table).close()
    SQLiteStore(tmp_path / "shared too" / "store.db", mounts=lambda: table).close()


def test_a_full_disk_is_an_error_that_names_path_and_free_space(
    tmp_path: Path, put_of: PutOf, key_of: KeyOf
) -> None:
    """What was committed before is kept, and nothing is half there."""
    store = SQLiteStore(tmp_path / "store.db")
    owner = store.join("run").owner
    store.write(owner, puts=[put_of("before")])
    with store._connections.reading() as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreError, match=r"store\.db cannot be written .*full.* bytes are free in"):
        store.write(owner, puts=[put_of("after"), put_of("huge", body=os.urandom(100_000))])
    assert set(store.get_many([key_of(name) for name in ("before", "after", "huge")])) == {key_of("before")}
    assert store.spend("run").requests == 1
    store.close()


def test_names_of_a_write_that_failed_are_not_remembered(tmp_path: Path, put_of: PutOf) -> None:
    """A number that was given out in a transaction that never was, means nothing later."""
    store = SQLiteStore(tmp_path / "store.db")
    owner = store.join("run").owner
    with pytest.raises(StoreError):
        store.write(owner, puts=[put_of("a", model="first"), put_of("b", created_at=None)])
    store.write(owner, puts=[put_of("a", model="second", invocation="i")])
    store.write(owner, puts=[put_of("b", model="first", invocation="j")])
    assert store.stats().by_model == {"first": 1, "second": 1}
    store.close()


def test_reading_only_writes_nothing(tmp_path: Path, put_of: PutOf, key_of: KeyOf) -> None:
    """A store that is opened to be read answers, refuses to write, and leaves the file as it is."""
    path = tmp_path / "store.db"
    filled(path, put_of)
    content = path.read_bytes()
    store = open_store(f"sqlite:///{path}", read_only=True)
    assert set(store.get_many([key_of("row 1")])) == {key_of("row 1")}
    with pytest.raises(StoreError, match="reading only"):
        store.join("run")
    store.close()
    assert path.read_bytes() == content
    assert [each.name for each in tmp_path.iterdir()] == ["store.db"]


def test_a_missing_store_is_not_made_by_reading(tmp_path: Path) -> None:
    """A wrong path is an error, and no file appears there."""
    with pytest.raises(StoreError, match="there is no store at"):
        SQLiteStore(tmp_path / "store.db", read_only=True)
    assert not list(tmp_path.iterdir())


def test_a_copy_is_whole_while_the_store_is_in_use(tmp_path: Path, put_of: PutOf, key_of: KeyOf) -> None:
    """The copy is one file with everything that was committed; an existing file is not overwritten."""
    store = SQLiteStore(tmp_path / "store.db")
    store.write(store.join("run").owner, puts=[put_of("a")])
    store.copy_to(tmp_path / "copies" / "copy.db")
    with pytest.raises(StoreError, match=r"copy\.db exists"):
        store.copy_to(tmp_path / "copies" / "copy.db")
    store.close()
    assert [each.name for each in (tmp_path / "copies").iterdir()] == ["copy.db"]
    copy = SQLiteStore(tmp_path / "copies" / "copy.db")
    assert set(copy.get_many([key_of("a")])) == {key_of("a")}
    copy.close()


def test_pruning_gives_the_space_back(tmp_path: Path, put_of: PutOf) -> None:
    """The file is smaller afterwards."""
    store = SQLiteStore(tmp_path / "store.db")
    owner = store.join("run").owner
    store.write(owner, puts=[put_of(str(row), body=os.urandom(2000)) for row in range(500)])
    before = store.stats().size
    assert store.prune(older_than=1e12) == 500
    assert store.stats().size < before / 2
    store.close()


def test_no_digest_names_or_text_of_a_request_lies_in_the_file(tmp_path: Path, put_of: PutOf) -> None:
    """Of a request the file holds its key and digests, cut short for what is each row's own."""
    path = tmp_path / "store.db"
    store = SQLiteStore(path)
    digest = "0123456789abcdef" * 2 + "01234567"
    store.write(
        store.join("run").owner,
        puts=[put_of("a", fields={"messages[0]": digest}, shape="s", characters=12, cost=Cost(usd=0.1))],
    )
    store.close()
    content = path.read_bytes()
    assert bytes.fromhex(digest)[:8] in content
    assert bytes.fromhex(digest)[:9] not in content
    assert digest.encode() not in content


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("mysql://me:hush@host/db", UsageError),
        ("sqlite://host/store.db", UsageError),
        ("sqlite:///", UsageError),
        ("sqlite:///a.db?mode=ro", UsageError),
        ("store.db", UsageError),
    ],
)
def test_a_url_of_another_kind_is_refused(url: str, error: type[Exception]) -> None:
    """The message shows the URL without its password, and what it should look like."""
    with pytest.raises(error, match="sqlite:////absolute/path") as caught:
        open_store(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql://me:hush@[host/db", "postgresql://me:hush\u2100@host/db"])
def test_a_url_that_cannot_be_read_is_not_shown(url: str) -> None:
    """Nothing tells where its password ends."""
    with pytest.raises(UsageError, match="percent signs") as caught:
        open_store(url)
    assert "hush" not in f"{caught.value}{caught.value.__cause__}"


def test_three_slashes_are_relative_and_four_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is what follows the third slash."""
    monkeypatch.chdir(tmp_path)
    relative = open_store("sqlite:///here/my%20store.db")
    assert isinstance(relative, SQLiteStore)
    assert relative.path == tmp_path / "here" / "my store.db"
    relative.close()
    absolute = open_store(f"sqlite:///{tmp_path}/there.db")
    assert isinstance(absolute, SQLiteStore)
    assert absolute.path == tmp_path / "there.db"
    absolute.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_parent_and_child_go_on_after_a_fork(tmp_path: Path) -> None:
    """Both sides of a fork write on, each with connections of its own, and neither loses a row."""
    script = """
import os, sys
from corpusmill.store import Entry, Put, SQLiteStore
def put(store, owner, name):
    entry = Entry(name.ljust(20).encode(), b"{}", None, "stop", 1, 1, 1, 1.0, "i")
    store.write(owner, puts=[Put(entry=entry)])
store = SQLiteStore(sys.argv[1])
owner = store.join("run").owner
put(store, owner, "before")
child = os.fork()
for row in range(50):
    put(store, owner, f"{'parent' if child else 'child'} {row}")
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(store.stats().completions)
store.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "store.db")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("101", 0), done.stderr
    with sqlite3.connect(tmp_path / "store.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_connections_are_closed_during_a_fork_and_come_back(tmp_path: Path) -> None:
    """While a process forks, nothing is open; afterwards everything is as before."""
    connections = Connections(tmp_path / "store.db", read_only=False)
    with connections.reading() as connection:
        first = connection
    connections.suspend()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        first.execute("SELECT 1")
    connections.resume()
    with connections.reading() as connection:
        assert connection is not first
    connections.close()


def test_an_owner_on_another_machine_holds_until_its_lease_ends(tmp_path: Path, key_of: KeyOf) -> None:
    """Its process cannot be seen from here, so the heartbeat decides, by the clock."""
    now = 1000.0
    store = SQLiteStore(tmp_path / "store.db", clock=lambda: now)
    far, near = store.join("run").owner, store.join("run").owner
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("UPDATE owners SET host = 'far away' WHERE id = ?", (far,))
    connection.close()
    store.write(far, wanted=[Wanted(key_of("a"))])
    now += 29.0
    assert store.write(near, wanted=[Wanted(key_of("a"))]) == ["held"]
    store.heartbeat(far)
    now += 29.0
    assert store.write(near, wanted=[Wanted(key_of("a"))]) == ["held"]
    now += 2.0
    assert store.write(near, wanted=[Wanted(key_of("a"))]) == ["granted_again"]
    assert store.spend("run").possibly_paid_twice == 1
    store.close()


def test_an_owner_that_was_taken_for_dead_holds_again_after_its_heartbeat(
    tmp_path: Path, key_of: KeyOf
) -> None:
    """A machine that slept through its lease comes back under its own number."""
    now = 1000.0
    store = SQLiteStore(tmp_path / "store.db", clock=lambda: now)
    sleeper = store.join("run").owner
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("UPDATE owners SET host = 'far away'")
    connection.close()
    now += 1000.0
    other = store.join("run").owner
    store.heartbeat(sleeper)
    assert store.write(sleeper, wanted=[Wanted(key_of("a"))]) == ["granted"]
    assert store.write(other, wanted=[Wanted(key_of("a"))]) == ["held"]
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_child_that_closes_the_store_takes_nothing_from_its_parent(tmp_path: Path) -> None:
    """The owners of a parent stay when a forked child closes what it inherited."""
    script = """
import os, sys
from corpusmill.store import SQLiteStore, Wanted
store = SQLiteStore(sys.argv[1])
owner = store.join("run").owner
assert store.write(owner, wanted=[Wanted(b"k" * 20)]) == ["granted"]
child = os.fork()
if not child:
    store.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(store.stats().claims)
store.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "store.db")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("1", 0), done.stderr


def test_a_key_of_another_length_is_refused(tmp_path: Path, put_of: PutOf) -> None:
    """A key is twenty bytes; what is not cannot be told apart from its neighbours."""
    store = SQLiteStore(tmp_path / "store.db")
    owner = store.join("run").owner
    with pytest.raises(StoreError, match="length"):
        store.write(owner, puts=[put_of("a", key=b"short")])
    store.close()


def test_a_group_too_large_for_one_value_is_read_all_the_same(
    tmp_path: Path, put_of: PutOf, key_of: KeyOf
) -> None:
    """Answers that together exceed what SQLite lets a value have are read one by one."""
    store = SQLiteStore(tmp_path / "store.db")
    puts = [put_of(str(row), body=os.urandom(3000)) for row in range(20)]
    store.write(store.join("run").owner, puts=puts)
    with store._connections.reading() as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 30_000)
    assert store.get_many([put.entry.key for put in puts]) == {put.entry.key: [put.entry] for put in puts}
    store.close()


def test_a_store_that_many_make_at_once_is_a_store_to_each_of_them(tmp_path: Path) -> None:
    """Whoever looks while another one is making the file sees nothing yet or the whole, never a stranger's."""
    failures: list[BaseException] = []

    def open_all(start: threading.Barrier) -> None:
        for round_ in range(40):
            start.wait()
            try:
                SQLiteStore(tmp_path / f"{round_}.db").close()
            except BaseException as error:  # noqa: BLE001 - shown by the assertion below
                failures.append(error)

    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=open_all, args=(barrier,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
