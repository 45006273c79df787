"""Goodput under a limit: how much of what a server allows is got done, and how much of what is sent is refused.

    python -m benchmarks.goodput [--quick] [--write] [--only bucket tokens] [--without-peers]

Nobody is told the limit: each client has a number of requests in flight at most and finds out. Measured is the steady
state, by the server's own record: a minute that begins ten seconds after the first request. The openai SDK and litellm
do the same at the same time, each with a server of its own and with the retries that they have; what they give up is
counted. Takes about six minutes and little processor time.
"""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from benchmarks.bench import run
from benchmarks.child import ROOT, command, numbers, surroundings
from benchmarks.peers.environment import PeerError, last_line, python_of, versions_of_all
from benchmarks.record import alone
from benchmarks.serving import started, told

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from benchmarks.bench import Bench

    from corpusmill.engine.engine import Engine

    Attempts = Sequence[tuple[float, float, bool, int]]

COLD, STEADY = 10.0, 60.0
PATIENCE = 60.0
"""Seconds that a client gets to start and to end, beyond its time."""

SIDE_BY_SIDE = 2
"""So many servers at once, each with its clients: what they do together must not keep the machine busy."""

RATE = 3_000
TOKENS = 300_000
BUCKET = {"requests_per_minute": RATE, "burst": 50}

SERVERS: dict[str, dict[str, Any]] = {
    "bucket": {**BUCKET},
    "bucket that tells what is left": {**BUCKET, "headers": True},
    "bucket that says nothing but no": {**BUCKET, "retry_after": False},
    "bucket of a slow server": {**BUCKET, "headers": True, "mean": 2.0},
    "fixed window": {
        "requests_per_minute": RATE // 6,
        "minute_seconds": 10,
        "window": "fixed",
        "headers": True,
    },
    "tokens": {"tokens_per_minute": TOKENS, "token_burst": TOKENS // 60},
    "queue that refuses nothing": {"per_second": RATE / 60},
}
"""What each server does, by the name of its figures."""

QUICK = ("bucket", "queue that refuses nothing")

PEERS = ("openai", "litellm")


def in_flight(manner: Mapping[str, Any]) -> int:
    """Give how many may be out: more where each takes longer."""
    return 256 if manner.get("mean", 0.5) > 1 else 64


def ours(*, base_url: str, corpus: str, folder: str, seconds: float, most: int) -> dict[str, Any]:
    """Run as a user does, until the rows or the time is over."""
    import corpusmill.run  # noqa: F401 - what is measured is the work, not the imports
    from corpusmill.errors import InterruptedRunError

    def stop_later(engine: Engine) -> None:
        timer = threading.Timer(seconds, engine.stop, kwargs={"grace": 0.0})
        timer.daemon = True
        timer.start()

    with contextlib.suppress(InterruptedRunError):
        run(
            corpus=corpus,
            sink=f"{folder}/out",
            store=f"{folder}/store.db",
            base_url=base_url,
            concurrency=most,
            on_start=stop_later,
        )
    return {}


def shares(
    since: float, attempts: Attempts, manner: Mapping[str, Any], *, cold: float, steady: float
) -> dict[str, float]:
    """Work the figures out of a server's record: of the limit, and of the attempts those that were refused."""
    start = min(came for came, _, _, _ in attempts) + cold
    if manner.get("window") == "fixed":
        # Whole windows, each of which is used up as soon as may be.
        window = manner["minute_seconds"]
        start = since + math.ceil((start - since) / window) * window
    stop = start + steady
    came = [each for each in attempts if start <= each[0] < stop]
    answered = [each for each in attempts if not each[2] and start <= each[1] < stop]
    let_in = [each for each in came if not each[2]]
    if "tokens_per_minute" in manner:
        share = sum(each[3] for each in answered) / (manner["tokens_per_minute"] * steady / 60)
    elif "per_second" in manner:
        share = len(answered) / (manner["per_second"] * steady)
    else:
        share = len(let_in) / (manner["requests_per_minute"] * steady / manner.get("minute_seconds", 60))
    return {
        "share": share,
        "refused": sum(each[2] for each in came) / max(1, len(came)),
        "attempts": len(came),
    }


def steady(bench: Bench, server: str, client: str, corpus: str) -> dict[str, Any]:
    """Let one client work at one server of its own, and give its figures, or the error with which it ended."""
    manner = SERVERS[server]
    cold, lasting = (3.0, 6.0) if bench.quick else (COLD, STEADY)
    seconds = cold + lasting + 1.0 + (manner.get("minute_seconds", 0) if "window" in manner else 0)
    arguments: dict[str, Any] = {"corpus": corpus, "seconds": seconds, "most": in_flight(manner)}
    if client == "ours":
        function, python = "benchmarks.goodput:ours", sys.executable
        arguments["folder"] = str(bench.place(f"goodput-{list(SERVERS).index(server)}"))
    else:
        function, arguments["name"] = "benchmarks.peers.pressing:press", client
        try:
            python = python_of(client)
        except PeerError as error:
            return {"error": str(error)}
    with started("benchmarks.limited_server", json.dumps(manner)) as base_url:
        try:
            done = subprocess.run(
                command(function, {**arguments, "base_url": base_url}, python=python),
                cwd=ROOT,
                env=surroundings(),
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds + PATIENCE,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"did not end within {seconds + PATIENCE:.0f} s"}
        if done.returncode:
            return {"error": last_line(done.stderr)}
        record = told(base_url, "attempts")
        found = shares(record["since"], record["attempts"], manner, cold=cold, steady=lasting)
    return {**found, **numbers(done.stdout)}


def measure(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    """Give the shares of each client at each server."""
    corpus = str(bench.corpus(rows=bench.size(9_000, 2_000)))
    servers = options.only or (QUICK if bench.quick else list(SERVERS))
    clients = ("ours",) if options.without_peers or bench.quick else ("ours", *PEERS)
    for client in clients[1:]:
        with contextlib.suppress(PeerError):
            python_of(client)
    found: dict[str, Any] = {}
    with ThreadPoolExecutor(SIDE_BY_SIDE * len(clients)) as pool:
        waiting = {
            server: {client: pool.submit(steady, bench, server, client, corpus) for client in clients}
            for server in servers
        }
        for server, by_client in waiting.items():
            found[server] = {client: future.result() for client, future in by_client.items()}
    return {
        "per_minute": RATE,
        "tokens_per_minute": TOKENS,
        "seconds": 6.0 if bench.quick else STEADY,
        "versions": versions_of_all(clients[1:]),
        "servers": found,
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--only", nargs="+", choices=SERVERS)
    parser.add_argument("--without-peers", action="store_true", help="measure corpusmill alone")


def main() -> None:
    """Measure, print, write."""
    alone("goodput", measure, doc=__doc__, arguments=arguments)


if __name__ == "__main__":
    main()
