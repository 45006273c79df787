"""Memory where rows are many or long: what a run holds at ten million short rows, and at 10,000 rows of 200 KB.

    python -m benchmarks.memory_at_size [--rows 10000000] [--long 10000] [--only short long] [--quick] [--write]

The short rows are run beside a tenth of themselves; 100,000 have a text of their own in both, so that as many are asked
and the rest is found in the store. The long ones are all asked, of a server that takes a second for each, for only
while answers are waited for does a run hold as many rows as it may. Their peak is the moment at which reading, asking
and writing need most at once, of which a longer run has more; so the two halves of one run are compared, which have
as many. What counts are the ratios. The long ones take some minutes, the short ones as many as ten, and a few
gigabytes of disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.bench import run_job
from benchmarks.child import call, forget_peak_memory, peak_memory
from benchmarks.latency import MEAN, SIGMA
from benchmarks.record import alone
from benchmarks.serving import started
from benchmarks.transport import canned_server

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from benchmarks.bench import Bench

    from corpusmill.engine.engine import Progress

ROWS = 10_000_000
DISTINCT = 100_000
LONG = 10_000
LONG_BYTES = 200_000
LONG_GROUP = 100
"""Rows in a row group: whoever reads one holds it, so that 20 MB of text is what a writer would choose."""


def write_long(*, texts: str, path: str, rows: int) -> None:
    """Write rows of 200 KB of real text, each with a number of its own."""
    joined = "\n\n".join(str(text) for text in pq.read_table(texts).column("text").to_pylist())
    whole = (joined * (1 + 2 * LONG_BYTES // len(joined))).encode()
    spare = len(whole) - LONG_BYTES
    fields: list[pa.Field[Any]] = [pa.field("id", pa.int64()), pa.field("text", pa.string())]
    schema = pa.schema(fields)
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, LONG_GROUP):
            numbers = list(range(start, min(start + LONG_GROUP, rows)))
            places = [number * 997 % max(1, spare) for number in numbers]
            long = [
                f"{number}. {whole[place : place + LONG_BYTES].decode(errors='ignore')}"
                for number, place in zip(numbers, places, strict=True)
            ]
            writer.write_table(pa.table({"id": numbers, "text": long}, schema=schema))


def halves(*, base_url: str, corpus: str, folder: str, rows: int) -> dict[str, Any]:
    """Run, and give the most bytes that this process held until half of the rows were there, and from then on."""
    from corpusmill.allocator import spare_memory

    spare_memory()  # as the command line does

    peaks: list[int] = []

    def look(progress: Progress) -> None:
        if not peaks and progress.rows >= rows // 2:
            peaks.append(peak_memory())
            forget_peak_memory()

    report = run_job(
        corpus=corpus, sink=f"{folder}/out", store=f"{folder}/store.db", base_url=base_url, progress=look
    )
    return {"rows": report.rows, "live": report.live, "bytes": [*peaks, peak_memory()]}


def pair(bench: Bench, base_url: str, small: Path, large: Path) -> dict[str, Any]:
    """Run with both corpora, and give the peaks and their ratio."""
    found = []
    for corpus in (small, large):
        found.append(
            call(
                "benchmarks.memory:held",
                base_url=base_url,
                corpus=str(corpus),
                folder=str(bench.place("memory")),
            )
        )
        corpus.unlink()
    return {
        "rows": [each["rows"] for each in found],
        "live": [each["live"] for each in found],
        "bytes": [each["bytes"] for each in found],
        "ratio": found[1]["bytes"] / found[0]["bytes"],
    }


def measure(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    """Give the peaks at both sizes of short rows, and in both halves of the long ones."""
    found: dict[str, Any] = {}
    if "long" in options.only:
        rows = options.long or bench.size(LONG, 300)
        path = bench.folder / f"long-{rows}.parquet"
        call("benchmarks.memory_at_size:write_long", texts=str(bench.texts()), path=str(path), rows=rows)
        with started("benchmarks.slow_server", "--mean", MEAN, "--sigma", SIGMA) as base_url:
            long = call(
                "benchmarks.memory_at_size:halves",
                base_url=base_url,
                corpus=str(path),
                folder=str(bench.place("memory")),
                rows=rows,
            )
        path.unlink()
        found["long"] = {**long, "ratio": long["bytes"][1] / long["bytes"][0]}
    if "short" in options.only:
        rows = options.rows or bench.size(ROWS, 100_000)
        distinct = min(DISTINCT, rows // 10)
        with canned_server() as url:
            found["short"] = pair(
                bench,
                str(url).removesuffix("/chat/completions"),
                bench.corpus(rows=rows // 10, distinct=distinct),
                bench.corpus(rows=rows, distinct=distinct),
            )
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rows", type=int, help=f"how many short rows (default: {ROWS:,})")
    parser.add_argument("--long", type=int, help=f"how many rows of 200 KB (default: {LONG:,})")
    parser.add_argument("--only", nargs="+", choices=("short", "long"), default=["short", "long"])


def main() -> None:
    """Measure, print, write."""
    alone("memory_at_size", measure, doc=__doc__, arguments=arguments)


if __name__ == "__main__":
    main()
