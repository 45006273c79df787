"""Let a table through only when enough of its rows have an answer: a branch that reads the report.

The XCom of an enriching task holds the counts of its report, so that a gate needs neither the table nor the text.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

FOLDER = Path(os.environ.get("CORPUSMILL_FOLDER", "corpusmill-data")).absolute()
BASE_URL = os.environ.get("CORPUSMILL_BASE_URL", "http://127.0.0.1:8000/v1")
ENOUGH = 0.9

with DAG("quality_gate", schedule=None) as dag:

    @task.enrich(
        task_id="answer",
        sink=f"{FOLDER}/answered",
        prompts=[{"ask": {"template": "In one word, what is this about? {text}", "into": "subject"}}],
        endpoint={"openai_compatible": {"base_url": BASE_URL, "model": "fake-model"}},
        store=f"sqlite:///{FOLDER}/store.db",
        # The gate below decides, so that the task itself lets any share of failures pass.
        failures={"max_failed": 1.0},
    )
    def questions() -> Any:
        """Give the table to ask about; it never passes through an XCom."""
        import pydoc_data.topics

        import pyarrow as pa

        texts = [text.strip().partition("\n\n")[0] for text in list(pydoc_data.topics.topics.values())[:40]]
        return pa.table({"text": texts})

    @task.branch
    def gate(report: dict[str, Any]) -> str:
        """Go on where enough rows have an answer."""
        outcomes = report["outcomes"]
        asked = report["rows"] - outcomes.get("skipped", 0)
        return "publish" if outcomes.get("completed", 0) >= ENOUGH * asked else "hold"

    @task
    def publish() -> None:
        """Hand the table on."""

    @task
    def hold() -> None:
        """Ask somebody to look at it."""

    gate(questions()) >> [publish(), hold()]  # type: ignore[arg-type] # the decorator hides what a task gives


if __name__ == "__main__":
    dag.test()
