"""Reading a sink back: all of what its manifest names, or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import dataset as pads

from corpusmill.errors import SourceError
from corpusmill.tables.sink import Sink, SinkSpec, open_sink
from corpusmill.tables.storage import failures_as, refusals_as

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def read(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    partition: Mapping[str, str | None] | None = None,
) -> pads.Dataset:
    """The dataset that a sink holds, by its manifest; nothing but footers is read yet.

    `columns` narrows it to some top-level columns, in their order. `partition` names one hive partition.

    Raises:
        SourceError: no finished sink lies there, a part is missing or has another size, a column is unknown.
    """
    sink = open_sink(SinkSpec(path=path, partition=partition))
    files = _files(sink)
    target = sink.layout.target
    with failures_as(SourceError, "cannot read", target):
        dataset = pads.dataset(files, filesystem=target.filesystem, format="parquet")
        if columns is None:
            return dataset
        for name in columns:
            if name not in dataset.schema.names:
                raise SourceError(
                    f"{sink.shown} has no column {name!r}; it has {', '.join(dataset.schema.names)}"
                )
        narrow = pa.schema([dataset.schema.field(name) for name in columns])
        return pads.dataset(files, filesystem=target.filesystem, format="parquet", schema=narrow)


def _files(sink: Sink) -> list[str]:
    """The paths of all parts, which are there."""
    target = sink.layout.target
    with refusals_as(SourceError):
        found = sink.manifest()
        whole = found is not None and sink.is_whole(found)
    if found is None:
        raise SourceError(f"{sink.shown} holds no finished output of corpusmill")
    if not whole:
        raise SourceError(f"{sink.shown}: a part is missing or has another size than its manifest says")
    if sink.layout.kind == "file":
        return [target.path]
    return [(target / part.name).path for part in found.parts]
