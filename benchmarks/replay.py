"""Again from the store: all answers are there, the output is another one, and nobody is asked."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.bench import run
from benchmarks.child import call, spent

if TYPE_CHECKING:
    from benchmarks.bench import Bench

ROWS = 200_000
ROUNDS = 5


def again(*, corpus: str, store: str, folder: str) -> dict[str, Any]:
    """Run with a full store."""
    import corpusmill.run  # noqa: F401 - what is measured is the work, not the imports

    figures: dict[str, Any] = {}
    with spent(figures):
        report = run(corpus=corpus, sink=f"{folder}/out", store=store)
    if report.cached != report.rows:
        raise SystemExit(f"{report.cached} of {report.rows} rows came from the store")
    return {**figures, "rows": report.rows}


def measure(bench: Bench) -> dict[str, Any]:
    """Give the rate and the processor time by the row, medians of the rounds."""
    rows = bench.size(ROWS, 20_000)
    corpus = str(bench.corpus(rows=rows))
    store = str(bench.place("stock") / "store.db")
    call("benchmarks.stock:fill", corpus=corpus, store=store)
    found = [
        call("benchmarks.replay:again", corpus=corpus, store=store, folder=str(bench.place("replay")))
        for _ in range(bench.size(ROUNDS, 1))
    ]
    rates = [each["rows"] / each["seconds"] for each in found]
    return {
        "rows": rows,
        "rounds": len(found),
        "rows_per_second": statistics.median(rates),
        "rows_per_second_best": max(rates),
        "cpu_us_per_row": statistics.median(each["cpu"] / each["rows"] * 1e6 for each in found),
    }
