"""Each figure is taken in a process of its own, which is told what to do and answers with numbers.

So no measurement inherits the memory, the imports or the threads of another one.

    python -m benchmarks.child benchmarks.live:ours '{"rows": 100}'
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[1]


def call(function: str, **arguments: Any) -> dict[str, Any]:
    """Call `module:function` in a new process, and give the numbers that it gives (none: an empty dictionary)."""
    done = subprocess.run(
        command(function, arguments),
        cwd=ROOT,
        env=surroundings(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return numbers(done.stdout)


def command(function: str, arguments: Mapping[str, Any], *, python: str = sys.executable) -> list[str]:
    """Give the command that calls `module:function`."""
    return [python, "-m", "benchmarks.child", function, json.dumps(arguments)]


def surroundings() -> dict[str, str]:
    """Give the environment's variables for it: modules are compiled once and kept, as an installed package's are."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def numbers(output: str) -> dict[str, Any]:
    """Read the numbers that a call has printed last."""
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


@contextlib.contextmanager
def spent(figures: dict[str, Any]) -> Iterator[None]:
    """Note how long a block takes: `seconds` by the clock, and `cpu` seconds of all threads of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    figures["seconds"] = time.perf_counter() - wall
    figures["cpu"] = time.process_time() - cpu


def peak_memory() -> int:
    """Give the most bytes of memory that this process has held at once.

    Linux's `ru_maxrss` may be that of the process which started this one, so its own record goes first.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text("ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def forget_peak_memory() -> None:
    """Have `peak_memory` count anew from here on; Linux only."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")


def main() -> None:
    """Do what the arguments say, and print the numbers as the last line."""
    module, _, name = sys.argv[1].partition(":")
    found = getattr(importlib.import_module(module), name)(**json.loads(sys.argv[2]))
    print(json.dumps(found or {}), flush=True)
    # What else the process holds is of no interest, and taking it apart would be measured by nobody.
    os._exit(0)


if __name__ == "__main__":
    main()
