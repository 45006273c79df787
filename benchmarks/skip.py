"""Skipped: the same job once more, when its output is there and nothing has changed."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from benchmarks.bench import run
from benchmarks.child import call, spent

if TYPE_CHECKING:
    from benchmarks.bench import Bench

ROWS = 1_000_000
DISTINCT = 20_000
ROUNDS = 5


def once(*, corpus: str, store: str, sink: str, skipped: bool) -> dict[str, Any]:
    """Run, and see that it was skipped, or was not."""
    import corpusmill.run  # noqa: F401 - what is measured is the work, not the imports

    figures: dict[str, Any] = {}
    with spent(figures):
        report = run(corpus=corpus, sink=sink, store=store)
    if report.skipped_run is not skipped:
        raise SystemExit("the run was skipped" if report.skipped_run else "the run was not skipped")
    return {**figures, "rows": report.rows}


def measure(bench: Bench) -> dict[str, Any]:
    """Give the seconds of a skipped run: the call, and the whole process with its imports."""
    rows = bench.size(ROWS, 50_000)
    corpus = str(bench.corpus(rows=rows, distinct=DISTINCT))
    place = bench.place("skip")
    arguments = {"corpus": corpus, "store": str(place / "store.db"), "sink": str(place / "out")}
    call("benchmarks.stock:fill", corpus=corpus, store=arguments["store"])
    call("benchmarks.skip:once", **arguments, skipped=False)
    calls, processes = [], []
    for _ in range(bench.size(ROUNDS, 2)):
        started = time.perf_counter()
        calls.append(call("benchmarks.skip:once", **arguments, skipped=True)["seconds"])
        processes.append(time.perf_counter() - started)
    return {
        "rows": rows,
        "seconds": statistics.median(calls),
        "process_seconds": statistics.median(processes),
    }
