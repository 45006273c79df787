"""Latency hidden: how much of what 1,000 requests at a time could get done is done, with and without stragglers.

By Little's law a server that takes W seconds for a request answers N / W a second when N are with it all the time. So
the share is how many were with the server in the mean, by the server's own record, from the moment at which the run
first had N out to its last dispatch, over N. A straggler occupies one of the N; what the others get done is compared
with what the places that stragglers leave allow.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from benchmarks.bench import run
from benchmarks.child import call, spent
from benchmarks.serving import started, told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.bench import Bench

    from corpusmill.engine.engine import Engine

    Served = Sequence[tuple[float, float, bool]]

IN_FLIGHT = 1_000
MEAN = 1.0
SIGMA = 0.5
STRAGGLERS = 0.01
STRAGGLER_SECONDS = 30.0
LOOK = 0.005
"""Seconds between two looks at how many are out."""


class Watch:
    """Notes when a run first has so many requests out, by the monotonic clock."""

    def __init__(self, wanted: int) -> None:
        self.reached: float | None = None
        self._wanted = wanted
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, engine: Engine) -> None:
        """Begin to look."""
        self._thread = threading.Thread(target=self._look, args=(engine,), daemon=True)
        self._thread.start()

    def _look(self, engine: Engine) -> None:
        while self.reached is None and not self._done.wait(LOOK):
            if engine.wire.in_flight >= self._wanted:
                self.reached = time.monotonic()

    def stop(self) -> None:
        """End looking."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()


def hidden(*, base_url: str, corpus: str, folder: str, in_flight: int) -> dict[str, Any]:
    """Run, and tell when it had as many out as it may."""
    import corpusmill.run  # noqa: F401 - what is measured is the work, not the imports

    watch = Watch(in_flight)
    figures: dict[str, Any] = {}
    with spent(figures):
        report = run(
            corpus=corpus,
            sink=f"{folder}/out",
            store=f"{folder}/store.db",
            base_url=base_url,
            concurrency=in_flight,
            on_start=watch.start,
        )
    watch.stop()
    if watch.reached is None:
        raise SystemExit(f"the run never had {in_flight} requests out")
    return {**figures, "rows": report.rows, "reached": watch.reached}


def mean_out(served: Served, start: float, stop: float) -> float:
    """Give how many requests were with the server in the mean between two moments."""
    overlaps = (max(0.0, min(sent, stop) - max(came, start)) for came, sent, _ in served)
    return sum(overlaps) / (stop - start)


def shares(served: Served, *, reached: float, in_flight: int) -> dict[str, float]:
    """Work the figures out of the server's record.

    `share` is that of Little's law; `others_share` that of the requests which are no stragglers, of the places which
    stragglers leave to them; `others_per_second` how many of them were answered a second.
    """
    last = max(came for came, _, _ in served)
    others = [each for each in served if not each[2]]
    stragglers = [each for each in served if each[2]]
    held = mean_out(stragglers, reached, last)
    answered = sum(reached <= sent <= last for _, sent, _ in others)
    return {
        "share": mean_out(served, reached, last) / in_flight,
        "others_share": mean_out(others, reached, last) / (in_flight - held),
        "others_per_second": answered / (last - reached),
        "stragglers_out": held,
        "seconds_measured": last - reached,
    }


def measure(bench: Bench) -> dict[str, Any]:
    """Give the shares with and without stragglers, and what becomes of the others' rate by the free place."""
    in_flight = bench.size(IN_FLIGHT, 100)
    rows = bench.size(25_000, 1_500)
    seconds = bench.size(int(STRAGGLER_SECONDS), 5)
    corpus = str(bench.corpus(rows=rows))
    found = {}
    for name, stragglers in (("plain", 0.0), ("with_stragglers", STRAGGLERS)):
        slow = ("--mean", MEAN, "--sigma", SIGMA)
        straggling = ("--stragglers", stragglers, "--straggler-seconds", seconds)
        with started("benchmarks.slow_server", *slow, *straggling) as base_url:
            ran = call(
                "benchmarks.latency:hidden",
                base_url=base_url,
                corpus=corpus,
                folder=str(bench.place("latency")),
                in_flight=in_flight,
            )
            found[name] = {
                **shares(told(base_url, "served"), reached=ran["reached"], in_flight=in_flight),
                "seconds": ran["seconds"],
                "cpu_us_per_row": ran["cpu"] / ran["rows"] * 1e6,
            }
    plain, tailed = found["plain"], found["with_stragglers"]
    return {
        "rows": rows,
        "in_flight": in_flight,
        "mean": MEAN,
        "sigma": SIGMA,
        "stragglers": STRAGGLERS,
        "straggler_seconds": seconds,
        **found,
        "others_unchanged": (
            tailed["others_per_second"]
            / (in_flight - tailed["stragglers_out"])
            / (plain["others_per_second"] / in_flight)
        ),
    }
