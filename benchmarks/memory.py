"""Memory: the most that a run holds at 100,000 rows and at ten times as many.

Both are run twice: each row with a text of its own, so that all are asked, and with a tenth of the texts, so that nine
rows in ten find their answer in the store. What is found there goes so fast that more of it is held at once.
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
    from corpusmill.allocator import spare_memory

    spare_memory()  # as the command line does
    import corpusmill.enrich_job  # noqa: F401 - as before any run

    imported = peak_memory()
    report = run_job(corpus=corpus, sink=f"{folder}/out", store=f"{folder}/store.db", base_url=base_url)
    return {"bytes": peak_memory(), "imported": imported, "rows": report.rows, "live": report.live}


def measure(bench: Bench) -> dict[str, Any]:
    """Give the peaks, and the higher one of the two ratios between ten times the rows and the rows."""
    small = bench.size(SMALL, 5_000)
    large = small * TIMES
    found = []
    with canned_server() as url:
        base_url = str(url).removesuffix("/chat/completions")
        for rows, distinct in ((small, small), (large, large), (small, small // 10), (large, small)):
            corpus = bench.corpus(rows=rows, distinct=distinct)
            place = str(bench.place("memory"))
            found.append(call("benchmarks.memory:held", base_url=base_url, corpus=str(corpus), folder=place))
    return {
        "rows": [each["rows"] for each in found],
        "live": [each["live"] for each in found],
        "bytes": [each["bytes"] for each in found],
        "imported_bytes": found[0]["imported"],
        "ratio": max(
            more["bytes"] / less["bytes"] for less, more in zip(found[::2], found[1::2], strict=True)
        ),
    }
