"""A canned chat endpoint that takes its time: lognormal latencies, and stragglers if asked for.

    python -m benchmarks.slow_server --mean 1 --sigma 0.5 --stragglers 0.01

It prints its base URL when it listens. `GET /served` gives all answers so far as JSON: for each when its request had
come, when its answer went out (both by the machine's monotonic clock, in seconds), and whether it was a straggler.
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
from typing import TYPE_CHECKING

from benchmarks.serving import listen

if TYPE_CHECKING:
    from benchmarks.serving import Connection

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

    def asked(self, head: bytes, _body: bytes, connection: Connection) -> None:
        """Take a request, and answer it in its time."""
        if head.startswith(b"GET /served "):
            connection.answer(response(json.dumps(self.served).encode()))
            return
        loop = asyncio.get_running_loop()
        seconds, straggles = self.latency()
        loop.call_later(seconds, self._answer, connection, loop.time(), straggles)

    def _answer(self, connection: Connection, came: float, straggles: bool) -> None:  # noqa: FBT001 - a callback's
        if connection.answer(self.answer):
            self.served.append((came, asyncio.get_running_loop().time(), straggles))


def response(body: bytes) -> bytes:
    """Give a whole response around a JSON body."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def canned_body() -> bytes:
    """Give the completion that the canned server answers with too."""
    written = CANNED.read_text("utf-8")
    return written[written.index("'{") + 1 : written.index("}';") + 1].encode()


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
        asyncio.run(listen(server.asked))


if __name__ == "__main__":
    main()
