"""Where bound batches go: the parts of a sink, or a queue in order of rows."""

from __future__ import annotations

import queue
import tempfile
import threading
from typing import IO, TYPE_CHECKING, Protocol

import msgspec

from corpusmill.engine.pages import Shelf, Shelves
from corpusmill.killpoints import reach
from corpusmill.quoting import unquoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from corpusmill.outcome import Outcome
    from corpusmill.tables import PartWriter, Writing


class Output(Protocol):
    """Where bound batches go. Called from the press's thread; `write` may block to slow the run down."""

    def write(self, first_row: int, batch: pa.RecordBatch) -> None:
        """Take a batch; they come in any order, each row once."""

    def finish(self, rows: int) -> None:
        """Hear that there were so many rows and all have been written."""


class PartsOutput:
    """Writes each part when its rows come, whatever earlier parts do."""

    def __init__(self, writing: Writing, *, rows_per_part: int) -> None:
        """Take an open sink; a part holds `rows_per_part` rows of the source, the last one fewer."""
        self._writing = writing
        self._rows = rows_per_part
        self._room = Shelves()
        self._shelves: dict[int, Shelf] = {}
        self._writers: dict[int, PartWriter] = {}
        self._written = 0

    def write(self, first_row: int, batch: pa.RecordBatch) -> None:
        """Take a batch, which may reach over the end of a part."""
        while batch.num_rows:
            index, offset = divmod(first_row, self._rows)
            piece = batch.slice(0, self._rows - offset)
            self._write(index, first_row, piece)
            first_row += piece.num_rows
            batch = batch.slice(piece.num_rows)

    def _write(self, index: int, first_row: int, piece: pa.RecordBatch) -> None:
        start = index * self._rows
        shelf = self._shelves.get(index)
        if shelf is None:
            shelf = self._shelves[index] = Shelf(start, self._room)
        shelf.put(first_row, piece)
        for _, batch in shelf.take():
            writer = self._writers.get(index)
            if writer is None:
                writer = self._writers[index] = self._writing.part(index, start)
            reach("part")
            writer.write(batch)
            self._written += batch.num_rows
        if shelf.next_row == start + self._rows:
            self._close(index)

    def _close(self, index: int) -> None:
        self._writers.pop(index).close()
        del self._shelves[index]

    def finish(self, rows: int) -> None:
        """Close the last part; a source without rows has one part without rows."""
        if self._written != rows:
            raise AssertionError(f"{rows} rows were read, and {self._written} of them written")
        if rows == 0:
            self._writing.part(0, 0).close()
        for index in sorted(self._writers):
            self._close(index)
        self._room.close()

    def discard(self) -> None:
        """Let go of everything that is open; what was written lies in the sink's staging place."""
        self._room.close()
        self._shelves.clear()
        self._writers.clear()


class OrderedOutput:
    """Hands batches on in the order of rows, to a consumer in another thread; a slow consumer slows the run."""

    def __init__(self, *, ahead: int = 8) -> None:
        """Let the run be `ahead` batches ahead of the consumer."""
        self._room = Shelves()
        self._shelf = Shelf(0, self._room)
        self._queue: queue.Queue[pa.RecordBatch | None] = queue.Queue(maxsize=ahead)
        self._abandoned = threading.Event()

    def write(self, first_row: int, batch: pa.RecordBatch) -> None:
        """Take a batch; blocks while the consumer is behind."""
        self._shelf.put(first_row, batch)
        for _, ready in self._shelf.take():
            self._hand_on(ready)

    def finish(self, rows: int) -> None:  # noqa: ARG002 - the protocol's shape
        """Tell the consumer that this was all."""
        self._hand_on(None)

    def _hand_on(self, batch: pa.RecordBatch | None) -> None:
        while not self._abandoned.is_set():
            try:
                self._queue.put(batch, timeout=0.1)
            except queue.Full:
                continue
            return

    def abandon(self) -> None:
        """Take nothing any more: the consumer has left, or the run has failed."""
        self._abandoned.set()
        self._room.close()

    def batches(self, ended: threading.Event) -> Iterator[pa.RecordBatch]:
        """Give the batches as they come, until the last one, or until the run has ended without one."""
        while True:
            try:
                batch = self._queue.get(timeout=0.1)
            except queue.Empty:
                if ended.is_set() and self._queue.empty():
                    return
                continue
            if batch is None:
                return
            yield batch


class FailureLog:
    """The rows that failed, one JSON object a line, without any text of the corpus: what quotes it is taken out."""

    def __init__(self) -> None:
        """Keep the first megabyte in memory, more on disk."""
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=1 << 20)  # noqa: SIM115 - open until `close`
        self.rows = 0

    def add(self, row: int, into: str, kind: str, outcome: Outcome, own: Iterable[str]) -> None:
        """Note a row and the kind of its error; `own` are the texts that were asked about and that came back."""
        self.rows += 1
        line = {
            "row": row,
            "into": into,
            "status": outcome.status,
            "kind": kind,
            "error": None if outcome.error is None else unquoted(outcome.error, own),
            "finish_reason": outcome.finish_reason,
            "attempts": outcome.attempts,
            "request_key": outcome.request_key,
            "request_id": outcome.request_id,
        }
        self._file.write(msgspec.json.encode(line) + b"\n")

    def absorb(self, content: bytes) -> None:
        """Take over the lines that another log has."""
        self.rows += content.count(b"\n")
        self._file.write(content)

    def lines(self) -> Iterator[bytes]:
        """Give the lines, each with its line feed."""
        self._file.seek(0)
        yield from self._file

    def content(self) -> bytes:
        """Give all lines at once."""
        self._file.seek(0)
        return self._file.read()

    def close(self) -> None:
        """Remove what lies on disk."""
        self._file.close()
