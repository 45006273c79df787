"""Memory: the most that a run holds at 100,000 rows and at ten times as many.

Ten times as many are run twice: each with a text of its own, so that all are asked, and with a tenth of the texts, so
that as many are asked as of the smaller corpus and the rest is found in the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.bench import run_job
from benchmarks.child import call, peak_memory
from benchmarks.transport import canned_server

if TYPE_CHECKING:
    from benchmarks.bench import Bench

SMALL = 100_000
TIMES = 10


def held(*, base_url: str, corpus: str, folder: str) -> dict[str, Any]:
    """Run, and give the most bytes that this process held."""
    import corpusmill.enrich_job  # noqa: F401 - as before any run

    imported = peak_memory()
    report = run_job(corpus=corpus, sink=f"{folder}/out", store=f"{folder}/store.db", base_url=base_url)
    return {"bytes": peak_memory(), "imported": imported, "rows": report.rows, "live": report.live}


def measure(bench: Bench) -> dict[str, Any]:
    """Give the peaks, and the higher one of the larger corpora over that of the smaller one."""
    small = bench.size(SMALL, 5_000)
    large = small * TIMES
    found = []
    with canned_server() as url:
        base_url = str(url).removesuffix("/chat/completions")
        for rows, distinct in ((small, small), (large, large), (large, small)):
            corpus = bench.corpus(rows=rows, distinct=distinct)
            place = str(bench.place("memory"))
            found.append(call("benchmarks.memory:held", base_url=base_url, corpus=str(corpus), folder=place))
    return {
        "rows": [each["rows"] for each in found],
        "live": [each["live"] for each in found],
        "bytes": [each["bytes"] for each in found],
        "imported_bytes": found[0]["imported"],
        "ratio": max(each["bytes"] for each in found[1:]) / found[0]["bytes"],
    }
