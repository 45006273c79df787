"""Chunks of the source with what the store has for them; while one is worked on, the next one is read and looked up.

A source may take its time, and so may a database, both of them without the interpreter's lock: each is waited for in a
thread of its own. Whoever works on the chunks waits no more than a moment for a source that has nothing yet, for it may
give the next rows only after it has seen what came of the last ones.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent import futures
from typing import TYPE_CHECKING, NamedTuple, Protocol

from corpusmill.engine.pages import OpenChunk
from corpusmill.engine.side_thread import SideThread
from corpusmill.engine.stored import stored_answers
from corpusmill.errors import SourceError
from corpusmill.killpoints import reach

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from corpusmill.engine.asking import Terms
    from corpusmill.rows.render import Asked, Renderer
    from corpusmill.store.protocol import Entry, Store

OPEN_ROWS = 1024
"""Rows of which some have to be asked stay open so many at a time: the fewer, the sooner they are complete. What is
complete already goes on as it was read."""

MOMENT = 0.02
"""Seconds for which it is not worth while to turn to anything else."""

LAST_MOMENT = 1.0
"""Seconds that a source gets to come back once nobody wants its rows any more: one that is silent may never do so."""


class Chunk(Protocol):
    """A stretch of the source: its first row's number, and its rows."""

    @property
    def first_row(self) -> int: ...  # noqa: D102
    @property
    def batch(self) -> pa.RecordBatch: ...  # noqa: D102


class _Ahead(NamedTuple):
    chunk: Chunk
    asked: list[Asked]
    found: Future[Mapping[bytes, list[Entry]]]


class Reading:
    """Opens the chunks of a source, one after another, for one thread."""

    def __init__(
        self,
        chunks: Iterator[Chunk],
        renderers: Sequence[Renderer],
        store: Store,
        *,
        terms: Terms,
        invocation: str,
    ) -> None:
        """`invocation` names this run, so that its own answers can be told from those that were there before."""
        self._chunks = chunks
        self._renderers = renderers
        self._store = store
        self._terms = terms
        self._invocation = invocation
        self._source = SideThread("corpusmill-source")
        self._look_ups = SideThread("corpusmill-look-up")
        self._read: Future[Chunk | None] | None = None
        self._ahead: _Ahead | None = None
        self._pieces: deque[OpenChunk] = deque()
        self.ended = False

    def next(self) -> OpenChunk | None:
        """Open the next chunk: its requests, and the answers that are stored.

        None at the end, when `ended` is true, and while the source has nothing yet.
        """
        if self._pieces:
            return self._pieces.popleft()
        current = self._ahead or self._look_up_next()
        if current is None:
            return None
        self._ahead = self._look_up_next()
        found = current.found.result()
        opened = OpenChunk(current.chunk.first_row, current.chunk.batch, current.asked)
        for position, asked in enumerate(opened.asked):
            answers = stored_answers(opened, position, found, terms=self._terms, invocation=self._invocation)
            opened.answers.append(answers)
            if answers.count(None) > asked.keys.count(None):
                opened.to_ask += [
                    (position, row, asked.rendered(row))
                    for row, answer in enumerate(answers)
                    if answer is None and asked.keys[row] is not None
                ]
        opened.missing = len(opened.to_ask)
        if not opened.missing or opened.batch.num_rows <= OPEN_ROWS:
            return opened
        self._pieces.extend(opened.pieces(OPEN_ROWS))
        return self._pieces.popleft()

    async def coming(self) -> None:
        """Wait until the source has something, or has ended."""
        if self._ahead is None and not self._pieces and self._read is not None:
            read = asyncio.wrap_future(self._read)
            await asyncio.wait([read])
            # What the source has raised is raised by `next`.
            _ = read.cancelled() or read.exception()

    async def close(self) -> None:
        """End the threads; nothing is read any more."""
        await self._source.close(cancel=True, patience=LAST_MOMENT)
        await self._look_ups.close(cancel=True)

    def _look_up_next(self) -> _Ahead | None:
        """Take what has been read, waiting a moment for it; have its rows looked up, and read on."""
        if self.ended:
            return None
        if self._read is None:
            self._read = self._source.submit(next, self._chunks, None)
        try:
            chunk = self._read.result(MOMENT)
        except TimeoutError:
            if self._read.done():
                raise  # the source's own
            return None
        except (asyncio.CancelledError, futures.CancelledError) as error:
            # The source's own too, and on its way through tasks and futures it would be taken for ours.
            raise SourceError("the source was cancelled while it was read") from error
        if chunk is None:
            self.ended = True
            return None
        self._read = self._source.submit(next, self._chunks, None)
        reach("rendering")
        asked = [renderer.ask(chunk.batch) for renderer in self._renderers]
        wanted = [key for prompt in asked for key in prompt.keys if key is not None]
        begun = threading.Event()
        found = self._look_ups.submit(self._look_up, wanted, begun)
        # Without this the other thread would stand in line for the interpreter's lock, and nothing be done meanwhile.
        begun.wait()
        return _Ahead(chunk, asked, found)

    def _look_up(self, keys: Sequence[bytes], begun: threading.Event) -> Mapping[bytes, list[Entry]]:
        begun.set()
        return self._store.get_many(keys) if keys else {}
