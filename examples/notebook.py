"""Cells of a notebook, as a script: `enrich` is an ordinary call, also where an event loop is running already.

Run it as `python examples/notebook.py BASE_URL`, or paste the cells into a notebook.
"""

# %% A notebook runs its cells inside an event loop; so does this script.
from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

import corpusmill


async def cells(base_url: str, folder: Path) -> None:
    """Run the cells."""
    # %% A table from anywhere: pandas, Polars, DuckDB, a list.
    table = pa.table({"id": [1, 2, 3], "text": ["The sea is cold.", "", "Bread is baked in the morning."]})

    # %% One call; the answers are columns beside the old ones.
    report = corpusmill.enrich(
        table,
        folder / "translated",
        corpusmill.Translate("text", "text_de", from_="English", to="German"),
        endpoint=corpusmill.OpenAICompatible(base_url, "any"),
        store=f"sqlite:///{folder / 'store.db'}",
    )
    print(report.outcomes)

    # %% Look at them.
    for row in corpusmill.read(folder / "translated").to_table().to_pylist():
        print(row["id"], row["text_de"], row["text_de_outcome"]["status"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(
            "usage: python examples/notebook.py BASE_URL\n"
            "with BASE_URL such as http://127.0.0.1:8000/v1, where `corpusmill fake-endpoint` listens"
        )
    with tempfile.TemporaryDirectory() as created:
        asyncio.run(cells(sys.argv[1], Path(created)))
