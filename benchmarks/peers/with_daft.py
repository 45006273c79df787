"""Daft as people use it: a data frame from Parquet, the expression `prompt`, a data frame to Parquet; no cache."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.bench import MODEL, TEMPLATE

if TYPE_CHECKING:
    from collections.abc import Callable


def prepare(*, base_url: str, folder: str, cached: bool) -> Callable[[str, int, str], None]:
    """Give a function that does the whole job."""
    del cached
    daft: Any = importlib.import_module("daft")
    prompt: Any = importlib.import_module("daft.functions").prompt
    provider: Any = importlib.import_module("daft.ai.openai.provider").OpenAIProvider(
        name="canned", base_url=base_url, api_key="sk-canned"
    )

    def work(corpus: str, rows: int, out: str) -> None:
        asked = daft.lit(TEMPLATE.removesuffix("{text}")) + daft.col("text")
        answer = prompt(asked, provider=provider, model=MODEL, use_chat_completions=True)
        frame = daft.read_parquet(corpus).limit(rows).with_column("topic", answer)
        place = Path(folder, "daft")
        shutil.rmtree(place, ignore_errors=True)
        frame.write_parquet(str(place))
        (part,) = place.glob("*.parquet")
        part.rename(out)

    return work
