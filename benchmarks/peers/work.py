"""The whole job, done by a peer in its own environment: Parquet in, each row asked, Parquet out."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.bench import TEMPLATE
from benchmarks.child import spent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

IN_FLIGHT = 64


def whole(*, peer: str, base_url: str, corpus: str, folder: str, rows: int, cached: bool) -> dict[str, Any]:
    """Do it once; what is measured is the work, not the imports."""
    prepared = importlib.import_module(f"benchmarks.peers.with_{peer}").prepare(
        base_url=base_url, folder=folder, cached=cached
    )
    out = Path(folder, f"out-{peer}.parquet")
    figures: dict[str, Any] = {}
    with spent(figures):
        prepared(corpus, rows, str(out))
    topics = [] if not out.exists() else pq.read_table(out).column("topic").to_pylist()
    if len(topics) != rows or not all(topics):
        raise SystemExit(f"{sum(map(bool, topics))} of {rows} rows have an answer")
    return {**figures, "rows": rows}


def prompts_of(corpus: str, rows: int) -> tuple[pa.Table, list[str]]:
    """Read the rows, and make a prompt of each."""
    table = pq.read_table(corpus).slice(0, rows)
    return table, [TEMPLATE.replace("{text}", str(text)) for text in table.column("text").to_pylist()]


def by_gather(ask: Callable[[str], Awaitable[str]]) -> Callable[[str, int, str], None]:
    """Do the job with a function that asks one prompt, as people do: a semaphore and `gather`."""

    def work(corpus: str, rows: int, out: str) -> None:
        table, prompts = prompts_of(corpus, rows)
        answers = asyncio.run(ask_all(prompts))
        pq.write_table(table.append_column("topic", pa.array(answers)), out)

    async def ask_all(prompts: list[str]) -> list[str]:
        limit = asyncio.Semaphore(IN_FLIGHT)

        async def limited(content: str) -> str:
            async with limit:
                return await ask(content)

        return await asyncio.gather(*(limited(content) for content in prompts))

    return work
