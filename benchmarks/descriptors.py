"""Open descriptors over many calls: as many as the connections and files that a run needs, and no more later on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psutil
from benchmarks.bench import run
from benchmarks.child import call
from benchmarks.transport import canned_server

if TYPE_CHECKING:
    from benchmarks.bench import Bench

ROWS = 20_000
ROWS_PER_PART = 2_048
"""Small parts, so that many files are opened and closed."""


def watched(*, base_url: str, corpus: str, folder: str) -> dict[str, Any]:
    """Run, and count the descriptors of this process four times a second."""
    process = psutil.Process()
    counts: list[tuple[int, int]] = []
    before = process.num_fds()
    run(
        corpus=corpus,
        sink=f"{folder}/out",
        store=f"{folder}/store.db",
        base_url=base_url,
        rows_per_part=ROWS_PER_PART,
        progress=lambda progress: counts.append((progress.live, process.num_fds())),
    )
    calls = counts[-1][0]
    # The first tenth opens the connections. Each count is the difference that the run makes.
    first = [count - before for live, count in counts if calls * 0.1 <= live < calls * 0.5]
    second = [count - before for live, count in counts if calls * 0.5 <= live < calls]
    return {
        "calls": calls,
        "first_half": max(first, default=0),
        "second_half": max(second, default=0),
        "left_open": process.num_fds() - before,
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
