"""Writing parts: fixed ranges of rows as Parquet files whose bytes follow from schema and rows alone.

A row group ends after the row that fills it, by rows or by bytes of content, wherever the batches were cut.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import ipc
from pyarrow import parquet as pq

from corpusmill.errors import SinkError
from corpusmill.killpoints import reach
from corpusmill.tables.plain import plain_batch
from corpusmill.tables.storable import plain_schema, stored_metadata
from corpusmill.tables.storage import Place, failures_as, sync_file
from corpusmill.tables.weight import content_bytes, rows_until

if TYPE_CHECKING:
    from collections.abc import Callable

COMPRESSIONS = ("zstd", "snappy", "gzip", "brotli", "lz4", "none")
GROUP_ROWS = 16_384
GROUP_BYTES = 16 << 20
WRITE_BYTES = 1 << 20
"""Bytes that are written out at once."""

ROWS_AT_ONCE = 16
"""Rows after which Arrow looks whether a page is full and a dictionary too large: of long rows its own 1,024 would all
be in both of them before."""


class _Hashed(io.RawIOBase):
    """A stream that hashes what passes through."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream
        self._hash = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        count = len(memoryview(data))
        self._stream.write(data)
        self._hash.update(data)
        self.size += count
        return count

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A finished file: its size in bytes and its SHA-256, hexadecimal."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPart:
    """A part that is written and not yet in the dataset: its rows of the source, and its file.

    `size` and `sha256` are those of the file; 0 and empty for a part of a single-file sink, which is no file yet.
    """

    index: int
    first_row: int
    rows: int
    place: Place
    size: int
    sha256: str


class ParquetFile:
    """An open Parquet file that takes whole row groups."""

    def __init__(self, place: Place, schema: pa.Schema, compression: str) -> None:
        self._place = place
        self._stream = place.filesystem.open_output_stream(place.path)
        self._hashed = _Hashed(self._stream)
        codec: Any = compression
        hashed: Any = self._hashed
        # Arrow calls Python for each piece that it writes, and has to wait for the interpreter's lock each time.
        self._buffered = pa.output_stream(hashed, buffer_size=WRITE_BYTES)
        self._writer = pq.ParquetWriter(
            self._buffered,
            plain_schema(schema),
            compression=codec,
            store_schema=False,
            write_batch_size=ROWS_AT_ONCE,
        )
        self._writer.add_key_value_metadata(stored_metadata(schema))

    def write_group(self, table: pa.Table) -> None:
        """Write a table of plain types as one row group."""
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def close(self) -> Written:
        """Finish the file, durably."""
        self._writer.close()
        self._buffered.close()
        self._stream.close()
        if self._place.local:
            sync_file(self._place.path)
        return Written(size=self._hashed.size, sha256=self._hashed.hexdigest())

    def abandon(self) -> None:
        """Let go of the file, in whatever state."""
        _let_go(self._writer, self._buffered, self._stream)


class StagedGroups:
    """Row groups laid by in an Arrow file, exact in every type, until those before them are there."""

    def __init__(self, place: Place, schema: pa.Schema) -> None:
        self._stream = place.filesystem.open_output_stream(place.path)
        options = ipc.IpcWriteOptions(compression="zstd")
        self._writer = ipc.new_file(self._stream, plain_schema(schema), options=options)

    def write_group(self, table: pa.Table) -> None:
        """Write a table of plain types as one record batch."""
        for batch in table.to_batches():
            self._writer.write_batch(batch)

    def close(self) -> Written:
        """Finish the file. It is of no use after a crash, so it is neither hashed nor made durable."""
        self._writer.close()
        self._stream.close()
        return Written(size=0, sha256="")

    def abandon(self) -> None:
        """Let go of the file, in whatever state."""
        _let_go(self._writer, self._stream)


def _let_go(*things: Any) -> None:
    """Close what can be closed. The file is thrown away, and what keeps it from being finished is known."""
    for thing in things:
        with contextlib.suppress(OSError, ValueError, pa.ArrowException):
            thing.close()


class PartWriter:
    """One part while it is written. Batches come in the order of their rows; `close` makes it count."""

    def __init__(
        self,
        *,
        index: int,
        first_row: int,
        place: Place,
        schema: pa.Schema,
        file: ParquetFile | StagedGroups,
        closed: Callable[[PartWriter, Written], None],
    ) -> None:
        self.index = index
        self.first_row = first_row
        self.place = place
        self.rows = 0
        self._schema = schema
        self._plain = plain_schema(schema)
        self._file = file
        self._closed = closed
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._held_bytes = 0
        self._open = True

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            SinkError: the batch has not the declared schema, or the part cannot be written.
        """
        if not batch.schema.equals(self._schema):
            raise SinkError(
                f"{self.place.shown}: rows of another schema than declared\n{batch.schema}\n{self._schema}"
            )
        with failures_as(SinkError, "cannot write", self.place):
            self._take(plain_batch(batch, self._plain))
        self.rows += batch.num_rows

    def close(self) -> None:
        """Write what is held, finish the file, and make it one of the dataset's parts."""
        if not self._open:
            return
        with failures_as(SinkError, "cannot write", self.place):
            if self._held_rows:
                self._flush()
            self._open = False
            reach("sink.part")
            written = self._file.close()
        self._closed(self, written)

    def abandon(self) -> None:
        """Let go of the file; the part will not count."""
        if self._open:
            self._open = False
            self._held.clear()
            self._file.abandon()

    def _take(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            room = min(batch.num_rows, GROUP_ROWS - self._held_rows)
            piece = batch.slice(0, room)
            size = content_bytes(piece)
            if self._held_bytes + size >= GROUP_BYTES:
                room = rows_until(piece, GROUP_BYTES - self._held_bytes)
                piece = batch.slice(0, room)
                size = content_bytes(piece)
            self._held.append(piece)
            self._held_rows += room
            self._held_bytes += size
            if self._held_rows >= GROUP_ROWS or self._held_bytes >= GROUP_BYTES:
                self._flush()
            batch = batch.slice(room)

    def _flush(self) -> None:
        # One chunk a column: pages would otherwise follow the cuts of the batches.
        self._file.write_group(pa.Table.from_batches(self._held, self._plain).combine_chunks())
        self._held, self._held_rows, self._held_bytes = [], 0, 0
