"""How long `import corpusmill` takes, and with it what a run needs."""

from __future__ import annotations

import importlib
import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.child import call, spent

if TYPE_CHECKING:
    from benchmarks.bench import Bench

ROUNDS = 9


def once(*, module: str) -> dict[str, Any]:
    """Import a module, and nothing before it that it needs."""
    figures: dict[str, Any] = {}
    with spent(figures):
        importlib.import_module(module)
    return figures


def measure(bench: Bench) -> dict[str, Any]:
    """Give seconds and processor seconds, medians."""
    figures: dict[str, Any] = {}
    for name, module in (("package", "corpusmill"), ("run", "corpusmill.run")):
        found = [call("benchmarks.importing:once", module=module) for _ in range(bench.size(ROUNDS, 3))]
        figures[f"{name}_seconds"] = statistics.median(each["seconds"] for each in found)
        figures[f"{name}_cpu_seconds"] = statistics.median(each["cpu"] for each in found)
    return figures
