"""The thread that writes bound batches out, and the few that may wait for it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from corpusmill.engine.side_thread import SideThread

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    import pyarrow as pa

    from corpusmill.engine.outputs import Output

BOUND_AHEAD = 16
BOUND_BYTES = 16 << 20
"""Bound batches, and their weight, that may wait for the press before the desk goes on."""


class Press:
    """Hands batches to an output, in a thread of its own; it is given them by one other thread."""

    def __init__(self, output: Output, *, failed: Callable[[BaseException], None]) -> None:
        """`failed` hears of what the output raises, in the press's thread."""
        self._output = output
        self._failed = failed
        self._thread = SideThread("corpusmill-press")
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._bytes = 0

    def take(self, first_row: int, batch: pa.RecordBatch) -> None:
        """Have a batch written; waits while the press is behind."""
        weight = batch.nbytes
        while self._waiting and (len(self._waiting) >= BOUND_AHEAD or self._bytes + weight > BOUND_BYTES):
            write, written = self._waiting.popleft()
            write.exception()  # waits; what it was, `failed` has heard
            self._bytes -= written
        write = self._thread.submit(self._output.write, first_row, batch)
        write.add_done_callback(self._written)
        self._waiting.append((write, weight))
        self._bytes += weight

    async def close(self, *, cancel: bool) -> None:
        """Wait until all is written; with `cancel` for no more than what is being written."""
        await self._thread.close(cancel=cancel)

    def _written(self, write: Future[None]) -> None:
        if not write.cancelled() and (error := write.exception()) is not None:
            self._failed(error)
