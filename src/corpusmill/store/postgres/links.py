"""Connections to the server: one for each thread that needs one at the moment, kept for the next.

A transaction that the server ended for the sake of another one (a deadlock, a conflict) is run again, and so is one
whose server went away, for as long as `Outage` waits for it. Whatever else goes wrong is a `StoreError` that names the
server and never the password.
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
from corpusmill.store.postgres.outage import AwayError, Outage, is_lost
from corpusmill.store.postgres.receipts import Receipts
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

KEEPALIVES = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""libpq's options by which a server that died without a word is found dead within half a minute, where it would take
two hours. Those that the URL names come first."""

IDLE_SECONDS = 30
"""Seconds after which the server ends a transaction in which it hears nothing: of a client that is gone without a word,
whose locks all others would wait for."""


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
        self._receipts = Receipts()
        self.outage = Outage(self.shown)
        try:
            self.run(lambda connection: create(connection, self.schema, self.shown, read_only=read_only))
        except BaseException:
            self.close()
            raise
        self.outage.be_patient()

    def run(self, work: Callable[[Connection], T], *, durable: bool = True, once: bool = False) -> T:
        """Run `work` in a transaction, and run it again when the server asks for that, or has been away.

        With `durable` it survives a power cut of the server once this returns, else only a kill of this process. What
        must not take effect twice is run `once`: a commit may have been done that the server could not tell of.
        """
        receipt = self._receipts.next() if once else None
        results: list[T] = []
        conflicts = losses = 0
        since: float | None = None
        while True:
            try:
                with self._explained(), self._connection() as connection, connection.transaction():
                    if not durable:
                        connection.execute("SET LOCAL synchronous_commit = off")
                    if receipt is None or receipt.write_down(connection):
                        results.append(work(connection))
            except _AgainError as error:
                conflicts += 1
                if conflicts == TRIES:
                    raise StoreError(f"store {self.shown}: others kept getting in the way") from error
                time.sleep(0.01 * conflicts)
            except AwayError as error:
                since = self.outage.begin() if since is None else since
                self._drop_idle()
                reason = _reason(error.__cause__)
                if not self.outage.pause(since, losses, reason):
                    raise StoreError(self.outage.given_up(since, reason)) from error.__cause__
                losses += 1
            else:
                self.outage.over()
                if receipt is not None:
                    receipt.confirm(durable=durable)
                # Where the receipt was there already, it is of the last of its runs that came to an end.
                return results[-1]

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back."""
        with self._lock:
            self._closed = True
        self.outage.end()
        self._drop_idle()

    def _drop_idle(self) -> None:
        with self._lock:
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
        try:
            if connection is None:
                connection = self._open()
            yield connection
        except _psycopg().Error as error:
            closed = connection is None or connection.closed
            if not is_lost(error, closed=closed):
                raise
            if connection is not None:
                connection.close()
            raise AwayError from error
        finally:
            if connection is not None:
                self._take_back(connection)

    def _take_back(self, connection: Connection) -> None:
        with self._lock:
            # A lost connection is closed, too.
            keep = not (self._closed or connection.closed)
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()

    def _open(self) -> Connection:
        psycopg = _psycopg()
        options = {**KEEPALIVES, **psycopg.conninfo.conninfo_to_dict(self._conninfo)}
        options |= {"connect_timeout": PATIENCE_SECONDS, "application_name": "corpusmill"}
        connection: Connection = psycopg.connect(**options, autocommit=True)
        try:
            # The name is quoted by its making: it is checked to be a plain one.
            connection.execute(f'SET search_path TO "{self.schema}"'.encode())
            connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'".encode())
            if self._read_only:
                connection.execute("SET default_transaction_read_only = on")
        except BaseException:
            connection.close()
            raise
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
            raise StoreError(f"store {self.shown}: {_reason(error)}") from error


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
        raise StoreError(f"store {shown_url(url)}: {_reason(error)}") from error
    return found is not None


def _reason(error: BaseException | None) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0]


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
