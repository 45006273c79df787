"""Named points at which a test may kill the process.

A test names one in the environment, `CORPUSMILL_KILL_AT=name` or `name:nth` (counted from 1, per process),
and the process ends itself there with SIGKILL, so that nothing gets a chance to tidy up.
`CORPUSMILL_KILL_LOG` names a file to which the point is appended first: the proof that it was reached.
Without the variable a point costs one comparison.
"""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

_WANTED, _, _NTH = os.environ.get("CORPUSMILL_KILL_AT", "").partition(":")
_passes = itertools.count(1)


def reach(name: str) -> None:
    """End the process here if the environment asked for this point (and for this pass of it)."""
    if name != _WANTED:
        return
    if next(_passes) != int(_NTH or 1):
        return
    if log := os.environ.get("CORPUSMILL_KILL_LOG"):
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")
            file.flush()
            os.fsync(file.fileno())
    os.kill(os.getpid(), signal.SIGKILL)
