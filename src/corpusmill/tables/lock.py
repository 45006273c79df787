"""One writer a sink.

On a local disk the lock dies with its process. In an object store it is a note with an expiry, which its holder keeps
pushing back. There a writer first puts a note of its own, then lists all notes: whoever lists later sees both, so
that two can never both believe that they are alone (the stores list what was put before, always).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from corpusmill.errors import SinkError, SinkHeldError
from corpusmill.tables.storage import failures_as

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from corpusmill.tables.layout import Layout
    from corpusmill.tables.storage import Place

LEASE = 900.0
"""Seconds for which a note in an object store holds without being renewed."""

_LOOKS = 5
_PAUSE = 0.5


@contextlib.contextmanager
def locked(
    layout: Layout, *, clock: Callable[[], float] = time.time, sleep: Callable[[float], None] = time.sleep
) -> Iterator[None]:
    """Hold the sink. `clock` tells the seconds since the epoch.

    Raises:
        SinkHeldError: another run holds it; names the holder.
        SinkError: the place cannot be written.
    """
    hold = _locked_locally(layout) if layout.target.local else _locked_by_note(layout, clock, sleep)
    with hold:
        yield


@contextlib.contextmanager
def _locked_locally(layout: Layout) -> Iterator[None]:
    target = layout.target
    beside, within = target.beside(f"{layout.hidden}.lock"), layout.sidecars / ".lock"
    if layout.beside:
        places = [beside]
    elif os.path.ismount(target.path) or not os.access(target.parent.path, os.W_OK):
        places = [within]
    else:
        # It is the working folder of this process, and to another one it may be a folder like any other.
        places = [beside, within]
    with contextlib.ExitStack() as held:
        with failures_as(SinkError, "cannot write", target):
            for place in places:
                place.parent.make_folder()
                if not layout.beside and not os.access(target.path, os.W_OK):
                    # What is staged within the sidecars could be written, and would never get to where it belongs.
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                held.callback(_release, place.path, _acquire(place.path, target.shown))
        yield


def _release(path: str, handle: int) -> None:
    # Removed while it is still held: whoever waits for the name finds a new file.
    with contextlib.suppress(OSError):
        Path(path).unlink()
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
            raise _held_by(shown, holder)


def _held_by(shown: str, holder: str) -> SinkHeldError:
    return SinkHeldError(f"{shown} is being written by {holder}; wait for it to end, or end it")


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
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """What a writer says in an object store: who it is, until when it speaks, and whether it has the sink."""

    token: str
    host: str
    pid: int
    space: str
    expires: float
    held: bool

    @property
    def who(self) -> str:
        return f"process {self.pid} on {self.host}"


@contextlib.contextmanager
def _locked_by_note(
    layout: Layout, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[None]:
    folder = layout.sidecars / "locks"
    token = secrets.token_hex(6)
    place = folder / f"{token}.json"

    def put(*, held: bool) -> None:
        note = _Note(
            token=token,
            host=socket.gethostname(),
            pid=os.getpid(),
            space=_process_space(),
            expires=clock() + LEASE,
            held=held,
        )
        fields = {name: getattr(note, name) for name in _Note.__slots__}
        place.write_bytes(json.dumps(fields).encode())

    with failures_as(SinkError, "cannot write", layout.target):
        put(held=False)
    ended = threading.Event()
    keeper = threading.Thread(target=_keep, args=(put, ended), name="corpusmill-sink-lock", daemon=True)
    try:
        with failures_as(SinkError, "cannot write", layout.target):
            _wait_alone(folder, token, layout.target.shown, clock, sleep)
            put(held=True)
        keeper.start()
        yield
    finally:
        ended.set()
        if keeper.ident is not None:
            keeper.join()
        with contextlib.suppress(OSError):
            place.delete()


def _keep(put: Callable[..., None], ended: threading.Event) -> None:
    """Push the expiry back until the end. A put that fails is tried again at the next turn, well before expiry."""
    while not ended.wait(LEASE / 6):
        with contextlib.suppress(OSError):
            put(held=True)


def _wait_alone(
    folder: Place, token: str, shown: str, clock: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    """Return when no other note stands in the way.

    A note that holds the sink does, and so does one of a smaller token that wants it; one of a larger token will
    give way, but may have listed before ours was there, so it is watched until it holds or goes.
    """
    rivals: list[_Note] = []
    for look in range(_LOOKS):
        if look:
            sleep(_PAUSE)
        rivals = [note for note in _notes(folder, clock) if note.token != token]
        if not rivals:
            return
        for note in rivals:
            if note.held or note.token < token:
                raise _held_by(shown, note.who)
    raise _held_by(shown, rivals[0].who)


def _notes(folder: Place, clock: Callable[[], float]) -> list[_Note]:
    """The notes that still count. One that has expired, or whose process is known to be dead, is removed."""
    notes = []
    for info in folder.children():
        place = folder / info.base_name
        if not info.base_name.endswith(".json"):
            continue
        try:
            note = _Note(**json.loads(place.read_bytes()))
        except FileNotFoundError:
            continue
        if note.expires < clock() or _is_dead(note):
            place.delete()
        else:
            notes.append(note)
    return notes


def _is_dead(note: _Note) -> bool:
    """Whether the writer was a process that we would see, and do not."""
    return bool(note.space) and note.space == _process_space() and not psutil.pid_exists(note.pid)


def _process_space() -> str:
    """Where a process number means the same: this boot and this PID namespace; empty where that is not known.

    A host's name is not enough: containers may share it and not see each other's processes.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
