"""A store at size: how fast it takes and gives when it is empty, and when it holds millions of entries.

    python -m benchmarks.store_size [--entries 10000000] [--quick] [--write]

Entries are put in groups of 1,024, as a run puts them, and read in groups of as many whose keys are drawn from all that
are there. Only the store's own calls are timed, and on the machine's disk as it is: what it has in memory stays there.
A million entries take about two minutes, ten million about twenty, and six gigabytes of disk.
"""

from __future__ import annotations

import hashlib
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.bench import MODEL
from benchmarks.child import call
from benchmarks.record import alone

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from benchmarks.bench import Bench

    from corpusmill.store.protocol import Put, Store

ENTRIES = 1_000_000
GROUP = 1_024
READ_GROUPS = 100
STRETCHES = 20
"""The rates at the start and at the end are those of so many parts of the whole, each the first or the last of them."""


def key_of(number: int) -> bytes:
    """Give the key of an entry: as good as random, as keys are."""
    return hashlib.blake2b(number.to_bytes(8, "big"), digest_size=20).digest()


def puts(numbers: range, invocation: str) -> list[Put]:
    """Make a group of entries."""
    from benchmarks.stock import body

    from corpusmill.store import Entry, Put

    now = time.time()
    return [
        Put(entry=Entry(key_of(row), body(row), None, "stop", 74, 36, 1, now, invocation), model=MODEL)
        for row in numbers
    ]


def groups(entries: int) -> Iterator[range]:
    """Give the numbers of the entries, group by group."""
    for start in range(0, entries, GROUP):
        yield range(start, min(start + GROUP, entries))


def read_rate(store: Store, entries: int, dice: random.Random) -> float:
    """Give how many entries are read in a second, in groups of keys drawn from all."""
    wanted = [[key_of(dice.randrange(entries)) for _ in range(GROUP)] for _ in range(READ_GROUPS)]
    started = time.perf_counter()
    found = sum(len(store.get_many(keys)) for keys in wanted)
    seconds = time.perf_counter() - started
    if found != sum(len(set(keys)) for keys in wanted):
        raise SystemExit(f"{found} entries were found of those that were put")
    return found / seconds


def grow(*, path: str, entries: int) -> dict[str, Any]:
    """Put so many entries, and measure on the way."""
    from corpusmill.store import open_store

    store = open_store(f"sqlite:///{path}")
    member = store.join("size")
    dice = random.Random(0)
    stretch = max(GROUP, entries // STRETCHES)
    rates: list[float] = []
    reads: list[float] = []
    done, seconds, counted = 0, 0.0, 0
    for numbers in groups(entries):
        made = puts(numbers, member.invocation)
        started = time.perf_counter()
        store.write(member.owner, puts=made)
        seconds += time.perf_counter() - started
        done, counted = done + len(made), counted + len(made)
        if counted >= stretch or done == entries:
            rates.append(counted / seconds)
            seconds, counted = 0.0, 0
            if len(reads) == 0 or done == entries:
                reads.append(read_rate(store, done, dice))
    store.finish("size")
    store.close()
    return {
        "entries": entries,
        "puts_per_second": [rates[0], rates[-1] if len(rates) < 2 else _last(rates)],
        "puts_by_stretch": rates,
        "gets_per_second": [reads[0], reads[-1]],
        "bytes": sum(file.stat().st_size for file in Path(path).parent.glob("store.db*")),
    }


def _last(rates: Sequence[float]) -> float:
    # What is left over after the last whole stretch may be a handful.
    return min(rates[-1], rates[-2])


def measure(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    """Give the rates at both ends and the size on disk."""
    entries = options.entries or bench.size(ENTRIES, 50_000)
    place = bench.place("size")
    return call("benchmarks.store_size:grow", path=str(place / "store.db"), entries=entries)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--entries", type=int, help=f"how many (default: {ENTRIES:,})")


def main() -> None:
    """Measure, print, write."""
    alone("store_size", measure, doc=__doc__, arguments=arguments)


if __name__ == "__main__":
    main()
