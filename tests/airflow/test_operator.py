"""The operator under `dag.test()`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import airflow.sdk
import pyarrow.parquet as pq
import pytest

import corpusmill
from corpusmill.airflow.shards import PlanShardsOperator
from corpusmill.airflow.trigger import QuotaResetTrigger
from corpusmill.errors import UsageError
from corpusmill.testing.faults import Fault
from corpusmill.testing.limits import RateLimits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from corpusmill.testing import FakeEndpoint

    LoadDag = Callable[..., ModuleType]
    RunDag = Callable[..., Any]

DAG = """
from airflow.sdk import DAG
from corpusmill.airflow import EnrichOperator

with DAG(dag_id, schedule=None, params={"day": "2026-01-31"}) as dag:
    EnrichOperator(
        task_id="translate",
        source=folder + "/corpus.parquet",
        sink=folder + "/out-{{ params.day }}",
        prompts=[{"translate": {"column": "text", "into": "text_lv", "from": "en", "to": "lv"}}],
        endpoint={"openai_compatible": {"base_url": base_url, "model": "fake"}},
        store="sqlite:///" + folder + "/store.db",
        **options,
    )
"""


def dag_of(load_dag: LoadDag, corpus: Path, endpoint: FakeEndpoint, dag_id: str, **options: Any) -> Any:
    """Make a Dag of one task that translates the corpus, with these options beside the usual ones."""
    return load_dag(
        DAG, dag_id=dag_id, folder=str(corpus.parent), base_url=endpoint.base_url, options=options
    ).dag


def test_a_task_enriches_a_table_and_leaves_a_small_manifest(
    load_dag: LoadDag, run_dag: RunDag, corpus: Path, fake_endpoint_factory: Callable[..., FakeEndpoint]
) -> None:
    """With faults on, all rows are written, templates are filled in, and XCom holds counts and no text."""
    endpoint = fake_endpoint_factory(faults={"500": 0.2, "429": 0.1}, seed=3)
    ran = run_dag(dag_of(load_dag, corpus, endpoint, "one_task"))
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


DECORATED = """
import pyarrow.parquet as pq
from airflow.sdk import DAG, task

with DAG("decorated", schedule=None) as dag:

    @task.enrich(
        sink=folder + "/decorated",
        prompts=[{"summarise": {"column": "text", "into": "short", "length": "one sentence"}}],
        endpoint={"openai_compatible": {"base_url": base_url, "model": "fake"}},
        store="sqlite:///" + folder + "/store.db",
    )
    def first_rows(count):
        return pq.read_table(folder + "/corpus.parquet").slice(0, count)

    first_rows(12)
"""


def test_a_decorated_function_returns_the_source(
    load_dag: LoadDag, run_dag: RunDag, corpus: Path, fake_endpoint: FakeEndpoint
) -> None:
    """A table that the function returns is enriched, and neither it nor its text is in XCom."""
    module = load_dag(DECORATED, folder=str(corpus.parent), base_url=fake_endpoint.base_url)
    ran = run_dag(module.dag)
    assert ran.state == "success"
    assert ran.xcom("first_rows")["rows"] == 12
    assert "strikes" not in str(ran.xcoms)
    assert corpusmill.read(corpus.parent / "decorated").to_table().column("id").to_pylist() == list(range(12))


SHARDED = """
from airflow.sdk import DAG
from corpusmill.airflow import enrich_shards

with DAG("sharded", schedule=None) as dag:
    enrich_shards(
        "translate",
        rows_per_shard=16,
        source=folder + "/corpus.parquet",
        sink={"path": folder + "/sharded", "rows_per_part": 8},
        prompts=[{"translate": {"column": "text", "into": "text_lv", "from": "en", "to": "lv"}}],
        conn_id="the_endpoint",
        store="sqlite:///" + folder + "/store.db",
        asset="file://" + folder + "/sharded",
        partition_key="all",
    )
