"""Summarise a table with many tasks at once: planned, mapped over its shards, committed as one dataset.

The tasks share one store, and through it one rate, one budget, and every answer. On several machines the store is a
PostgreSQL database (`store_conn_id="..."`) and the tables lie in an object store; all else stays as it is.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, task

from corpusmill.airflow import enrich_shards

FOLDER = Path(os.environ.get("CORPUSMILL_FOLDER", "corpusmill-data")).absolute()
BASE_URL = os.environ.get("CORPUSMILL_BASE_URL", "http://127.0.0.1:8000/v1")

with DAG(
    "summarise_shards",
    schedule=None,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
) as dag:

    @task
    def corpus() -> None:
        """Write the paragraphs of Python's own help, where they are not there yet."""
        import pydoc_data.topics

        import pyarrow as pa
        import pyarrow.parquet as pq

        path = FOLDER / "help.parquet"
        if path.exists():
            return
        texts = [text for topic in pydoc_data.topics.topics.values() for text in topic.split("\n\n")][:400]
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"text": texts}), path)

    summarise = enrich_shards(
        "summarise",
        rows_per_shard=100,
        source=f"{FOLDER}/help.parquet",
        sink={"path": f"{FOLDER}/summaries", "rows_per_part": 50},
        prompts=[{"summarise": {"column": "text", "into": "summary", "length": "one sentence"}}],
        endpoint={"openai_compatible": {"base_url": BASE_URL, "model": "fake-model"}},
        store=f"sqlite:///{FOLDER}/store.db",
        limits={"requests_per_minute": 60_000},
        budget={"tokens": 10_000_000},
        asset=f"file://{FOLDER}/summaries",
    )

    corpus() >> summarise


if __name__ == "__main__":
    dag.test()
