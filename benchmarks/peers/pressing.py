"""A peer that asks row after row of a server with a limit, with the retries that it has."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pyarrow.parquet as pq
from benchmarks.bench import TEMPLATE


def press(*, name: str, base_url: str, corpus: str, seconds: float, most: int) -> dict[str, Any]:
    """Let a peer ask row after row until the time is over."""
    ask = importlib.import_module(f"benchmarks.peers.with_{name}").asker(base_url)
    texts = [str(text) for text in pq.read_table(corpus).column("text").to_pylist()]
    rows = iter(texts * 4)
    counts = {"answered": 0, "given_up": 0}

    async def worker() -> None:
        for text in rows:
            try:
                await ask(TEMPLATE.replace("{text}", text))
                counts["answered"] += 1
            except Exception:  # noqa: BLE001 - whatever a peer raises for a row that it gives up
                counts["given_up"] += 1

    async def work() -> None:
        workers = [asyncio.create_task(worker()) for _ in range(most)]
        await asyncio.wait(workers, timeout=seconds)
        for each in workers:
            each.cancel()

    asyncio.run(work())
    return dict(counts)
