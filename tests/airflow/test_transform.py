"""Transform jobs under `dag.test()`, against the fake SageMaker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import corpusmill
from corpusmill.airflow.transform_trigger import TransformJobsTrigger
from corpusmill.testing import expected_answer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from tests.airflow.conftest import Amazon, Ran

    LoadDag = Callable[..., ModuleType]
    RunDag = Callable[..., Ran]

TEMPLATE = "Name the topic of: {text}"

NIGHTLY = """
from airflow.sdk import DAG
from corpusmill.airflow import TransformJobOperator

with DAG(dag_id, schedule=None) as dag:
    TransformJobOperator(
        task_id="transform",
        source=folder + "/corpus.parquet",
        sink=folder + "/out",
        prompts=[{"ask": {"template": "Name the topic of: {text}", "into": "topic"}}],
        endpoint=endpoint,
        aws_conn_id="aws_for_tests",
        store="sqlite:///" + folder + "/store.db",
        failures={"max_failed": 1.0},
        **options,
    )
"""
ROWS = 60
ASKED = 57
"""Rows that are not blank."""
DIFFERENT = ASKED


class Nightly:
    """A Dag of one task, and what it makes."""

    def __init__(self, amazon: Amazon, folder: Path, load_dag: LoadDag, run_dag: RunDag) -> None:
        self.amazon, self.folder = amazon, folder
        self._load, self._run = load_dag, run_dag
        self.endpoint: dict[str, Any] = {}

    def dag(self, dag_id: str = "nightly", **options: Any) -> Any:
        module = self._load(
            NIGHTLY,
            dag_id=dag_id,
            folder=str(self.folder),
            endpoint=self.amazon.transform(**self.endpoint),
            options=options,
        )
        return module.dag

    def run(self, **options: Any) -> Ran:
        return self._run(self.dag(**options))

    def check_complete(self) -> None:
        """Each row has its own answer, in the order of the source."""
        made = corpusmill.read(self.folder / "out").to_table().to_pylist()
        source = pq.read_table(self.folder / "corpus.parquet").to_pylist()
        assert [row["id"] for row in made] == [row["id"] for row in source]
        for row in made:
            content = TEMPLATE.replace("{text}", row["text"] or "")
            answer = expected_answer([{"role": "user", "content": content}]) if row["text"] else None
            assert row["topic"] == answer


@pytest.fixture
def nightly(amazon: Amazon, corpus: Path, load_dag: LoadDag, run_dag: RunDag) -> Nightly:
    """A task over sixty rows in shards of twenty."""
    return Nightly(amazon, corpus.parent, load_dag, run_dag)


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_task_fills_its_table_by_one_job(
    nightly: Nightly, monkeypatch: pytest.MonkeyPatch, *, deferrable: bool
) -> None:
    """Same columns, XCom and report as any other run; the link leads to the job; the secret is nowhere."""
    fired: list[Any] = []
    run = TransformJobsTrigger.run

    async def noted(self: TransformJobsTrigger) -> Any:
        fired.append(self.serialize()[1])
        nightly.amazon.fake.pace.set(None)
        async for event in run(self):
            fired.append(event.payload)
            yield event

    monkeypatch.setattr(TransformJobsTrigger, "run", noted)
    if deferrable:
        nightly.amazon.fake.pace.set(1)
    ran = nightly.run(deferrable=deferrable)
    assert ran.state == "success"
    nightly.check_complete()
    (job,) = nightly.amazon.jobs
    assert job.status == "Completed"
    assert len(fired) == (2 if deferrable else 0)
    made = ran.xcom("transform")
    assert (made["rows"], made["outcomes"]) == (ROWS, {"completed": ASKED, "skipped": 3})
    assert made["report"].endswith("/_corpusmill/report.json")
    assert ran.xcom("transform", "transform_jobs") == [job.name]
    assert ran.xcom("transform", "_link_TransformJobLink") == (
        "https://eu-north-1.console.aws.amazon.com/sagemaker/home?region=eu-north-1#/transform-jobs/"
        + job.name
    )
    shown = str(fired) + str(ran.xcoms) + (nightly.folder / "out/_corpusmill/report.json").read_text("utf-8")
    assert nightly.amazon.connection["password"] not in shown
    assert nightly.amazon.connection["login"] not in shown
