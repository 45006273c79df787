"""Servers of a measurement: started in a process of their own, and a protocol of a few lines for ours.

One event loop, since a framework would be slower than what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

from benchmarks.child import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Asked = Callable[[bytes, bytes, "Connection"], None]


@contextlib.contextmanager
def started(*command: object) -> Iterator[str]:
    """Start `python -m` with this command, a server that prints its base URL when it listens; give the URL."""
    server = subprocess.Popen(
        [sys.executable, "-m", *map(str, command)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait()


def told(base_url: str, name: str) -> Any:
    """Ask a server for what it has written down under a name."""
    with urllib.request.urlopen(f"{base_url.removesuffix('/v1')}/{name}") as answer:
        return json.load(answer)


class Connection(asyncio.Protocol):
    """One connection, one request at a time: each is handed on with its head and its body."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._held = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Event loop: the connection stands."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Event loop: a request, or a part of one."""
        self._held += data
        head, found, body = self._held.partition(b"\r\n\r\n")
        if not found or len(body) < _content_length(head):
            return
        self._held = b""
        self._asked(head, body, self)

    def answer(self, response: bytes) -> bool:
        """Send a whole response; tell whether somebody is still there to take it."""
        if self._transport.is_closing():
            return False
        self._transport.write(response)
        return True


def _content_length(head: bytes) -> int:
    lowered = head.lower()
    at = lowered.find(b"\r\ncontent-length:")
    return 0 if at < 0 else int(lowered[at + 17 :].partition(b"\r\n")[0])


async def listen(asked: Asked) -> None:
    """Listen on a free port of loopback until the process is ended; print the base URL."""
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: Connection(asked), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1", flush=True)
    await listening.serve_forever()
