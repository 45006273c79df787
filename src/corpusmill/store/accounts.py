"""Owners, runs, and what they spend: statements within a transaction that somebody else opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.errors import StoreError
from corpusmill.store import liveness
from corpusmill.store.deciding import reservation, total
from corpusmill.store.liveness import LEASE, Process, this_process
from corpusmill.store.protocol import Membership, Spend

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from corpusmill.policy import Budget
    from corpusmill.store.protocol import Cost, Reservation


def join(
    connection: sqlite3.Connection, *, run_key: str, label: str, invocation: str, now: float
) -> Membership:
    """Register this process as an owner, after the dead have been buried."""
    bury(connection, now)
    connection.execute("DELETE FROM runs WHERE run_key = ? AND finished_at IS NOT NULL", (run_key,))
    connection.execute(
        "INSERT OR IGNORE INTO runs (run_key, label, first_started_at) VALUES (?, ?, ?)",
        (run_key, label, now),
    )
    owner = register(connection, None, run_key=run_key, invocation=invocation, now=now)
    (first,) = connection.execute(
        "SELECT first_started_at FROM runs WHERE run_key = ?", (run_key,)
    ).fetchone()
    return Membership(
        owner=owner,
        invocation=invocation,
        run_key=run_key,
        first_started_at=first,
        spend=spend_of(connection, run_key),
    )


def register(
    connection: sqlite3.Connection, owner: int | None, *, run_key: str, invocation: str, now: float
) -> int:
    """Note down this process as an owner, under a new number or under the one that it had."""
    process = this_process()
    number = connection.execute(
        "INSERT INTO owners (id, run_key, invocation, host, pid, process_created_at, joined_at, lease_until) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (owner, run_key, invocation, process.host, process.pid, process.created_at, now, now + LEASE),
    ).lastrowid
    if number is None:
        raise StoreError("the store gave the new owner no number")
    liveness.here.add(invocation)
    return number


def bury(connection: sqlite3.Connection, now: float) -> None:
    """Remove the owners that died; what they were asking is marked as lost."""
    for (owner,) in connection.execute("SELECT id FROM owners").fetchall():
        if not lives(connection, owner, now):
            connection.execute("UPDATE claims SET lost = 1 WHERE owner = ?", (owner,))
            connection.execute("DELETE FROM owners WHERE id = ?", (owner,))


def lives(connection: sqlite3.Connection, owner: int, now: float) -> bool:
    """Tell whether an owner lives; one that has left does not."""
    row = connection.execute(
        "SELECT invocation, host, pid, process_created_at, lease_until FROM owners WHERE id = ?", (owner,)
    ).fetchone()
    if row is None:
        return False
    invocation, host, pid, created_at, lease_until = row
    process = Process(host=host, pid=pid, created_at=created_at)
    return liveness.lives(process, invocation=invocation, lease_until=lease_until, now=now)


def run_key_of(connection: sqlite3.Connection, owner: int) -> str:
    """Give the run key under which an owner joined."""
    row = connection.execute("SELECT run_key FROM owners WHERE id = ?", (owner,)).fetchone()
    if row is None:
        raise StoreError(f"the store knows no owner {owner}: it has never joined, or has left")
    run_key: str = row[0]
    return run_key


_SPEND = ("requests", "attempts", "prompt_tokens", "completion_tokens", "usd", "possibly_paid_twice")
_SELECT_SPEND = f"SELECT {', '.join(_SPEND)} FROM runs WHERE run_key = ?"  # noqa: S608 - our own names


def spend_of(connection: sqlite3.Connection, run_key: str) -> Spend:
    """Give what a run key has spent; nothing for an unknown one."""
    row = connection.execute(_SELECT_SPEND, (run_key,)).fetchone()
    return Spend() if row is None else Spend(**dict(zip(_SPEND, row, strict=True)))


def settle(
    connection: sqlite3.Connection,
    owner: int,
    run_key: str,
    costs: Sequence[Cost],
    *,
    requests: int,
    possibly_paid_twice: int,
) -> None:
    """Add costs to the run's account, and give back what was reserved for them."""
    cost = total(costs)
    connection.execute(
        "UPDATE runs SET requests = requests + ?, attempts = attempts + ?, prompt_tokens = prompt_tokens + ?, "
        "completion_tokens = completion_tokens + ?, usd = usd + ?, "
        "possibly_paid_twice = possibly_paid_twice + ? WHERE run_key = ?",
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
            "UPDATE owners SET reserved_tokens = max(0, reserved_tokens - ?), "
            "reserved_usd = max(0.0, reserved_usd - ?) WHERE id = ?",
            (cost.reserved_tokens, cost.reserved_usd, owner),
        )


def reserve(
    connection: sqlite3.Connection,
    owner: int,
    run_key: str,
    *,
    tokens: int,
    usd: float,
    budget: Budget,
    now: float,
) -> Reservation:
    """Set so much of the budget aside, if it fits beside what is spent and what the living have reserved."""
    spent = spend_of(connection, run_key)
    owners = connection.execute(
        "SELECT id, reserved_tokens, reserved_usd FROM owners "
        "WHERE run_key = ? AND (reserved_tokens > 0 OR reserved_usd > 0)",
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
            "UPDATE owners SET reserved_tokens = reserved_tokens + ?, reserved_usd = reserved_usd + ? WHERE id = ?",
            (tokens, usd, owner),
        )
    return decided
