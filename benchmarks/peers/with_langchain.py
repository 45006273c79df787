"""LangChain as people use it: `ChatOpenAI` and `abatch`, with its SQLite cache or without one."""

from __future__ import annotations

import asyncio
import importlib
import warnings
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.bench import MODEL
from benchmarks.peers.work import IN_FLIGHT, prompts_of

if TYPE_CHECKING:
    from collections.abc import Callable


def prepare(*, base_url: str, folder: str, cached: bool) -> Callable[[str, int, str], None]:
    """Give a function that does the whole job."""
    openai: Any = importlib.import_module("langchain_openai")
    model = openai.ChatOpenAI(model=MODEL, base_url=base_url, api_key="sk-canned")
    if cached:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the package which holds it will have a successor
            caches: Any = importlib.import_module("langchain_community.cache")
        core: Any = importlib.import_module("langchain_core.globals")
        core.set_llm_cache(caches.SQLiteCache(database_path=f"{folder}/langchain.db"))

    def work(corpus: str, rows: int, out: str) -> None:
        table, prompts = prompts_of(corpus, rows)
        answers = asyncio.run(model.abatch(prompts, config={"max_concurrency": IN_FLIGHT}))
        topics = [str(answer.content) for answer in answers]
        pq.write_table(table.append_column("topic", pa.array(topics)), out)

    return work
