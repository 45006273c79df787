"""The openai SDK as people use it: `AsyncOpenAI`, a semaphore, `gather`; no store, and the SDK's own retries."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from benchmarks.bench import MODEL
from benchmarks.peers.work import by_gather

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def asker(base_url: str) -> Callable[[str], Awaitable[str]]:
    """Give a function that asks one prompt."""
    openai: Any = importlib.import_module("openai")
    client = openai.AsyncOpenAI(base_url=base_url, api_key="sk-canned")

    async def ask(content: str) -> str:
        answer = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": content}]
        )
        text: str = answer.choices[0].message.content
        return text

    return ask


def prepare(*, base_url: str, folder: str, cached: bool) -> Callable[[str, int, str], None]:
    """Give a function that does the whole job; it has no cache."""
    del folder, cached
    return by_gather(asker(base_url))
