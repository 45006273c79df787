"""Sources: the rows of a table, numbered, as bounded chunks.

A row's number is its place in the source after filter, limit and row range, with files in sorted order. Where
chunks begin follows from the content alone, never from memory, threads or time: two runs see the same chunks.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import dataset as pads

from corpusmill.errors import SourceError, UsageError, placed
from corpusmill.prompts.columns import named
from corpusmill.tables.files import CHUNK_BYTES, CHUNK_ROWS, read_footer
from corpusmill.tables.filters import build_filter
from corpusmill.tables.locate import FileState, check_state, find_files
from corpusmill.tables.readings import (
    DatasetReading,
    FilesReading,
    Reading,
    StreamReading,
    TableReading,
    dataset_files,
)
from corpusmill.tables.schemas import keys_schema, one_schema
from corpusmill.tables.storable import check_names, schema_like
from corpusmill.tables.storage import place_of, refusals_as
from corpusmill.tables.weight import bounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_FOOTERS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """What to read of a table.

    `columns` are top-level names (None: all), `filter` is `[[column, op, value], …]`, `limit` counts rows
    after the filter, and `rows` is the range [start, stop) of those that are left. Values of hive keys are
    text unless `partition_types` names an Arrow type for a key, such as `int32`.
    """

    path: str | Path
    columns: Sequence[str] | None = None
    filter: Sequence[Sequence[Any]] | None = None
    limit: int | None = None
    rows: tuple[int, int] | None = None
    partition_types: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what could not mean anything."""
        if self.limit is not None and self.limit < 0:
            raise SourceError(f"source.limit is {self.limit}; it must be 0 or more, or left out")
        if self.rows is not None and not 0 <= self.rows[0] <= self.rows[1]:
            raise SourceError(f"source.rows is {self.rows}; it must be [start, stop) with 0 <= start <= stop")
        if isinstance(self.columns, str):
            raise SourceError(f"source.columns is the text {self.columns!r}; it must be a list of names")


SourceLike = SourceSpec | str | Path | pa.Table | pa.RecordBatchReader | pads.Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some rows in a row: `batch` holds those from number `first_row` on."""

    first_row: int
    batch: pa.RecordBatch


class Source:
    """An opened table. Made by `open_source`; everything that can be refused has been refused."""

    def __init__(
        self,
        reading: Reading,
        *,
        description: Any,
        files: tuple[FileState, ...] = (),
        rows: range | None = None,
    ) -> None:
        self._reading = reading
        self._description = description
        self._range = rows
        self.schema = reading.schema
        self.files = files

    def __repr__(self) -> str:
        return f"<Source {self._description} of {len(self.files)} files>"

    @property
    def rows(self) -> int | None:
        """The number of rows; None where only reading would tell."""
        total = self._reading.rows()
        if self._range is None or total is None:
            return total
        return len(range(total)[self._range.start : self._range.stop])

    def identity(self) -> Any:
        """What the run key holds of the source: what was asked for and the state of it. None for a reader."""
        state = self._reading.state()
        return None if state is None else {"asked": self._description, "state": state}

    def description(self) -> Any:
        """What was asked for, without the state of the files: what the job key holds of the source."""
        return self._description

    def chunks(self, start_row: int = 0) -> Iterator[Chunk]:
        """The rows from number `start_row` on, in chunks of at most 2,048 rows and about 4 MiB (or one row).

        Raises:
            SourceError: a file turns out to be unreadable.
            SourceChangedError: a file is no longer the one that was opened.
        """
        first = start_row
        offset = self._range.start if self._range is not None else 0
        left = None if self._range is None else max(0, len(self._range) - start_row)
        if left == 0:
            return
        for wide in self._reading.batches(offset + start_row):
            for batch in bounded(wide, rows=CHUNK_ROWS, size=CHUNK_BYTES):
                piece = batch if left is None else batch.slice(0, left)
                yield Chunk(first_row=first, batch=piece)
                first += piece.num_rows
                if left is not None:
                    left -= piece.num_rows
                    if left == 0:
                        return

    def files_of(self, start: int, stop: int) -> tuple[FileState, ...]:
        """The files that hold the rows from number `start` to before `stop`; all where only reading would tell."""
        offset = self._range.start if self._range is not None else 0
        if isinstance(self._reading, FilesReading):
            return self._reading.files_of(offset + start, offset + stop)
        return self.files

    def verify_unchanged(self) -> None:
        """Compare each file with what it was when the source was opened.

        Raises:
            SourceChangedError: a file has another size, time or ETag, or is gone; names it.
        """
        for state in self.files:
            check_state(state)


def open_source(spec: SourceLike) -> Source:
    """Open a table for reading: a path or URL of files, a folder or a glob, or something of pyarrow's.

    Raises:
        SourceError: it is missing or unreadable, its files do not fit together, a name in the request is
            unknown.
    """
    if isinstance(spec, pa.Table):
        check_source_names(spec.schema)
        return Source(TableReading(spec), description={"table": None})
    if isinstance(spec, pa.RecordBatchReader):
        check_source_names(spec.schema)
        return Source(StreamReading(spec), description={"reader": None})
    if isinstance(spec, pads.Dataset):
        check_source_names(spec.schema)
        files = dataset_files(spec)
        return Source(
            DatasetReading(spec, files), description={"dataset": [f.place.path for f in files]}, files=files
        )
    if isinstance(spec, str | Path):
        spec = SourceSpec(path=spec)
    if not isinstance(spec, SourceSpec):
        raise SourceError(
            f"a source is a path, a SourceSpec or an Arrow table, reader or dataset, not {type(spec)}"
        )
    with placed("source"):
        return _open_files(spec)


def check_source_names(schema: pa.Schema) -> None:
    """Refuse a source in which a column's name stands twice."""
    try:
        check_names(schema)
    except UsageError as error:
        raise SourceError(f"the source cannot be read: {error}") from error


