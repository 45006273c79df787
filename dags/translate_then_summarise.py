"""A chain over an asset: one Dag translates, and when its output is there another one summarises the translation.

The second reads the first one's output by its manifest, so that it sees all of it or waits.
"""

from __future__ import annotations

import os
from pathlib import Path

from airflow.sdk import DAG, Asset, task

from corpusmill.airflow import EnrichOperator

FOLDER = Path(os.environ.get("CORPUSMILL_FOLDER", "corpusmill-data")).absolute()
BASE_URL = os.environ.get("CORPUSMILL_BASE_URL", "http://127.0.0.1:8000/v1")
ENDPOINT = {"openai_compatible": {"base_url": BASE_URL, "model": "fake-model"}}
STORE = f"sqlite:///{FOLDER}/store.db"

latvian = Asset(f"file://{FOLDER}/latvian")

with DAG("chain_translate", schedule=None) as translate:

    @task.enrich(
        task_id="translate",
        sink=f"{FOLDER}/latvian",
        prompts=[{"translate": {"column": "text", "into": "text_lv", "from": "en", "to": "lv"}}],
        endpoint=ENDPOINT,
        store=STORE,
        asset=latvian,
    )
    def corpus() -> str:
        """Write a small corpus, once, and name it."""
        import pydoc_data.topics

        import pyarrow as pa
        import pyarrow.parquet as pq

        path = FOLDER / "chain.parquet"
        if not path.exists():
            texts = [
                text.strip().partition("\n\n")[0] for text in list(pydoc_data.topics.topics.values())[:30]
            ]
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"text": texts}), path)
        return str(path)

    corpus()

with DAG("chain_summarise", schedule=[latvian]) as summarise:
    EnrichOperator(
        task_id="summarise",
        source=f"{FOLDER}/latvian",
        sink={"path": f"{FOLDER}/latvian-summaries", "columns": ["text_lv"]},
        prompts=[{"summarise": {"column": "text_lv", "into": "summary", "length": "one sentence"}}],
        endpoint=ENDPOINT,
        store=STORE,
    )


if __name__ == "__main__":
    translate.test()
    summarise.test()
