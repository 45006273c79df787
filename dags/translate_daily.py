"""Translate a corpus day by day: each run reads one partition and writes one, and says so to whoever waits for it.

It runs against the fake endpoint as it is: `corpusmill fake-endpoint --port 8000` beside Airflow. For a real one make a
connection of type `sambanova` or `openai_compatible`, and put `conn_id="..."` in the place of `endpoint`.

To call this file as a program, make a database with `airflow db migrate` and set AIRFLOW__CORE__DAGS_FOLDER to its
folder; so with the other files here.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, Asset, task

from corpusmill.airflow import EnrichOperator

FOLDER = Path(os.environ.get("CORPUSMILL_FOLDER", "corpusmill-data")).absolute()
BASE_URL = os.environ.get("CORPUSMILL_BASE_URL", "http://127.0.0.1:8000/v1")
DAY = "{{ dag_run.run_after | ds }}"

translated = Asset(f"file://{FOLDER}/translated")

with DAG(
    "translate_daily",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow gives it the Dag's time zone
    catchup=False,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
) as dag:

    @task
    def collect(day: str) -> str:
        """Write what came in on a day, here a few paragraphs of Python's own help; give the folder of the day."""
        import pydoc_data.topics

        import pyarrow as pa
        import pyarrow.parquet as pq

        topics = sorted(pydoc_data.topics.topics.items())
        seed = sum(map(ord, day))
        rows = [topics[(seed + step) % len(topics)] for step in range(20)]
        folder = FOLDER / "incoming" / f"day={day}"
        folder.mkdir(parents=True, exist_ok=True)
        texts = [text.strip().partition("\n\n")[0] for _, text in rows]
        pq.write_table(
            pa.table({"topic": [name for name, _ in rows], "text": texts}), folder / "part.parquet"
        )
        return str(folder)

    translate = EnrichOperator(
        task_id="translate",
        source=f"{FOLDER}/incoming/day={DAY}/part.parquet",
        sink=f"{FOLDER}/translated",
        partition={"day": DAY},
        prompts=[{"translate": {"column": "text", "into": "text_lv", "from": "en", "to": "lv"}}],
        endpoint={"openai_compatible": {"base_url": BASE_URL, "model": "fake-model"}},
        store=f"sqlite:///{FOLDER}/store.db",
        asset=translated,
    )

    collect(DAY) >> translate


if __name__ == "__main__":
    dag.test()
