"""SQLite connections: one for each thread, closed across a fork, with errors in plain words.

SQLite keeps its notion of which locks a process holds in memory, by file. A child that inherits it believes
in locks that only its parent has, even on connections of its own, and ruins the file. So whatever is open is
closed before `os.fork` and opened again by whoever needs it, on both sides. `subprocess` does not run these
hooks and needs none.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

from corpusmill.errors import StoreError
from corpusmill.store import schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BUSY_SECONDS = 60.0
"""How long to wait for the lock of another process before giving up; a commit takes milliseconds."""

CACHE_KIB = 16_384
"""Memory for the pages of one connection; the system's own cache holds the rest of the file."""

_MAGIC = b"SQLite format 3\0"

WAL_BYTES = 64 * 1024 * 1024
"""To what size the write-ahead log is cut back after a checkpoint."""


class _Handle:
    """What one thread has open. Whoever uses the connection holds the lock."""

    __slots__ = ("__weakref__", "connection", "durable", "file", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: sqlite3.Connection | None = None
        self.durable = True
        self.file: tuple[int, int] | None = None

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:
        self.close()


class Connections:
    """The connections of one store in this process."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path = path
        self._read_only = read_only
        self._guard = threading.Lock()
        self._local = threading.local()
        self._handles: weakref.WeakSet[_Handle] = weakref.WeakSet()
        self._suspended: list[_Handle] = []
        self._closed = False
        with _open_guard:
            _open_now.add(self)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend this thread's connection."""
        handle = self._handle()
        with handle.lock, explained(self.path):
            yield self._connected(handle)

    @contextmanager
    def writing(
        self, *, durable: bool = True, undo: Callable[[], None] | None = None
    ) -> Iterator[sqlite3.Connection]:
        """Lend this thread's connection within a transaction, which is committed at the end.

        What is `durable` survives a power cut; the rest survives the end of the process, and is cheaper.
        `undo` is called before a rollback, while nobody else can write.
        """
        if self._read_only:
            raise StoreError(f"store {self.path} was opened for reading only")
        handle = self._handle()
        with handle.lock, explained(self.path):
            connection = self._connected(handle)
            if durable and handle.file is not None and handle.file != _file_at(self.path):
                # An open file lives on without its name, and what is written to it would be gone at the end.
                raise StoreError(
                    f"store {self.path} was removed or replaced while it was in use; what this run still holds cannot "
                    "be kept. Put the file back, or start again with a new store"
                )
            if handle.durable is not durable:
                connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                handle.durable = durable
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if undo is not None:
                    undo()
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the connections of all threads; the last one of all processes empties the write-ahead log."""
        with _open_guard:
            _open_now.discard(self)
        with self._guard:
            self._closed = True
            handles = list(self._handles)
        for handle in handles:
            with handle.lock:
                handle.close()

    def _handle(self) -> _Handle:
        handle: _Handle | None = getattr(self._local, "handle", None)
        if handle is None:
            handle = self._local.handle = _Handle()
            with self._guard:
                self._handles.add(handle)
        return handle

    def _connected(self, handle: _Handle) -> sqlite3.Connection:
        if handle.connection is None:
            if self._closed:
                raise StoreError(f"store {self.path} is closed")
            handle.connection = _connect(self.path, read_only=self._read_only)
            handle.file = _file_at(self.path)
            handle.durable = True
        return handle.connection

    def suspend(self) -> None:
        """Wait for what is going on and close everything; nobody else gets a connection until `resume`."""
        self._guard.acquire()
        self._suspended = list(self._handles)
        for handle in self._suspended:
            handle.lock.acquire()
            handle.close()

    def resume(self) -> None:
        """End what `suspend` began."""
        for handle in self._suspended:
            handle.lock.release()
        self._suspended = []
        self._guard.release()


_open_guard = threading.Lock()
_open_now: weakref.WeakSet[Connections] = weakref.WeakSet()
_suspended: list[Connections] = []


def _before_fork() -> None:
    _open_guard.acquire()
    _suspended.extend(_open_now)
    for connections in _suspended:
        connections.suspend()


def _after_fork() -> None:
    for connections in _suspended:
        connections.resume()
    _suspended.clear()
    _open_guard.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    _refuse_garbage(path)
    if read_only:
        return _connect_to_read(path)
    connection = _open(f"{path.as_uri()}?mode=rwc")
    try:
        if not schema.is_store(connection, str(path)):
            connection.execute(f"PRAGMA page_size = {schema.PAGE_SIZE}")
            _switch_to_wal(connection)
            schema.create(connection, str(path))
        _refuse_truncated(connection, path)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_to_read(path: Path) -> sqlite3.Connection:
    # Readers of a write-ahead log share a second file with its writers, so the folder has to be writable.
    # Where it is not, and there is no log, the one file is all there is and cannot change.
    log = path.with_name(path.name + "-wal")
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    mode = "mode=rw" if writable else "mode=ro" if log.exists() else "mode=ro&immutable=1"
    connection = _open(f"{path.as_uri()}?{mode}")
    try:
        if not schema.is_store(connection, str(path)):
            raise StoreError(f"store {path} is empty")  # noqa: TRY301 - closed below like after any other
        _refuse_truncated(connection, path)
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _file_at(path: Path) -> tuple[int, int] | None:
    """Tell which file lies at a path, None when there is none or the platform does not number its files."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return (found.st_dev, found.st_ino)


def _refuse_garbage(path: Path) -> None:
    # SQLite takes a file of a few bytes for an empty database and writes over them.
    try:
        with path.open("rb") as file:
            beginning = file.read(len(_MAGIC))
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"store {path} cannot be read ({error.strerror})") from error
    if beginning and beginning != _MAGIC:
        raise StoreError(
            f"{path} is no store: nothing was changed. Name another file, or restore it from a copy"
        )


def _refuse_truncated(connection: sqlite3.Connection, path: Path) -> None:
    # SQLite finds missing pages by itself, but not a last one that is there in part. What the log holds need not be
    # in the file yet; when the log is empty, everything has to be.
    connection.execute("BEGIN")
    try:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        log = path.with_name(path.name + "-wal")
        logged = log.exists() and log.stat().st_size > 0
        size = path.stat().st_size
    finally:
        connection.execute("COMMIT")
    if not logged and size < pages * page_size:
        raise StoreError(
            f"store {path} is cut short: it has {size:,} bytes of {pages * page_size:,}. Nothing was changed. "
            "Restore it from a copy, or name another file"
        )


def _open(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return connection


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    # This statement does not wait for locks by itself; another process may be making the same file.
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
        else:
            return


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an error of SQLite into a `StoreError` that names the file and says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(_explain(error, path)) from error


def _explain(error: sqlite3.Error, path: Path) -> str:
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return (
            f"store {path} cannot be read ({error}): it is damaged, cut short, or no store. "
            "Nothing was changed. Restore it from a copy, or name another file"
        )
    if primary in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return f"store {path} cannot be written ({error}): {_free(path)}. What was committed is kept"
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return (
            f"store {path} cannot be opened for writing ({error}): {_free(path)}. "
            "Check the permissions of the file and of its folder"
        )
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"store {path} was locked by another process for more than {BUSY_SECONDS:.0f} s ({error})"
    return f"store {path}: {error}"


def _free(path: Path) -> str:
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        return f"the free space of {path.parent} is unknown ({error.strerror})"
    return f"{free:,} bytes are free in {path.parent}"