"""


def test_shards_are_planned_mapped_and_committed_as_one(
    load_dag: LoadDag,
    run_dag: RunDag,
    corpus: Path,
    fake_endpoint_factory: Callable[..., FakeEndpoint],
    monkeypatch: pytest.MonkeyPatch,
    *,
    asset_events: Callable[[str], list[Any]],
) -> None:
    """Four tasks, one dataset with one manifest, one asset event; a second run asks nobody."""
    endpoint = fake_endpoint_factory(
        faults={"500": 0.2, "reset": 0.1}, seed=5, api_key="sk-planted-0123456789"
    )
    connection = {
        "conn_type": "openai_compatible",
        "host": endpoint.base_url,
        "password": "sk-planted-0123456789",
        "extra": {"model": "fake"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_THE_ENDPOINT", json.dumps(connection))
    module = load_dag(SHARDED, folder=str(corpus.parent), base_url=endpoint.base_url)
    ran = run_dag(module.dag)
    assert ran.state == "success"
    shards = [key for key in ran.states if key[0] == "translate.shard"]
    assert sorted(shards) == [("translate.shard", index) for index in range(4)]
    made = ran.xcom("translate.commit")
    assert (made["rows"], made["outcomes"]) == (60, {"completed": 57, "skipped": 3})
    table = corpusmill.read(corpus.parent / "sharded").to_table()
    assert table.column("id").to_pylist() == list(range(60))
    event = asset_events(f"file://{corpus.parent}/sharded")[-1]
    assert event.extra["rows"] == 60
    assert event.extra["run_key"] == made["run_key"]
    assert event.partition_key in {None, "all"}
    asked = endpoint.stats().requests
    again = run_dag(module.dag)
    assert again.state == "success"
    assert again.xcom("translate.commit")["skipped_run"]
    assert endpoint.stats().requests == asked
    assert "sk-planted" not in str(ran.xcoms) + str(event.extra)


def test_a_used_up_quota_defers_the_task_until_it_resets(
    load_dag: LoadDag,
    run_dag: RunDag,
    corpus: Path,
    fake_endpoint_factory: Callable[..., FakeEndpoint],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trigger waits for the moment that the endpoint named, and the second half pays for nothing again."""
    deferred: list[str] = []
    run = QuotaResetTrigger.run

    async def noted(self: QuotaResetTrigger) -> Any:
        deferred.append(self.moment)
        async for event in run(self):
            yield event

    monkeypatch.setattr(QuotaResetTrigger, "run", noted)
    limits = RateLimits(requests_per_day=25, day_seconds=12)
    endpoint = fake_endpoint_factory(limits=limits)
    ran = run_dag(dag_of(load_dag, corpus, endpoint, "quota", limits={"concurrency": 4}))
    assert ran.state == "success"
    assert deferred
    assert endpoint.stats().computed_again == 0
    assert ran.xcom("translate")["outcomes"] == {"completed": 57, "skipped": 3}


def test_too_many_failed_rows_fail_the_task_with_counts_and_no_text(
    load_dag: LoadDag,
    run_dag: RunDag,
    corpus: Path,
    fake_endpoint: FakeEndpoint,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The log says how many and of which kinds, and quotes no row."""
    fake_endpoint.script(
        lambda request, attempt: Fault("400") if "house 3 " in str(request["messages"]) else None
    )
    ran = run_dag(dag_of(load_dag, corpus, fake_endpoint, "broken", failures={"max_failed": 0.0}))
    assert ran.state == "failed"
    log = "".join(capsys.readouterr())
    assert "2 failed" in log
    assert "errors: 2 " in log
    assert "strikes" not in log
    assert not (corpus.parent / "out-2026-01-31").exists()


needs_retry_policies = pytest.mark.skipif(
    not hasattr(airflow.sdk, "RetryPolicy"), reason="Airflow before 3.3 has no retry policies"
)


@needs_retry_policies
def test_a_wrong_key_is_not_tried_again(
    load_dag: LoadDag, run_dag: RunDag, corpus: Path, fake_endpoint_factory: Callable[..., FakeEndpoint]
) -> None:
    """The task has retries, and fails at once all the same."""
    endpoint = fake_endpoint_factory(api_key="right")
    ran = run_dag(dag_of(load_dag, corpus, endpoint, "refused_key", retries=2))
    assert ran.state == "failed"
    assert ran.tries[("translate", -1)] == 1
    assert endpoint.stats().requests <= 2


@needs_retry_policies
def test_a_mapped_shard_is_not_tried_again_where_that_is_of_no_use(
    load_dag: LoadDag,
    run_dag: RunDag,
    corpus: Path,
    fake_endpoint_factory: Callable[..., FakeEndpoint],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The policy of an operator is that of its mapped tasks, too; nothing is committed."""
    endpoint = fake_endpoint_factory(api_key="sk-right-0123456789")
    connection = {"conn_type": "openai_compatible", "host": endpoint.base_url, "extra": {"model": "fake"}}
    monkeypatch.setenv("AIRFLOW_CONN_THE_ENDPOINT", json.dumps(connection))
    source = SHARDED.replace(
        '"sharded", schedule=None', '"refused", schedule=None, default_args={"retries": 3}'
    )
    module = load_dag(source, folder=str(corpus.parent), base_url=endpoint.base_url)
    ran = run_dag(module.dag)
    assert ran.state == "failed"
    assert {tries for (task, _), tries in ran.tries.items() if task == "translate.shard"} == {1}
    assert ran.states["translate.commit", -1] == "upstream_failed"
    assert not (corpus.parent / "sharded").exists()


def test_more_shards_than_airflow_maps_are_refused_with_what_to_set(
    corpus: Path, fake_endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A longer list would fail the task that gives it, without a word on how to go on."""
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "4")
    plan = PlanShardsOperator(
        task_id="plan",
        rows_per_shard=10,
        source=str(corpus),
        sink={"path": str(corpus.parent / "out"), "rows_per_part": 5},
        prompts=[{"summarise": {"column": "text", "into": "short", "length": "one sentence"}}],
        endpoint={"openai_compatible": {"base_url": fake_endpoint.base_url, "model": "fake"}},
    )
    with pytest.raises(UsageError, match=r"60 rows make 6 shards.* rows_per_shard to 15 or more"):
        plan.execute({})
    plan.rows_per_shard = 15
    assert [shard["start"] for shard in plan.execute({})] == [0, 15, 30, 45]
