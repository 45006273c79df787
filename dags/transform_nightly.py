"""Translate a corpus by night: by transform jobs, and in real time what they cannot answer.

It runs against a fake SageMaker as it is: `python -m corpusmill.testing.sagemaker` beside Airflow prints the connection
to set. For AWS make a connection `aws_default` of type `aws` that names its region, name your models, and set
CORPUSMILL_S3.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, Asset, task

from corpusmill.airflow import TransformJobOperator

FOLDER = Path(os.environ.get("CORPUSMILL_FOLDER", "corpusmill-data")).absolute()
S3 = os.environ.get("CORPUSMILL_S3", "s3://corpus/nightly")
NIGHT = "{{ dag_run.run_after | ds }}"

translated = Asset(f"file://{FOLDER}/nights")

with DAG(
    "transform_nightly",
    schedule="0 1 * * *",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow gives it the Dag's time zone
    catchup=False,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
) as dag:

    @task
    def collect(night: str) -> str:
        """Write what the day has brought, here a few paragraphs of Python's own help; give the file."""
        import pydoc_data.topics

        import pyarrow as pa
        import pyarrow.parquet as pq

        topics = sorted(pydoc_data.topics.topics.items())
        seed = sum(map(ord, night))
        rows = [topics[(seed + step) % len(topics)] for step in range(40)]
        folder = FOLDER / "days" / night
        folder.mkdir(parents=True, exist_ok=True)
        texts = [text.strip().partition("\n\n")[0] for _, text in rows]
        pq.write_table(
            pa.table({"topic": [name for name, _ in rows], "text": texts}), folder / "part.parquet"
        )
        return str(folder / "part.parquet")

    translate = TransformJobOperator(
        task_id="translate",
        source=f"{FOLDER}/days/{NIGHT}/part.parquet",
        sink=f"{FOLDER}/nights",
        partition={"night": NIGHT},
        prompts=[{"translate": {"column": "text", "into": "text_lv", "from": "en", "to": "lv"}}],
        endpoint={
            "sagemaker_transform": {
                "model_name": "tildeopen-30b-64k",  # SageMaker's name of the model
                "model": "tildeopen-30b-64k",  # which model it is: both ways share their answers by it
                "instance_type": "ml.g6.48xlarge",
                "s3": S3,
                "shard_rows": 20,  # a thousand, where there are many
                "real_time": {"endpoint_name": "tilde", "model": "tildeopen-30b-64k"},
            }
        },
        aws_conn_id="aws_default",
        store=f"sqlite:///{FOLDER}/store.db",
        deadline_hours=8,
        # A few rows may fail; how many is told in the report, and by the link to it.
        failures={"max_failed": 0.1},
        asset=translated,
    )

    collect(NIGHT) >> translate


if __name__ == "__main__":
    dag.test()
