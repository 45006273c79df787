"""Reading one file: what its footer tells, and its rows as bounded batches.

Reading is streamed: no column chunk is loaded ahead, and the rows decoded at a time follow from the sizes in
the footer, so that neither a row group of many gigabytes nor one with over 2 GiB of text has to fit anywhere.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import dataset as pads
from pyarrow import ipc
from pyarrow import parquet as pq

from corpusmill.errors import SourceError
from corpusmill.tables.layout import PARQUET
from corpusmill.tables.locate import IPC
from corpusmill.tables.storage import failures_as

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyarrow import compute as pc

    from corpusmill.tables.locate import FileState

CHUNK_ROWS = 2048
"""Rows are read so many at a time: every hand that a chunk goes through costs as much as some hundred rows."""
CHUNK_BYTES = 4 << 20
"""Long rows are read so many bytes at a time, for each chunk is held in several forms at once while it is worked on."""

_STREAM_BUFFER = 1 << 20
_IPC_FILE_MAGIC = b"ARROW1"
_STREAM_MARK = b"\xff\xff\xff\xff"
_PARQUET_MAGIC = b"PAR1"
_FOOTER_END = 8
"""Bytes: the length of the footer, and the magic word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """What is known of a file before its rows are read.

    `groups` holds the rows of each row group (Parquet) or None where it takes reading to know.
    """

    state: FileState
    schema: pa.Schema
    groups: tuple[int, ...] | None

    @property
    def rows(self) -> int | None:
        """The rows of the file, where they are known."""
        return None if self.groups is None else sum(self.groups)


def is_parquet(state: FileState) -> bool:
    """Whether the file's name says Parquet; a name that says nothing is taken for Parquet too."""
    name = state.place.name.lower()
    return name.endswith(PARQUET) or "." not in name


def read_footer(state: FileState) -> Footer:
    """Open a file far enough to know its schema and, if it tells, its rows.

    Raises:
        SourceError: it cannot be read, or is not of the format that its name says; names the file.
    """
    with failures_as(SourceError, "cannot read", state.place):
        if is_parquet(state):
            with _parquet(state) as file:
                metadata = file.metadata
                if _is_signed(state, metadata):
                    # A column that is encrypted fails here; to ask for its sizes, as is done later, ends the process.
                    next(file.iter_batches(1), None)
                groups = tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
                return Footer(state=state, schema=file.schema_arrow, groups=groups)
        with state.place.filesystem.open_input_file(state.place.path) as raw:
            magic = raw.read(len(_IPC_FILE_MAGIC))
            raw.seek(0)
            if magic != _IPC_FILE_MAGIC:
                _check_named(state, magic)
                return Footer(state=state, schema=ipc.open_stream(raw).schema, groups=None)
            schema = ipc.open_file(raw).schema
        fragment = pads.IpcFileFormat().make_fragment(state.place.path, state.place.filesystem)
        return Footer(state=state, schema=schema, groups=(fragment.count_rows(),))


def _is_signed(state: FileState, metadata: pq.FileMetaData) -> bool:
    """Whether something follows the metadata in the footer: the signature of a file with encrypted columns."""
    with state.place.filesystem.open_input_file(state.place.path) as raw:
        raw.seek(state.size - _FOOTER_END)
        return int.from_bytes(raw.read(4), "little") != metadata.serialized_size


def _check_named(state: FileState, begins: bytes) -> None:
    """Refuse a file whose name says nothing that we know and that does not begin as an Arrow stream does either."""
    if state.place.name.lower().endswith(IPC):
        return
    if begins.startswith(_PARQUET_MAGIC):
        raise SourceError(
            f"{state.shown} is a Parquet file by another name; let its name end in {PARQUET[0]}"
        )
    if not begins.startswith(_STREAM_MARK):
        raise SourceError(
            f"{state.shown} is neither a Parquet nor an Arrow file; make one of it first, as with pyarrow.csv.read_csv "
            "or pyarrow.json.read_json and pyarrow.parquet.write_table"
        )


