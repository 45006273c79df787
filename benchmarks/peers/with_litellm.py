"""litellm as people use it: `acompletion`, a semaphore, `gather`; no store, and its own retries, three of them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from benchmarks.bench import MODEL
from benchmarks.peers.work import by_gather

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def asker(base_url: str) -> Callable[[str], Awaitable[str]]:
    """Give a function that asks one prompt."""
    litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True

    async def ask(content: str) -> str:
        answer = await litellm.acompletion(
            model=f"openai/{MODEL}",
            messages=[{"role": "user", "content": content}],
            api_base=base_url,
            api_key="sk-canned",
            num_retries=3,
        )
        text: str = answer.choices[0].message.content
        return text

    return ask


def prepare(*, base_url: str, folder: str, cached: bool) -> Callable[[str, int, str], None]:
    """Give a function that does the whole job; it has no cache."""
    del folder, cached
    return by_gather(asker(base_url))
