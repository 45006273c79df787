"""Chunks of the source with what the store has for them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from typing import TYPE_CHECKING

import httpx
import pyarrow as pa
import pytest

from corpusmill import Ask, OpenAICompatible, RetryPolicy, enrich_batches
from corpusmill.engine.asking import Terms
from corpusmill.engine.ladder import Rung
from corpusmill.engine.pages import OpenChunk
from corpusmill.engine.reading import OPEN_ROWS, Reading
from corpusmill.errors import SourceError
from corpusmill.prompts.prompt import Rendered
from corpusmill.rows.judge import Answer
from corpusmill.rows.render import Asked, Renderer
from corpusmill.store import Entry, Put
from corpusmill.store.sqlite import SQLiteStore
from corpusmill.tables import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from corpusmill.engine.reading import Chunk

PROMPT = Ask("Name it: {text}", into="name")
TERMS = Terms(
    retry=RetryPolicy(), budget=None, context_tokens=None, not_before=None, refresh=None, price=None
)
BODY = b'{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"a name"}}]}'


def reading_of(chunks: Iterator[Chunk], store: SQLiteStore) -> Reading:
    """Begin to read."""
    renderers = [Renderer(PROMPT, identity="somewhere")]
    return Reading(chunks, renderers, store, terms=TERMS, invocation="this one")


def opened(store: SQLiteStore, table: pa.Table) -> list[OpenChunk]:
    """Read a table to its end."""
    reading = reading_of(open_source(table).chunks(), store)
    found: list[OpenChunk] = []
    until = time.monotonic() + 60
    while not reading.ended and time.monotonic() < until:
        while (chunk := reading.next()) is not None:
            found.append(chunk)
    asyncio.run(reading.close())
    assert reading.ended
    return found


def test_only_a_chunk_of_which_something_is_asked_is_cut(tmp_path: Path) -> None:
    """What is stored whole goes on whole; the rest stays open in small pieces that ask for what is missing, once."""
    rows = 2 * OPEN_ROWS
    texts = [None if row % 10 == 0 else f"text {row}" for row in range(2 * rows)]
    first, second = (pa.table({"text": texts[start : start + rows]}) for start in (0, rows))
    missing = {1, OPEN_ROWS + 2, 2 * OPEN_ROWS - 1}
    keys = Renderer(PROMPT, identity="somewhere").ask(second.to_batches()[0]).keys
    store = SQLiteStore(tmp_path / "store.db")
    owner = store.join("a run").owner
    answered = [
        Put(entry=Entry(key, BODY, None, "stop", None, None, 1, time.time(), "an earlier one"))
        for row, key in enumerate(keys)
        if key is not None and row not in missing
    ]
    store.write(owner, puts=answered)

    (whole,) = opened(store, second.filter([row not in missing for row in range(rows)]))
    assert (whole.missing, whole.batch.num_rows) == (0, rows - len(missing))

    pieces = opened(store, second)
    assert [(piece.first_row, piece.batch.num_rows) for piece in pieces] == [
        (start, OPEN_ROWS) for start in range(0, rows, OPEN_ROWS)
    ]
    asked = [(piece.first_row + row, made.messages) for piece in pieces for _, row, made in piece.to_ask]
    assert asked == [
        (row, ({"role": "user", "content": f"Name it: text {rows + row}"},)) for row in sorted(missing)
    ]
    assert [piece.missing for piece in pieces] == [1, 2]

    assert [piece.missing for piece in opened(store, first)] == [
        sum(text is not None for text in texts[start : start + OPEN_ROWS])
        for start in range(0, rows, OPEN_ROWS)
    ]
    store.close()


def test_a_piece_has_of_each_row_all_that_the_chunk_had() -> None:
    """Values, keys, ceilings, reasons, marks, answers, requests and rungs stay with their row."""
    texts = [f"text {row}" for row in range(10)]
    keys = [None if row in {3, 6} else b"%d" % row for row in range(10)]
    asked = Asked(
        PROMPT,
        [(text,) for text in texts],
        keys,
        list(range(10)),
        {3: "too deep", 6: "too odd"},
        frozenset({0, 5, 9}),
    )
    answers = [None if row in {3, 4, 6, 9} else Answer(error=f"answer {row}") for row in range(10)]
    made = Rendered(messages=())
    chunk = OpenChunk(
        100,
        pa.record_batch({"text": texts}),
        [asked],
        [answers],
        [(0, 4, made), (0, 9, made)],
        2,
        {(0, 4): Rung(None, 44, 1), (0, 9): Rung(None, 99, 1)},
    )
    pieces = list(chunk.pieces(4))
    assert [piece.first_row for piece in pieces] == [100, 104, 108]
    assert [piece.batch.column("text").to_pylist() for piece in pieces] == [texts[:4], texts[4:8], texts[8:]]
    assert [piece.missing for piece in pieces] == [0, 1, 1]
    assert [piece.to_ask for piece in pieces] == [[], [(0, 0, made)], [(0, 1, made)]]
    assert [piece.rungs for piece in pieces] == [{}, {(0, 0): Rung(None, 44, 1)}, {(0, 1): Rung(None, 99, 1)}]
    assert [piece.answers[0] for piece in pieces] == [answers[:4], answers[4:8], answers[8:]]
    (first,), (second,), (third,) = (piece.asked for piece in pieces)
    assert [part.keys for part in (first, second, third)] == [keys[:4], keys[4:8], keys[8:]]
    assert [part.ceilings for part in (first, second, third)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert second.values == [(text,) for text in texts[4:8]]
    assert [part.unaskable for part in (first, second, third)] == [{3: "too deep"}, {2: "too odd"}, {}]
    assert [part.cleaned for part in (first, second, third)] == [{0}, {1}, {1}]


def test_pieces_that_are_there_do_not_wait_for_a_source_that_waits_for_them(tmp_path: Path) -> None:
    """Whoever was busy with something else in between is told at once that there is something to take."""
    store, answered = SQLiteStore(tmp_path / "store.db"), threading.Event()

    def chunks() -> Iterator[Chunk]:
        yield from open_source(pa.table({"text": [f"text {row}" for row in range(2 * OPEN_ROWS)]})).chunks()
        answered.wait(60)

    async def take_all() -> list[int]:
        reading = reading_of(chunks(), store)
        taken: list[int] = []
        while len(taken) < 2:
            chunk = reading.next()
            if chunk is not None:
                taken.append(chunk.first_row)
            async with asyncio.timeout(10):
                await reading.coming() if len(taken) < 2 else answered.set()
        await reading.close()
        return taken

    assert asyncio.run(take_all()) == [0, OPEN_ROWS]
    assert answered.is_set()
    store.close()


@pytest.mark.parametrize("kind", [asyncio.CancelledError, concurrent.futures.CancelledError])
def test_a_source_that_was_cancelled_ends_the_run_with_an_error(kind: type[BaseException]) -> None:
    """It is not taken for a cancellation of the run's own, after which nobody would be told."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"text": ["one", "two"]})
        raise kind

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=BODY)

    endpoint = OpenAICompatible("http://127.0.0.1:9/v1", "m")
    transport = httpx.MockTransport(answer)
    with pytest.raises(SourceError, match="cancelled while it was read"):
        list(enrich_batches(batches(), PROMPT, endpoint=endpoint, transport=transport, mode="off"))
