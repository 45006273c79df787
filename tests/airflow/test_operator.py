"""The operator under `dag.test()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import corpusmill

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from corpusmill.testing import FakeEndpoint

    LoadDag = Callable[..., ModuleType]
    RunDag = Callable[..., Any]

ONE_TASK = """
from airflow.sdk import DAG
from corpusmill.airflow import EnrichOperator

with DAG("one_task", schedule=None) as dag:
    EnrichOperator(
        task_id="translate",
        source=folder + "/corpus.parquet",
        sink=folder + "/out-{{ params.day }}",
        prompts=[{"translate": {"column": "text", "into": "text_lv", "from": "en", "to": "lv"}}],
        endpoint={"openai_compatible": {"base_url": base_url, "model": "fake"}},
        store="sqlite:///" + folder + "/store.db",
        params={"day": "2026-01-31"},
    )
"""


def test_a_task_enriches_a_table_and_leaves_a_small_manifest(
    load_dag: LoadDag, run_dag: RunDag, corpus: Path, fake_endpoint_factory: Callable[..., FakeEndpoint]
) -> None:
    """With faults on, all rows are written, templates are filled in, and XCom holds counts and no text."""
    endpoint = fake_endpoint_factory(faults={"500": 0.2, "429": 0.1}, seed=3)
    module = load_dag(ONE_TASK, folder=str(corpus.parent), base_url=endpoint.base_url)
    ran = run_dag(module.dag)
    assert ran.state == "success"
    made = ran.xcom("translate")
    assert made["rows"] == 60
    assert made["outcomes"] == {"completed": 57, "skipped": 3}
    assert made["output"] == f"{corpus.parent}/out-2026-01-31"
    assert made["report"].endswith("/_corpusmill/report.json")
    assert "strikes" not in str(ran.xcoms)
    table = corpusmill.read(corpus.parent / "out-2026-01-31").to_table()
    assert table.column("id").to_pylist() == list(range(60))
    assert pq.read_table(corpus).column("text").equals(table.column("text"))
    assert ran.xcom("translate", "_link_ReportLink").startswith(
        "http://airflow.invalid/corpusmill/report/one_task/"
    )
