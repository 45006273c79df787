"""Chunks of the source with what the store has for them; while one is worked on, the next one is looked up.

Looking up waits for a database, most of the time without the interpreter's lock, so it is done in a thread of its own.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Protocol

from corpusmill.engine.pages import OpenChunk
from corpusmill.engine.stored import stored_answers
from corpusmill.killpoints import reach

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from corpusmill.engine.asking import Terms
    from corpusmill.rows.render import Asked, Renderer
    from corpusmill.store.protocol import Entry, Store


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
        self._look_ups = ThreadPoolExecutor(1, "corpusmill-look-up")
        self._ahead: _Ahead | None = None
        self._begun = False

    def next(self) -> OpenChunk | None:
        """Open the next chunk: its requests, and the answers that are stored. None at the end."""
        current = self._ahead if self._begun else self._look_up_next()
        self._begun = True
        if current is None:
            return None
        self._ahead = self._look_up_next()
        found = current.found.result()
        opened = OpenChunk(current.chunk.first_row, current.chunk.batch, current.asked)
        for position, renderer in enumerate(self._renderers):
            answers = stored_answers(
                opened, position, renderer.prompt, found, terms=self._terms, invocation=self._invocation
            )
            opened.answers.append(answers)
            opened.missing += answers.count(None) - opened.asked[position].keys.count(None)
        return opened

    def close(self) -> None:
        """End the thread; nothing is read any more."""
        self._look_ups.shutdown(wait=True, cancel_futures=True)

    def _look_up_next(self) -> _Ahead | None:
        chunk = next(self._chunks, None)
        if chunk is None:
            return None
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