def _open_files(spec: SourceSpec) -> Source:
    with refusals_as(SourceError):
        place = place_of(spec.path)
    files = find_files(place)
    if len(files) == 1:
        footers = [read_footer(files[0])]
    else:
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            footers = list(pool.map(read_footer, files))
    for footer in footers:
        try:
            check_names(footer.schema)
        except UsageError as error:
            raise SourceError(f"{footer.state.shown}: {error}") from error
    keys = keys_schema(files[0], spec.partition_types)
    full = one_schema(footers, keys)
    with placed("source", "filter"):
        condition, read = build_filter(spec.filter, full) if spec.filter is not None else (None, ())
    with placed("source", "columns"):
        schema = _projected(full, spec.columns)
    description = {
        "path": place.address,
        "columns": None if spec.columns is None else list(spec.columns),
        "filter": None if spec.filter is None else [[str(item) for item in one] for one in spec.filter],
        "limit": spec.limit,
        "rows": None if spec.rows is None else list(spec.rows),
        "partition_types": dict(spec.partition_types),
    }
    reading = FilesReading(footers, full=full, schema=schema, condition=condition, read=read)
    return Source(reading, description=description, files=tuple(files), rows=_row_range(spec))


def _row_range(spec: SourceSpec) -> range | None:
    if spec.limit is None and spec.rows is None:
        return None
    start, stop = spec.rows if spec.rows is not None else (0, spec.limit or 0)
    if spec.limit is not None:
        stop = min(stop, spec.limit)
    return range(min(start, stop), stop)


def _projected(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    meant: list[str] = []
    for name in columns:
        found = named(name, schema.names)
        if found is None:
            nearest = ", ".join(map(repr, schema.names[:20]))
            raise SourceError(
                f"source.columns names {name!r}, which is no top-level column; there are {nearest}"
            )
        meant.append(found)
    if len(set(meant)) != len(meant):
        raise SourceError("source.columns names a column twice")
    return schema_like(schema, [schema.field(name) for name in meant])
