"""Beside the alternatives: the same rows of real text, Parquet to Parquet, with what people use today.

    python -m benchmarks.peers [--quick] [--write] [--only langchain daft]

Each peer works in an environment of its own, built from its pinned requirements in this folder. The slower ones are
given fewer of the rows; rounds are interleaved, and ratios are taken within each round. A peer that cannot be
installed, does not do the whole job or is not done in two minutes is named with its error. Where there is a cache, the
same rows are asked a second time. Takes about five minutes, and wants a machine that does nothing else.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks import transport
from benchmarks.child import ROOT, command, numbers, surroundings
from benchmarks.peers.environment import PeerError, last_line, python_of, versions_of_all
from benchmarks.record import alone

if TYPE_CHECKING:
    import argparse

    from benchmarks.bench import Bench

ROWS = 20_000
ROUNDS = 3
PATIENCE = 120.0
"""Seconds after which a peer is not done."""

PEERS = {
    "openai": ("openai", 4_000, False),
    "LangChain": ("langchain", 2_000, False),
    "LangChain with its SQLite cache": ("langchain", 2_000, True),
    "litellm": ("litellm", 2_000, False),
    "Daft": ("daft", 500, False),
}
"""The package, how many of the rows it is given, and whether with its cache."""

OURS, AGAIN, BARE = "corpusmill", "corpusmill, again from its store", "the bare transport"


def attempt(
    function: str, arguments: dict[str, Any], *, python: str = sys.executable
) -> dict[str, Any] | str:
    """Call a function in a process of its own; give its numbers, or what went wrong."""
    try:
        done = subprocess.run(
            command(function, arguments, python=python),
            cwd=ROOT,
            env=surroundings(),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {PATIENCE:.0f} s"
    return numbers(done.stdout) if done.returncode == 0 else last_line(done.stderr)


def of_peer(bench: Bench, name: str, base_url: str, corpus: str) -> dict[str, dict[str, Any] | str]:
    """Let a peer do the job, and where it has a cache, do it again."""
    package, usual, cached = PEERS[name]
    rows = bench.size(usual, 200)
    try:
        python = python_of(package)
    except PeerError as error:
        return {name: str(error)}
    arguments = {
        "peer": package,
        "base_url": base_url,
        "corpus": corpus,
        "folder": str(bench.place(f"peer-{package}")),
        "rows": rows,
        "cached": cached,
    }
    found = {name: attempt("benchmarks.peers.work:whole", arguments, python=python)}
    if cached:
        found[f"{name}, again"] = attempt("benchmarks.peers.work:whole", arguments, python=python)
    return found


def a_round(bench: Bench, names: list[str], url: str, corpus: str) -> dict[str, dict[str, Any] | str]:
    """Let everybody do the job once."""
    base_url = url.removesuffix("/chat/completions")
    place = bench.place("ours")
    found = {
        OURS: attempt("benchmarks.live:ours", {"base_url": base_url, "corpus": corpus, "folder": str(place)}),
        AGAIN: attempt(
            "benchmarks.replay:again",
            {
                "corpus": corpus,
                "store": str(place / "store.db"),
                "folder": str(bench.place("ours-again")),
            },
        ),
        BARE: attempt("benchmarks.live:bare", {"url": url}),
    }
    for name in names:
        found |= of_peer(bench, name, base_url, corpus)
    return found


def measure(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    """Give by name the rows, the rate and the processor time by the row, and how many times as fast ours is."""
    names = options.only or list(PEERS)
    corpus = str(bench.corpus(rows=bench.size(ROWS, 2_000)))
    with transport.canned_server() as url:
        rounds = [a_round(bench, names, str(url), corpus) for _ in range(bench.size(ROUNDS, 1))]
    return {
        "rounds": len(rounds),
        "in_flight": 64,
        "versions": versions_of_all(PEERS[name][0] for name in names),
        "found": {name: over_rounds(name, rounds) for name in rounds[0]},
    }


def over_rounds(name: str, rounds: list[dict[str, dict[str, Any] | str]]) -> dict[str, Any]:
    """Give the medians of the rounds; the times are those of the same job: a first run, or one from the cache."""
    found = [each[name] for each in rounds]
    failed = [each for each in found if isinstance(each, str)]
    if failed:
        return {"error": failed[0]}
    beside = AGAIN if name.endswith(", again") else OURS
    times = []
    for each in rounds:
        ours, theirs = each[beside], each[name]
        if isinstance(ours, dict) and isinstance(theirs, dict):
            times.append(rate(ours) / rate(theirs))
    done = [each for each in found if isinstance(each, dict)]
    return {
        "rows": round(statistics.median(each["rows"] for each in done)),
        "rows_per_second": statistics.median(rate(each) for each in done),
        "cpu_us_per_row": statistics.median(each["cpu"] / each["rows"] * 1e6 for each in done),
        "times": statistics.median(times) if times else None,
    }


def rate(found: dict[str, Any]) -> float:
    """Give rows a second."""
    rows, seconds = float(found["rows"]), float(found["seconds"])
    return rows / seconds


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--only", nargs="+", choices=PEERS)


def main() -> None:
    """Measure, print, write."""
    alone("peers", measure, doc=__doc__, arguments=arguments)


if __name__ == "__main__":
    main()
