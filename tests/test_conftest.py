"""The network is closed, and skips have names."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

if TYPE_CHECKING:
    from tests.conftest import FakeClock

# An address for documentation (RFC 5737): nobody is there, so a hole in the fence harms nobody.
ELSEWHERE = ("192.0.2.1", 80)


def test_a_thread_cannot_connect_beyond_this_machine() -> None:
    """A connection from a thread of the test is refused before a packet leaves."""
    caught: list[BaseException] = []

    def connect() -> None:
        try:
            socket.create_connection(ELSEWHERE, timeout=5)
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    thread.join()
    assert [str(error) for error in caught] == [
        "socket.getaddrinfo to '192.0.2.1': tests speak to this machine only"
    ]


def test_an_event_loop_cannot_connect_beyond_this_machine() -> None:
    """Asyncio's own way to connect is closed too, and does not pass for a network error that is retried."""

    async def connect() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, ELSEWHERE)

    with pytest.raises(RuntimeError, match=r"socket\.connect to '192\.0\.2\.1'"):
        asyncio.run(connect())


def test_a_name_is_not_looked_up_beyond_this_machine() -> None:
    """No name server is asked, but a host under `.invalid` is unknown just as it would be to a resolver."""
    with pytest.raises(RuntimeError, match="tests speak to this machine only"):
        socket.getaddrinfo("corpusmill.example", 443)
    with pytest.raises(httpx.ConnectError):
        httpx.get("http://corpusmill.invalid/", trust_env=False)


def test_loopback_is_open() -> None:
    """A server on loopback is reached by number and by name."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for host in ("127.0.0.1", "localhost"):
            with socket.create_connection((host, port), timeout=5) as client:
                assert client.getpeername()[1] == port


def test_a_child_cannot_connect_beyond_this_machine() -> None:
    """A Python process that a test starts has the same fence."""
    child = subprocess.run(
        [sys.executable, "-c", f"import socket; socket.create_connection({ELSEWHERE!r}, timeout=5)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "tests speak to this machine only" in child.stderr


def ran(folder: Path, source: str, required: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests in a folder, under the `conftest.py` of this one."""
    (folder / "conftest.py").write_bytes(Path(__file__).with_name("conftest.py").read_bytes())
    (folder / "offline").symlink_to(Path(__file__).with_name("offline"))
    (folder / "test_it.py").write_text(f"import pytest\n\n{source}\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-c", os.devnull, "-p", "no:cacheprovider", str(folder)],
        env={**os.environ, "CORPUSMILL_REQUIRE_SYSTEM": required, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("required", "expected"), [("0", "1 skipped"), ("1", "1 error")])
def test_a_missing_system_package_is_named(tmp_path: Path, required: str, expected: str) -> None:
    """Without its program a test is skipped with the package's name, or fails where it is required."""
    source = "@pytest.mark.needs_system('no-such-program')\ndef test_it(): raise SystemError"
    run = ran(tmp_path, source, required)
    assert "needs the system package no-such-program" in run.stdout
    assert expected in run.stdout
    assert run.returncode == int(required)


@pytest.mark.parametrize("required", ["0", "1"])
@pytest.mark.parametrize(
    ("source", "fails"),
    [
        ("def test_it(): pytest.skip('a port is taken')", True),
        ("pytest.importorskip('no_such_package')", True),
        ("def test_it(): pytest.skip('needs ../shared')", False),
        ("@pytest.mark.skipif(True, reason='nothing is unwritable for root')\ndef test_it(): pass", False),
        ("@pytest.mark.xfail(reason='known')\ndef test_it(): assert False", False),
    ],
)
def test_a_skip_that_nobody_expects_fails_where_everything_is_required(
    tmp_path: Path, source: str, required: str, *, fails: bool
) -> None:
    """In a test and in a whole file; elsewhere it is a skip like any other."""
    run = ran(tmp_path, f"{source}\n\ndef test_other(): pass", required)
    nothing_ran = pytest.ExitCode.NO_TESTS_COLLECTED if "importorskip" in source else pytest.ExitCode.OK
    assert run.returncode == (1 if fails and required == "1" else nothing_ran), run.stdout
    assert ("though CORPUSMILL_REQUIRE_SYSTEM=1" in run.stdout) == (fails and required == "1")


def test_the_fake_clock_moves_by_sleeping_and_by_hand(clock: FakeClock) -> None:
    """Sleeping takes no time, moves the clock by what was asked, and is written down."""
    start = clock()
    asyncio.run(clock.sleep(90.0))
    clock.advance(10.0)
    assert (clock() - start, clock.sleeps) == (100.0, [90.0])
