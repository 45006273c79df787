"""Receipts: what tells whether a transaction took effect of whose commit nobody heard.

Each thread has a row of its own, and a transaction that must happen once writes its number there first of all. When it
is run again, the row tells: it holds the number if the first one was committed. If that one is still at it, behind a
connection that only we have lost, the row is locked, and the second waits until the first has come to its end.

The numbers of the server's own transactions would not do. After a crash or a failover they are given to others, and
what the server then says of one (`pg_xact_status`) is about theirs.
"""

from __future__ import annotations

import os
import threading
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from corpusmill.errors import StoreError

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

KEPT_SECONDS = 7 * 24 * 3_600.0
"""Seconds for which a receipt is kept: for as long as a machine may sleep in the middle of a transaction."""

_WRITE_DOWN = """
WITH before AS (SELECT number FROM receipts WHERE name = %(name)s)
INSERT INTO receipts AS mine (name, number, at)
VALUES (%(name)s, %(number)s, extract(epoch FROM clock_timestamp()))
ON CONFLICT (name) DO UPDATE SET number = excluded.number, at = excluded.at WHERE mine.number < excluded.number
RETURNING (SELECT number FROM before)
"""


@dataclass(slots=True)
class Receipt:
    """A thread's row: the number of its last transaction, and of the last one that it was told to be durable.

    `behind` tells that the server knew no more of the latter.
    """

    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    process: int = field(default_factory=os.getpid)
    number: int = 0
    durable: int = 0
    behind: bool = False

    def write_down(self, connection: Connection) -> bool:
        """Write the transaction down, first of all; False when it was committed already, and is not to be run again."""
        row = connection.execute(_WRITE_DOWN, {"name": self.name, "number": self.number}).fetchone()
        if row is None:
            return False
        self.behind = row[0] is not None and row[0] < self.durable
        return True

    def confirm(self, *, durable: bool) -> None:
        """Note that the transaction is committed.

        Raises `StoreError` when the server has lost what it had made durable, so that nobody goes on as if it were
        there; what was just committed is kept all the same.
        """
        if durable or self.behind:
            self.durable = self.number
        if self.behind:
            self.behind = False
            raise StoreError(
                "the store's server has lost what it had committed, as does a replica that lags behind when it takes "
                "over; run again: what it no longer has is asked anew"
            )


class Receipts:
    """The receipts of one store in this process. A child of a fork has its own."""

    def __init__(self) -> None:
        self._local = threading.local()

    def next(self) -> Receipt:
        """Give this thread's row, with the number of a new transaction."""
        receipt: Receipt | None = getattr(self._local, "receipt", None)
        if receipt is None or receipt.process != os.getpid():
            receipt = self._local.receipt = Receipt()
        receipt.number += 1
        return receipt


def sweep(connection: Connection, now: float) -> None:
    """Remove the receipts that nobody comes back to."""
    connection.execute("DELETE FROM receipts WHERE at < %s", (now - KEPT_SECONDS,))
