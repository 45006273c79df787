"""Measure what the README states: speed, memory, descriptors.

    python -m benchmarks.run [--only live replay] [--quick [--write]]

Prints a table and writes `benchmarks/results.json`, from which `docs/figures.py` takes the figures of the README and
of `docs/performance.md`. With `--only` the other results stay as they are; `--quick` writes nothing unless it is told
to. Takes about twelve minutes, and wants a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import descriptors, importing, latency, live, memory, replay, signing, skip
from benchmarks.bench import Bench
from benchmarks.record import measured

if TYPE_CHECKING:
    from collections.abc import Callable

MEASUREMENTS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "importing": importing.measure,
    "live": live.measure,
    "replay": replay.measure,
    "skip": skip.measure,
    "latency": latency.measure,
    "descriptors": descriptors.measure,
    "memory": memory.measure,
    "signing": signing.measure,
}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS))
    parser.add_argument(
        "--quick", action="store_true", help="little work and rough figures, to see that all works"
    )
    parser.add_argument("--write", action="store_true", help="write rough figures too; they are called so")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="corpusmill-bench-") as folder:
        bench = Bench(folder=Path(folder), quick=options.quick)
        bench.texts()
        for name in options.only:
            measured(name, MEASUREMENTS[name], bench, write=options.write or not options.quick)


if __name__ == "__main__":
    main()
