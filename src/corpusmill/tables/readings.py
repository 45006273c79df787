"""Where rows come from: files, a table in memory, a reader, a dataset. Before any limit or row range."""

from __future__ import annotations

import functools
import hashlib
import io
import operator
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import dataset as pads
from pyarrow import ipc
from pyarrow import types as pt

from corpusmill.errors import SourceError
from corpusmill.tables.files import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    Footer,
    promising_groups,
    read_batches,
    rows_without_columns,
    skipping,
)
from corpusmill.tables.locate import FileState, check_state, look_at
from corpusmill.tables.schemas import fitted, without_views
from corpusmill.tables.storable import has_type, schema_like
from corpusmill.tables.storage import Place
from corpusmill.tables.weight import content_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Reading(Protocol):
    """Where rows come from, before limit and row range."""

    schema: pa.Schema

    def rows(self) -> int | None:
        """The number of rows, where it is known without reading them."""

    def batches(self, skip: int) -> Iterator[pa.RecordBatch]:
        """The rows from number `skip` on, in order, in pieces of any size."""

    def state(self) -> Any:
        """What tells this content from another, fit for JSON; None when nothing does."""


class FilesReading:
    """Parquet and Arrow files, one after another."""

    def __init__(
        self,
        footers: Sequence[Footer],
        *,
        full: pa.Schema,
        schema: pa.Schema,
        condition: pc.Expression | None,
        read: tuple[str, ...],
    ) -> None:
        self._footers = footers
        self._condition = condition
        self._read = schema_like(full, [full.field(name) for name in read])
        self.schema = schema
        wanted = [*schema.names, *(name for name in read if name not in schema.names)]
        self._wanted = schema_like(full, [full.field(name) for name in wanted])

    def rows(self) -> int | None:
        """The sum over the footers, unless a stream stands before it, or a filter on more than the folders' keys."""
        known = [self._rows_of(footer) for footer in self._footers]
        return None if None in known else sum(rows for rows in known if rows is not None)

    def _rows_of(self, footer: Footer) -> int | None:
        """The rows of a file that fulfil the condition; None where only reading would tell."""
        if self._condition is None:
            return footer.rows
        if any(name in footer.schema.names for name in self._read.names):
            return None
        # The keys of its folders are the same for all rows of a file, so that one row stands for them.
        keys = fitted(rows_without_columns(1), self._read, footer.state)
        return footer.rows if where(keys, self._condition).num_rows else 0

    def state(self) -> Any:
        """Path, size, and modification time or ETag of each file."""
        return [
            {
                "path": state.place.path,
                "size": state.size,
                **({"etag": state.etag} if state.etag else {"mtime_ns": state.mtime_ns}),
            }
            for state in (footer.state for footer in self._footers)
        ]

    def files_of(self, start: int, stop: int) -> tuple[FileState, ...]:
        """The files that hold the rows [start, stop); all of them where only reading would tell."""
        states = tuple(footer.state for footer in self._footers)
        if self._condition is not None or self.rows() is None:
            return states
        found = []
        first = 0
        for footer in self._footers:
            after = first + (footer.rows or 0)
            if first < stop and start < after:
                found.append(footer.state)
            first = after
        return tuple(found)

    def batches(self, skip: int) -> Iterator[pa.RecordBatch]:
        """The rows from number `skip` on; without a filter what lies before is not read."""
        if self._condition is not None:
            yield from skipping(gathered(self._filtered(self._condition), self.schema), skip)
            return
        for footer in self._footers:
            if footer.rows is not None:
                if skip < footer.rows:
                    yield from self._of_file(footer, skip=skip)
                skip = max(0, skip - footer.rows)
                continue
            for batch in self._of_file(footer):
                yield batch.slice(skip)
                skip = max(0, skip - batch.num_rows)

    def _of_file(
        self, footer: Footer, *, skip: int = 0, only: frozenset[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file, which is the same before its first row and after its last, or the run ends."""
        check_state(footer.state)
        own = [name for name in self._wanted.names if name in footer.schema.names]
        try:
            for batch in read_batches(footer, own, skip=skip, only=only):
                yield fitted(batch, self._wanted, footer.state)
        except SourceError:
            # A file that was replaced half way looks like a broken one.
            check_state(footer.state)
            raise
        check_state(footer.state)

    def _filtered(self, condition: pc.Expression) -> Iterator[pa.RecordBatch]:
        for footer in self._footers:
            keys = _guarantee(footer, self._wanted)
            only = promising_groups(footer, condition, schema=self._wanted, keys=keys)
            for batch in self._of_file(footer, only=only):
                kept = where(batch, condition)
                if kept.num_rows:
                    yield kept.select(self.schema.names)


def _guarantee(footer: Footer, schema: pa.Schema) -> pc.Expression | None:
    """What the folders of a file say of all its rows."""
    parts = [
        pc.field(name).is_null()
        if value is None
        else pc.field(name) == pa.scalar(value).cast(schema.field(name).type)
        for name, value in footer.state.keys
        if name in schema.names and name not in footer.schema.names
    ]
    return functools.reduce(operator.and_, parts) if parts else None


def where(batch: pa.RecordBatch, condition: pc.Expression) -> pa.RecordBatch:
    """The rows that fulfil the condition. Columns of views take a detour: Arrow cannot filter them."""
    table = pa.Table.from_batches([batch])
    if any(has_type(field.type, _is_view) for field in batch.schema):
        try:
            table = table.cast(without_views(batch.schema)).filter(condition).cast(batch.schema)
        except pa.ArrowException as error:
            raise SourceError(
                f"the source cannot be filtered, a column is of a type that Arrow cannot: {error}"
            ) from error
    else:
        table = table.filter(condition)
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else batch.slice(0, 0)


def _is_view(type_: pa.DataType) -> bool:
    return bool(pt.is_string_view(type_) or pt.is_binary_view(type_))


def gathered(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Small batches put together to a chunk's size: a filter may leave one row of a thousand.

    Columns of dictionaries stay as they come, since the dictionaries may not fit together.
    """
    if any(has_type(field.type, pt.is_dictionary) for field in schema):
        yield from batches
        return
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += content_bytes(batch)
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, rows, size = [], 0, 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


class TableReading:
    """A table in memory."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.schema = table.schema

    def rows(self) -> int | None:
        """The table's rows."""
        return int(self._table.num_rows)

    def batches(self, skip: int) -> Iterator[pa.RecordBatch]:
        """The rows from number `skip` on, cut at multiples of a chunk's rows, whatever the table's chunks."""
        start = skip
        while start < self._table.num_rows:
            stop = (start // CHUNK_ROWS + 1) * CHUNK_ROWS
            yield from self._table.slice(start, stop - start).combine_chunks().to_batches()
            start = stop

    def state(self) -> Any:
        """A hash of schema and rows, whatever the chunks."""
        sink = _Hashing()
        sink.write(self.schema.serialize())
        for batch in self.batches(0):
            alone = pa.RecordBatch.from_arrays(list(map(_alone, batch.columns)), names=self.schema.names)
            with ipc.new_stream(pa.PythonFile(sink, mode="w"), alone.schema) as writer:
                writer.write_batch(alone)
        return {"sha256": sink.hexdigest()}


def _alone(column: pa.Array[Any]) -> pa.Array[Any]:
    """Give a copy that has nothing behind its rows: of a slice Arrow writes some bytes of the rows that follow, too.

    A column of views is written with all that it looks into, so it becomes one that holds its texts itself.
    """
    if pt.is_string_view(column.type):
        return column.cast(pa.large_string())
    if pt.is_binary_view(column.type):
        return column.cast(pa.large_binary())
    return pa.concat_arrays([column, column.slice(0, 0)])


class _Hashing(io.RawIOBase):
    """A file that keeps nothing of what is written but its hash."""

    def __init__(self) -> None:
        super().__init__()
        self._hash = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._hash.update(data)
        return len(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class StreamReading:
    """A reader, which can be read once."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader: pa.RecordBatchReader | None = reader
        self.schema = reader.schema

    def rows(self) -> int | None:
        """Unknown."""
        return None

    def batches(self, skip: int) -> Iterator[pa.RecordBatch]:
        """The rows from number `skip` on; a second call is an error."""
        reader, self._reader = self._reader, None
        if reader is None:
            raise SourceError(
                "a RecordBatchReader can be read once, and this one has been; pass a table or a path"
            )
        yield from skipping(iter(reader), skip)

    def state(self) -> Any:
        """Nothing tells the content of one reader from another's."""
        return None


class DatasetReading:
    """A dataset of pyarrow's, fragment by fragment."""

    def __init__(self, dataset: pads.Dataset, files: Sequence[FileState]) -> None:
        self._dataset = dataset
        self._files = files
        self.schema = dataset.schema

    def rows(self) -> int | None:
        """The rows by the footers."""
        return int(self._dataset.count_rows(use_threads=False))

    def batches(self, skip: int) -> Iterator[pa.RecordBatch]:
        """The rows from number `skip` on. Nothing is read ahead."""
        options: dict[str, Any] = {}
        if isinstance(getattr(self._dataset, "format", None), pads.ParquetFileFormat):
            options["fragment_scan_options"] = pads.ParquetFragmentScanOptions(
                pre_buffer=False, use_buffered_stream=True
            )
        for fragment in self._dataset.get_fragments():
            if skip:
                rows = fragment.count_rows(use_threads=False)
                if skip >= rows:
                    skip -= rows
                    continue
            yield from skipping(
                fragment.to_batches(
                    schema=self.schema,
                    batch_size=CHUNK_ROWS,
                    batch_readahead=0,
                    fragment_readahead=0,
                    use_threads=False,
                    **options,
                ),
                skip,
            )
            skip = 0

    def state(self) -> Any:
        """The files' state where there are files, else nothing."""
        if not self._files:
            return None
        return [
            {"path": file.place.path, "size": file.size, "mtime_ns": file.mtime_ns, "etag": file.etag}
            for file in self._files
        ]


def dataset_files(dataset: pads.Dataset) -> tuple[FileState, ...]:
    """The state of a dataset's files; none when it is not made of files."""
    if not isinstance(dataset, pads.FileSystemDataset):
        return ()
    from pyarrow import fs as pafs

    local = isinstance(dataset.filesystem, pafs.LocalFileSystem)
    places = [
        Place(filesystem=dataset.filesystem, path=path, shown=path, local=local)
        for path in (fragment.path for fragment in dataset.get_fragments())
    ]
    return tuple(look_at(places))
