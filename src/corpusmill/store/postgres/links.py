"""Connections to the server: one for each thread that needs one at the moment, kept for the next.

A transaction that the server ended for the sake of another one (a deadlock, a conflict) is run again; whatever else
goes wrong is a `StoreError` that names the server and never the password.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from corpusmill.endpoints.endpoint import shown_url
from corpusmill.errors import MissingExtraError, StoreError, UsageError
from corpusmill.store.postgres.tables import create

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

T = TypeVar("T")

SCHEMA = "corpusmill"
"""The schema in which the tables lie, unless the URL says `?schema=another`."""

TRIES = 8
"""Runs of a transaction that others keep getting in the way of."""

PATIENCE_SECONDS = 10


class Links:
    """The connections of one store. Opened lazily; usable from any thread, and of no use after a fork."""

    def __init__(self, url: str, *, read_only: bool) -> None:
        self._conninfo, self.schema = taken_apart(url)
        self.shown = shown_url(url)
        self._read_only = read_only
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._not_ours: list[Connection] = []
        self._closed = False
        self._process = os.getpid()
        try:
            self.run(lambda connection: create(connection, self.schema, self.shown, read_only=read_only))
        except BaseException:
            self.close()
            raise

    def run(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Run `work` in a transaction, and run it again when the server asks for that.

        With `durable` it survives a power cut of the server once this returns, else only a kill of this process.
        """
        for left in reversed(range(TRIES)):
            try:
                with self._explained(), self._connection() as connection, connection.transaction():
                    if not durable:
                        connection.execute("SET LOCAL synchronous_commit = off")
                    return work(connection)
            except _AgainError as error:
                if left == 0:
                    raise StoreError(f"store {self.shown}: others kept getting in the way") from error
                time.sleep(0.01 * (TRIES - left))
        raise AssertionError

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            if self._process == os.getpid():
                connection.close()

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Connection]:
        with self._lock:
            if self._closed:
                raise StoreError(f"store {self.shown} is closed")
            if self._process != os.getpid():
                # What a parent has opened is its own: two processes on one link would read each other's answers, and
                # closing it here would end it there.
                self._not_ours.extend(self._idle)
                self._idle = []
                self._process = os.getpid()
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._open()
        try:
            yield connection
        finally:
            with self._lock:
                # A lost connection is closed, too; the type checker knows of one moment only.
                keep = not (self._closed or connection.closed)  # type: ignore[redundant-expr]
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()

    def _open(self) -> Connection:
        psycopg = _psycopg()
        connection: Connection = psycopg.connect(
            self._conninfo,
            autocommit=True,
            connect_timeout=PATIENCE_SECONDS,
            application_name="corpusmill",
        )
        # The name is quoted by its making: it is checked to be a plain one.
        connection.execute(f'SET search_path TO "{self.schema}"'.encode())
        if self._read_only:
            connection.execute("SET default_transaction_read_only = on")
        return connection

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        psycopg = _psycopg()
        try:
            yield
        except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure) as error:
            raise _AgainError from error
        except psycopg.errors.UndefinedTable as error:
            raise StoreError(
                f"store {self.shown}: there is no store in the schema {self.schema!r}"
            ) from error
        except psycopg.errors.DiskFull as error:
            raise StoreError(
                f"store {self.shown}: the server's disk is full; make room and run again"
            ) from error
        except psycopg.Error as error:
            reason = (str(error).strip() or type(error).__name__).partition("\n")[0]
            raise StoreError(f"store {self.shown}: {reason}") from error


def exists(url: str) -> bool:
    """Tell whether there is a store at a URL. Raises `StoreError` when the server cannot be asked."""
    conninfo, schema = taken_apart(url)
    psycopg = _psycopg()
    try:
        with psycopg.connect(conninfo, connect_timeout=PATIENCE_SECONDS) as connection:
            found = connection.execute(
                "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = 'completions'",
                (schema,),
            ).fetchone()
    except psycopg.Error as error:
        reason = (str(error).strip() or type(error).__name__).partition("\n")[0]
        raise StoreError(f"store {shown_url(url)}: {reason}") from error
    return found is not None


class _AgainError(Exception):
    """The server ended a transaction for the sake of another one."""


def taken_apart(url: str) -> tuple[str, str]:
    """Give the URL as the server's client library wants it, and the schema of the tables."""
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(options).get("schema", SCHEMA)
    if not schema.isidentifier() or not schema.isascii():
        raise UsageError(f"store {shown_url(url)!r}: the schema is {schema!r}; it must be a plain name")
    rest = urlencode([(name, value) for name, value in options if name != "schema"])
    return parts._replace(scheme="postgresql", query=rest).geturl(), schema


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise MissingExtraError("a store in PostgreSQL needs psycopg: install corpusmill[postgres]") from None
    return psycopg
