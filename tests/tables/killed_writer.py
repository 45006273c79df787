"""A run that writes one generation of a dataset, and may be told to die on the way (see `killpoints`).

    python killed_writer.py SINK GENERATION MODE

`MODE` is `as-is`, `no-exchange` (a system that cannot swap two folders) or `no-rename` (a folder that is a mount).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyarrow as pa

from corpusmill.tables import Manifest, commit, layout, open_sink, open_source

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 5_000
ROWS_PER_PART = 2_000


def rows_of(generation: int) -> pa.Table:
    """Rows that all name their generation."""
    return pa.table({"row": range(ROWS), "generation": [generation] * ROWS})


def write(sink_path: str, generation: int) -> Manifest:
    """Write one generation, under the lock, as a run does."""
    table = rows_of(generation)
    sink = open_sink(sink_path)
    with sink.lock():
        sink.decide(f"run-{generation}", "job")
        writing = sink.begin(table.schema, run_key=f"run-{generation}", job_key="job")
        for index, start in enumerate(range(0, ROWS, ROWS_PER_PART)):
            part = writing.part(index, start)
            for chunk in open_source(table.slice(start, ROWS_PER_PART)).chunks():
                part.write(chunk.batch)
            part.close()
        return writing.commit(sidecars={"report.json": b'{"generation": %d}' % generation})


def never_renamed(folder: Path) -> bool:
    """What a mount answers."""
    return folder.name == "never"


def change_system(mode: str) -> None:
    """Make this process believe in a system of another kind."""
    if mode == "no-exchange":
        commit.exchange = lambda *_: False
    elif mode == "no-rename":
        layout.can_be_renamed = never_renamed


if __name__ == "__main__":
    change_system(sys.argv[3])
    write(sys.argv[1], int(sys.argv[2]))