@contextlib.contextmanager
def _parquet(state: FileState) -> Iterator[pq.ParquetFile]:
    with (
        state.place.filesystem.open_input_file(state.place.path) as raw,
        pq.ParquetFile(raw, pre_buffer=False, buffer_size=_STREAM_BUFFER) as file,
    ):
        yield file


def promising_groups(
    footer: Footer, condition: pc.Expression, *, schema: pa.Schema, keys: pc.Expression | None
) -> frozenset[int] | None:
    """The row groups in which rows may fulfil the condition, by statistics and by the hive keys.

    None where nothing can be excluded beforehand (no Parquet).
    """
    if not is_parquet(footer.state):
        return None
    place = footer.state.place
    fragment: Any = pads.ParquetFileFormat().make_fragment(
        place.path, place.filesystem, partition_expression=keys
    )
    with failures_as(SourceError, "cannot read", place):
        return frozenset(group.id for group in fragment.subset(condition, schema=schema).row_groups)


def read_batches(
    footer: Footer, columns: Sequence[str], *, skip: int = 0, only: frozenset[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file from row `skip` on, in order, in pieces of any size, with at least the `columns`.

    These are top-level names. `only` names the row groups to read, None stands for all.

    Raises:
        SourceError: the file turns out to be unreadable half way; names it.
    """
    batches = _parquet_batches if is_parquet(footer.state) else _ipc_batches
    with failures_as(SourceError, "cannot read", footer.state.place):
        yield from batches(footer, columns, skip, only)


def _parquet_batches(
    footer: Footer, columns: Sequence[str], skip: int, only: frozenset[int] | None
) -> Iterator[pa.RecordBatch]:
    with _parquet(footer.state) as file:
        for group, rows in enumerate(footer.groups or ()):
            if only is not None and group not in only:
                continue
            if skip >= rows:
                skip -= rows
                continue
            if not columns:
                yield rows_without_columns(rows - skip)
                skip = 0
                continue
            width = _rows_at_a_time(file, group, columns)
            yield from skipping(file.iter_batches(width, row_groups=[group], columns=list(columns)), skip)
            skip = 0


def skipping(batches: Iterable[pa.RecordBatch], skip: int) -> Iterator[pa.RecordBatch]:
    """What is left of the batches after the first `skip` rows."""
    for batch in batches:
        if skip < batch.num_rows:
            yield batch.slice(skip)
        skip = max(0, skip - batch.num_rows)


def rows_without_columns(rows: int) -> pa.RecordBatch:
    """Rows still count when none of a file's own columns is wanted (only a hive key, say)."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""])


def _rows_at_a_time(file: pq.ParquetFile, group: int, columns: Sequence[str]) -> int:
    """As many rows as hold about two chunks' bytes by the footer's sizes, at most a chunk's rows."""
    metadata = file.metadata.row_group(group)
    wanted = tuple(columns)
    size = 0
    for position in range(metadata.num_columns):
        column = metadata.column(position)
        path = column.path_in_schema
        if any(path == name or path.startswith(f"{name}.") for name in wanted):
            size += column.total_uncompressed_size
    average = max(1, size // max(1, metadata.num_rows))
    return max(1, min(CHUNK_ROWS, 2 * CHUNK_BYTES // average))


def _ipc_batches(
    footer: Footer, columns: Sequence[str], skip: int, only: frozenset[int] | None
) -> Iterator[pa.RecordBatch]:
    del only  # The format has no row groups.
    place = footer.state.place
    with contextlib.ExitStack() as stack:
        # Not mapped into memory: a file that is cut short under a mapping kills the process.
        raw = stack.enter_context(place.filesystem.open_input_file(place.path))
        reader: ipc.RecordBatchFileReader | ipc.RecordBatchStreamReader
        if footer.groups is None:
            reader = stack.enter_context(ipc.open_stream(raw))
            batches: Iterator[pa.RecordBatch] = iter(reader)
        else:
            file = stack.enter_context(ipc.open_file(raw))
            batches = (file.get_batch(position) for position in range(file.num_record_batches))
        for batch in skipping(batches, skip):
            yield batch.select(list(columns)) if columns else rows_without_columns(batch.num_rows)
