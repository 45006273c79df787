"""One writer a sink.

On a local disk a lock that dies with its process; in an object store a note with an expiry.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.errors import SinkError
from corpusmill.tables.storage import failures_as

if TYPE_CHECKING:
    from collections.abc import Iterator

    from corpusmill.tables.layout import Layout


@contextlib.contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Hold the sink.

    Raises:
        SinkError: another run holds it; names the holder.
    """
    if not layout.target.local:
        yield
        return
    place = layout.target.beside(f"{layout.hidden}.lock") if layout.beside else layout.sidecars / ".lock"
    with failures_as(SinkError, "cannot lock", layout.target):
        place.parent.make_folder()
        handle = _acquire(place.path, layout.target.shown)
    try:
        yield
    finally:
        # Removed while it is still held: whoever waits for the name finds a new file.
        with contextlib.suppress(OSError):
            Path(place.path).unlink()
        os.close(handle)


def _acquire(path: str, shown: str) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        held = _try(handle)
        if held and _still_there(handle, path):
            os.ftruncate(handle, 0)
            os.write(handle, json.dumps({"host": socket.gethostname(), "pid": os.getpid()}).encode())
            return handle
        holder = "" if held else _holder(handle)
        os.close(handle)
        if not held:
            raise SinkError(f"{shown} is being written by {holder}; wait for it to end, or end it")


def _still_there(handle: int, path: str) -> bool:
    """Whether the name still means this file: its last holder removes it, perhaps after we had opened it."""
    try:
        return Path(path).stat().st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False


def _try(handle: int) -> bool:
    """Take the lock without waiting."""
    try:
        if os.name == "posix":
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            windows: Any = msvcrt
            windows.locking(handle, windows.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _holder(handle: int) -> str:
    try:
        note = json.loads(os.read(handle, 4096))
        return f"process {note['pid']} on {note['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
