"""A canned chat endpoint that takes its time: lognormal latencies, and stragglers if asked for.

    python -m benchmarks.slow_server --mean 1 --sigma 0.5 --stragglers 0.01

It prints its base URL when it listens. `GET /served` gives all answers so far as JSON: for each when its request had
come, when its answer went out (both by the machine's monotonic clock, in seconds), and whether it was a straggler.
One event loop and a protocol of a few lines, since a framework would be slower than what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import random
from dataclasses import dataclass, field
from pathlib import Path

CANNED = Path(__file__).with_name("nginx.conf.template")


@dataclass(slots=True)
class Server:
    """How long answers take, and what was served; `answer` is a whole response."""

    mean: float
    sigma: float
    stragglers: float
    straggler_seconds: float
    answer: bytes
    served: list[tuple[float, float, bool]] = field(default_factory=list)
    random: random.Random = field(default_factory=lambda: random.Random(0))

    def latency(self) -> tuple[float, bool]:
        """Draw the seconds that an answer takes, and tell whether it is a straggler."""
        if self.random.random() < self.stragglers:
            return self.straggler_seconds, True
        # The mean of a lognormal is exp(mu + sigma² / 2).
        return self.random.lognormvariate(math.log(self.mean) - self.sigma**2 / 2, self.sigma), False


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
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
        if not found or len(body) < content_length(head):
            return
        self._held = b""
        if head.startswith(b"GET /served "):
            self._transport.write(response(json.dumps(self._server.served).encode()))
            return
        seconds, straggles = self._server.latency()
        self._loop.call_later(seconds, self._answer, self._loop.time(), straggles)

    def _answer(self, came: float, straggles: bool) -> None:  # noqa: FBT001 - a callback's arguments
        if not self._transport.is_closing():
            self._transport.write(self._server.answer)
            self._server.served.append((came, self._loop.time(), straggles))


def content_length(head: bytes) -> int:
    """Give the length of the body that a head announces."""
    lowered = head.lower()
    at = lowered.find(b"\r\ncontent-length:")
    return 0 if at < 0 else int(lowered[at + 17 :].partition(b"\r\n")[0])


def response(body: bytes) -> bytes:
    """Give a whole response around a JSON body."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def canned_body() -> bytes:
    """Give the completion that the canned server answers with too."""
    written = CANNED.read_text("utf-8")
    return written[written.index("'{") + 1 : written.index("}';") + 1].encode()


async def serve(server: Server) -> None:
    """Listen on a free port of loopback until the process is ended."""
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: Connection(server, loop), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1", flush=True)
    await listening.serve_forever()


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mean", type=float, default=1.0, help="seconds, stragglers left out")
    parser.add_argument("--sigma", type=float, default=0.5)
    parser.add_argument("--stragglers", type=float, default=0.0, help="share of the requests")
    parser.add_argument("--straggler-seconds", type=float, default=30.0)
    options = parser.parse_args()
    server = Server(
        mean=options.mean,
        sigma=options.sigma,
        stragglers=options.stragglers,
        straggler_seconds=options.straggler_seconds,
        answer=response(canned_body()),
    )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(server))


if __name__ == "__main__":
    main()
