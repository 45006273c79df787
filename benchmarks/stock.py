"""A store that holds an answer to every row of a corpus, made without asking anybody."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import msgspec
from benchmarks.bench import MODEL, NOWHERE, endpoint, prompt

from corpusmill.rows.render import Renderer
from corpusmill.store import Entry, Put, open_store
from corpusmill.tables import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = 1_024
CONTENT = (
    "The weather in the mountains changes fast. Take a warm coat, good shoes and something to drink, and tell "
    "somebody where you are going before you leave in the morning."
)


def fill(*, corpus: str, store: str) -> None:
    """Put an answer for each row of the corpus, as a run would."""
    opened = open_store(f"sqlite:///{store}")
    member = opened.join("stock")
    puts = _puts(corpus, member.invocation)
    while group := list(itertools.islice(puts, GROUP)):
        opened.write(member.owner, puts=group)
    opened.finish("stock")
    opened.close()


def _puts(corpus: str, invocation: str) -> Iterator[Put]:
    renderer = Renderer(prompt(), identity=endpoint(NOWHERE).identity)
    seen: set[bytes] = set()
    for chunk in open_source(corpus).chunks():
        for row, key in enumerate(renderer.ask(chunk.batch).keys, chunk.first_row):
            if key is None or key in seen:
                continue
            seen.add(key)
            yield Put(
                entry=Entry(key, body(row), None, "stop", 74, 36, 1, time.time(), invocation), model=MODEL
            )


def body(row: int) -> bytes:
    """Give the response that is stored for a row."""
    return msgspec.json.encode(
        {
            "id": f"chatcmpl-{row}",
            "object": "chat.completion",
            "created": 1764449575.5,
            "model": MODEL,
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": f"{row}. {CONTENT}"},
                }
            ],
            "usage": {"prompt_tokens": 74, "completion_tokens": 36, "total_tokens": 110},
        }
    )
