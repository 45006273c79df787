"""Owners, runs and what they spend: statements within a transaction. Time is the server's, one for all machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corpusmill.errors import StoreError
from corpusmill.store import liveness
from corpusmill.store.deciding import reservation, total
from corpusmill.store.liveness import Process, this_process
from corpusmill.store.packing import text
from corpusmill.store.postgres.outage import WAIT_SECONDS
from corpusmill.store.postgres.receipts import sweep
from corpusmill.store.protocol import Membership, Spend

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from corpusmill.policy import Budget
    from corpusmill.store.protocol import Cost, Reservation

    Connection = psycopg.Connection[tuple[Any, ...]]

LEASE = liveness.LEASE + WAIT_SECONDS
"""Seconds for which an owner on another machine is believed to live without a heartbeat: for so long it may have lost
the server and come back, as may whoever would take it for dead."""

_SPEND = ("requests", "attempts", "prompt_tokens", "completion_tokens", "usd", "possibly_paid_twice")
_SELECT_SPEND = f"SELECT {', '.join(_SPEND)} FROM runs WHERE run_key = %s".encode()  # noqa: S608 - our own names


def now_of(connection: Connection) -> float:
    """Tell the server's time in Unix seconds."""
    (now,) = fetched(connection, "SELECT extract(epoch FROM clock_timestamp())::double precision")
    return float(now)


def fetched(connection: Connection, query: str, values: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Give the one row that a query always has."""
    row = connection.execute(query.encode(), values).fetchone()
    if row is None:
        raise StoreError("the store's tables are damaged: a row is missing that is always there")
    return row


def clean(value: str | None) -> str | None:
    """Give a text that PostgreSQL takes: without NUL and halves of surrogate pairs."""
    cleaned = text(value)
    return None if cleaned is None else cleaned.replace("\0", "\ufffd")


def join(connection: Connection, *, run_key: str, label: str, invocation: str) -> Membership:
    """Register this process as an owner, after the dead have been buried."""
    now = now_of(connection)
    bury(connection, now)
    sweep(connection, now)
    connection.execute("DELETE FROM runs WHERE run_key = %s AND finished_at IS NOT NULL", (run_key,))
    connection.execute(
        "INSERT INTO runs (run_key, label, first_started_at) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        (run_key, clean(label), now),
    )
    owner = register(connection, None, run_key=run_key, invocation=invocation, now=now)
    (first,) = fetched(connection, "SELECT first_started_at FROM runs WHERE run_key = %s", (run_key,))
    return Membership(
        owner=owner,
        invocation=invocation,
        run_key=run_key,
        first_started_at=first,
        spend=spend_of(connection, run_key),
    )


def register(connection: Connection, owner: int | None, *, run_key: str, invocation: str, now: float) -> int:
    """Note down this process as an owner, under a new number or under the one that it had."""
    process = this_process()
    values = (run_key, invocation, process.host, process.pid, process.created_at, now, now + LEASE)
    columns = "run_key, invocation, host, pid, process_created_at, joined_at, lease_until"
    liveness.here.add(invocation)
    if owner is None:
        (number,) = fetched(
            connection,
            f"INSERT INTO owners ({columns}) VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING id",  # noqa: S608 - ours
            values,
        )
        return int(number)
    connection.execute(
        f"INSERT INTO owners (id, {columns}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)".encode(),  # noqa: S608
        (owner, *values),
    )
    return owner


def bury(connection: Connection, now: float) -> None:
    """Remove the owners that died; what they were asking is marked as lost."""
    for (owner,) in connection.execute("SELECT id FROM owners ORDER BY id").fetchall():
        if not lives(connection, owner, now):
            connection.execute("UPDATE claims SET lost = true WHERE owner = %s", (owner,))
            connection.execute("DELETE FROM owners WHERE id = %s", (owner,))


def lives(connection: Connection, owner: int, now: float) -> bool:
    """Tell whether an owner lives; one that has left does not."""
    row = connection.execute(
        "SELECT invocation, host, pid, process_created_at, lease_until FROM owners WHERE id = %s", (owner,)
    ).fetchone()
    if row is None:
        return False
    invocation, host, pid, created_at, lease_until = row
    process = Process(host=host, pid=pid, created_at=created_at)
    return liveness.lives(process, invocation=invocation, lease_until=lease_until, now=now)


def run_key_of(connection: Connection, owner: int) -> str:
    """Give the run key under which an owner joined."""
    row = connection.execute("SELECT run_key FROM owners WHERE id = %s", (owner,)).fetchone()
    if row is None:
        raise StoreError(f"the store knows no owner {owner}: it has never joined, or has left")
    return str(row[0])


def spend_of(connection: Connection, run_key: str) -> Spend:
    """Give what a run key has spent; nothing for an unknown one."""
    row = connection.execute(_SELECT_SPEND, (run_key,)).fetchone()
    return Spend() if row is None else Spend(**dict(zip(_SPEND, row, strict=True)))


def settle(
    connection: Connection,
    owner: int,
    run_key: str,
    costs: Sequence[Cost],
    *,
    requests: int,
    possibly_paid_twice: int,
) -> None:
    """Add costs to the run's account, and give back what was reserved for them. The last step of a transaction."""
    cost = total(costs)
    # The run before its owner, as `reserve` has them: otherwise the two would wait for one another.
    connection.execute(
        "UPDATE runs SET requests = requests + %s, attempts = attempts + %s, "
        "prompt_tokens = prompt_tokens + %s, completion_tokens = completion_tokens + %s, usd = usd + %s, "
        "possibly_paid_twice = possibly_paid_twice + %s WHERE run_key = %s",
        (
            requests,
            cost.attempts,
            cost.prompt_tokens,
            cost.completion_tokens,
            cost.usd,
            possibly_paid_twice,
            run_key,
        ),
    )
    if cost.reserved_tokens or cost.reserved_usd:
        connection.execute(
            "UPDATE owners SET reserved_tokens = greatest(0, reserved_tokens - %s), "
            "reserved_usd = greatest(0.0, reserved_usd - %s) WHERE id = %s",
            (cost.reserved_tokens, cost.reserved_usd, owner),
        )


def reserve(
    connection: Connection, owner: int, run_key: str, *, tokens: int, usd: float, budget: Budget
) -> Reservation:
    """Set so much of the budget aside, if it fits beside what is spent and what the living have reserved."""
    # Whoever reserves for this run key waits here for its turn, so that no two count on the same room.
    connection.execute("SELECT 1 FROM runs WHERE run_key = %s FOR UPDATE", (run_key,))
    now = now_of(connection)
    spent = spend_of(connection, run_key)
    owners = connection.execute(
        "SELECT id, reserved_tokens, reserved_usd FROM owners "
        "WHERE run_key = %s AND (reserved_tokens > 0 OR reserved_usd > 0)",
        (run_key,),
    ).fetchall()
    set_aside = (
        (reserved_tokens, reserved_usd)
        for other, reserved_tokens, reserved_usd in owners
        if other == owner or lives(connection, other, now)
    )
    decided = reservation(budget, spent, tokens=tokens, usd=usd, set_aside=set_aside)
    if decided == "granted":
        connection.execute(
            "UPDATE owners SET reserved_tokens = reserved_tokens + %s, reserved_usd = reserved_usd + %s "
            "WHERE id = %s",
            (tokens, usd, owner),
        )
    return decided
