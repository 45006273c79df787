"""Open descriptors over many calls: as many as the connections and files that a run needs, and no more later on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psutil
from benchmarks.bench import run
from benchmarks.child import call
from benchmarks.transport import canned_server

if TYPE_CHECKING:
    from benchmarks.bench import Bench

    from corpusmill.engine.engine import Engine

ROWS = 20_000
ROWS_PER_PART = 2_048
"""Small parts, so that many files are opened and closed."""

LOOK = 0.002
"""Seconds between two looks: so few that both halves meet the moments at which a part is written."""


class Counts:
    """Counts the descriptors of this process while a run lasts, and notes beside each count how many calls were done.

    Each count is the difference that the run makes.
    """

    def __init__(self) -> None:
        self.taken: list[tuple[int, int]] = []
        self._process = psutil.Process()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._before = self._process.num_fds()

    def more(self) -> int:
        """Give how many are open now that were not before."""
        return self._process.num_fds() - self._before

    def start(self, engine: Engine) -> None:
        """Begin to look."""
        self._thread = threading.Thread(target=self._look, args=(engine,), daemon=True)
        self._thread.start()

    def _look(self, engine: Engine) -> None:
        while not self._done.wait(LOOK):
            self.taken.append((engine.wire.live, self.more()))

    def stop(self) -> None:
        """End looking."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()


def watched(*, base_url: str, corpus: str, folder: str) -> dict[str, Any]:
    """Run, and count the descriptors of this process meanwhile."""
    counts = Counts()
    report = run(
        corpus=corpus,
        sink=f"{folder}/out",
        store=f"{folder}/store.db",
        base_url=base_url,
        rows_per_part=ROWS_PER_PART,
        on_start=counts.start,
    )
    counts.stop()
    # The first tenth opens the connections.
    first = [count for live, count in counts.taken if report.live * 0.1 <= live < report.live * 0.5]
    second = [count for live, count in counts.taken if report.live * 0.5 <= live < report.live]
    return {
        "calls": report.live,
        "looks": len(first) + len(second),
        "first_half": max(first, default=0),
        "second_half": max(second, default=0),
        "left_open": counts.more(),
    }


def measure(bench: Bench) -> dict[str, Any]:
    """Give the most descriptors of both halves of a run, and what it left open."""
    corpus = str(bench.corpus(rows=bench.size(ROWS, 4_000)))
    with canned_server() as url:
        return call(
            "benchmarks.descriptors:watched",
            base_url=str(url).removesuffix("/chat/completions"),
            corpus=corpus,
            folder=str(bench.place("descriptors")),
        )
