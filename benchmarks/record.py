"""The file of results: each measurement puts its figures there under its own name, and leaves the others alone."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.bench import Bench
from benchmarks.machine import machine, stamp, versions
from benchmarks.summary import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RESULTS = Path(__file__).with_name("results.json")


OF_ALL = ("Python", "SQLite", "nginx", "corpusmill")
"""What a measurement with a command of its own names beside what it brings along."""


def keep(name: str, figures: Mapping[str, Any]) -> None:
    """Write the figures of one measurement, with where and with what they were taken."""
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    results["figures"] = {**results.get("figures", {}), name: dict(figures)}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def measured(
    name: str, measure: Callable[[Bench], dict[str, Any]], bench: Bench, *, write: bool, command: str = ""
) -> None:
    """Measure, print, and write if wanted; `command` is what measures it again, if not `make bench`."""
    taken, started = stamp(), time.perf_counter()
    figures = measure(bench)
    print(f"\n{name} ({time.perf_counter() - started:.0f} s, load before {taken['load']})", flush=True)
    for label, value, target in lines(name, figures):
        print(f"  {label:72}{value:>22}   {target}", flush=True)
    if write:
        used = versions()
        how: dict[str, Any] = {"machine": machine()}
        if command:
            how["command"] = command
            used = {each: version for each, version in used.items() if each in OF_ALL}
        keep(
            name,
            {
                **taken,
                "rough": bench.quick,
                **how,
                **figures,
                "versions": {**used, **figures.get("versions", {})},
            },
        )


def alone(
    name: str,
    measure: Callable[[Bench, argparse.Namespace], dict[str, Any]],
    *,
    doc: str | None,
    arguments: Callable[[argparse.ArgumentParser], None] | None = None,
) -> None:
    """Be the command of one measurement: `python -m benchmarks.<name>`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="little work and rough figures, to see that all works"
    )
    parser.add_argument("--write", action="store_true", help="write rough figures too; they are called so")
    if arguments is not None:
        arguments(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="corpusmill-bench-") as folder:
        bench = Bench(folder=Path(folder), quick=options.quick)
        measured(
            name,
            lambda each: measure(each, options),
            bench,
            write=options.write or not options.quick,
            command=f"python -m benchmarks.{name}",
        )
