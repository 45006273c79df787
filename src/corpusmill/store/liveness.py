"""Who is alive: owners on this machine by their process, owners elsewhere by their lease.

A process id alone proves nothing, because it is given out again; with the process's time of creation it does.
A process that was killed and that nobody has waited for yet (a zombie) is dead. Containers that share a file
but not the process ids count as other machines.
"""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

LEASE = 30.0
"""Seconds for which an owner on another machine is believed to live without a heartbeat."""

SAME_CREATION = 2.0
"""Seconds by which two readings of one process's creation may differ: it is derived from the wall clock."""


here: set[str] = set()
"""The invocations that go on in this process; one of its own that is not among them has ended without a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """An owner's process: the machine, the process id, and when the process was created (Unix seconds)."""

    host: str
    pid: int
    created_at: float


def this_process() -> Process:
    """Describe the process that calls."""
    pid = os.getpid()
    return Process(host=this_host(), pid=pid, created_at=psutil.Process(pid).create_time())


@cache
def this_host() -> str:
    """Name the space in which a process id means something: the machine and its namespace of process ids."""
    machine = f"{uuid.getnode():012x}"
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            machine = Path(path).read_text("ascii").strip() or machine
        except (OSError, UnicodeDecodeError):
            continue
        break
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return f"{socket.gethostname()}/{machine}/{namespace}"


def created_at(pid: int) -> float | None:
    """Tell when the living process of this id was created; None when there is none."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.create_time()
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        # It exists and is somebody else's; whether it is the owner cannot be told, so it is given the
        # benefit.
        return float("nan")


def lives(owner: Process, *, invocation: str, lease_until: float, now: float) -> bool:
    """Tell whether an owner lives, as seen from this process, which knows which of its own invocations go on."""
    if owner.host == this_host() and owner.pid == os.getpid() and invocation not in here:
        return False
    return is_alive(owner, lease_until=lease_until, host=this_host(), now=now)


def is_alive(
    owner: Process,
    *,
    lease_until: float,
    host: str,
    now: float,
    creation: Callable[[int], float | None] = created_at,
) -> bool:
    """Tell whether an owner lives, as seen from `host` at `now`."""
    if owner.host != host:
        return now < lease_until
    created = creation(owner.pid)
    if created is None:
        return False
    return not abs(created - owner.created_at) > SAME_CREATION
