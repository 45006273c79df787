from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from corpusmill.tables import Manifest, Sink, open_sink, open_source

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa


@pytest.fixture
def fill() -> Callable[..., Manifest]:
    """A function that writes a table to a sink: under its lock, in parts, in chunks, committed."""

    def write(
        sink: Sink | str,
        table: pa.Table,
        *,
        rows_per_part: int = 65_536,
        run_key: str | None = "run",
        job_key: str = "job",
        **commit: Any,
    ) -> Manifest:
        sink = sink if isinstance(sink, Sink) else open_sink(sink)
        with sink.lock():
            writing = sink.begin(table.schema, run_key=run_key, job_key=job_key)
            for index, start in enumerate(range(0, table.num_rows, rows_per_part)):
                part = writing.part(index, start)
                for chunk in open_source(table.slice(start, rows_per_part)).chunks():
                    part.write(chunk.batch)
                part.close()
            return writing.commit(**commit)

    return write
