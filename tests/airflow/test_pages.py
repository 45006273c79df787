"""The reports of tasks that failed, and the page that shows a report to whoever may read it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import HTTPException

from corpusmill.airflow.link import REPORT_KEY, UNMAPPED, report_path, view_path
from corpusmill.airflow.pages import POLICY, drawn, show
from corpusmill.errors import SinkError

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

with DAG(dag_id, schedule=None) as dag:
    EnrichOperator(
        task_id="translate",
        source=folder + "/corpus.parquet",
        sink=folder + "/" + dag_id,
        prompts=[{"translate": {"column": "text", "into": "text_lv", "from": "en", "to": "lv"}}],
        endpoint={"openai_compatible": {"base_url": base_url, "model": "fake", "api_key": "sk-wrong"}},
        store="sqlite:///" + folder + "/" + dag_id + ".db",
        prices={"prompt": 1_000_000.0, "completion": 1_000_000.0},
        **options,
    )
"""


def refuse_one_house(request: Any, attempt: int) -> str | None:
    """Answer 400 for some rows."""
    return "400" if "house 3 " in str(request["messages"]) else None


@pytest.mark.parametrize(
    ("dag_id", "options", "key", "said"),
    [
        ("spoiled", {"failures": {"max_failed": 0.0}}, None, "max_failed is 0.0%"),
        ("poor", {"budget": {"usd": 1.0}, "limits": {"concurrency": 1}}, None, "budget"),
        ("locked", {}, "sk-right", "401"),
    ],
)
def test_a_failed_task_records_its_report(
    load_dag: LoadDag,
    run_dag: RunDag,
    corpus: Path,
    fake_endpoint_factory: Callable[..., FakeEndpoint],
    *,
    dag_id: str,
    options: dict[str, Any],
    key: str | None,
    said: str,
) -> None:
    """Too many failed rows, a used-up budget, a wrong key: the page has the counts, and why the run ended."""
    endpoint = fake_endpoint_factory(api_key=key)
    endpoint.script(refuse_one_house)
    module = load_dag(
        DAG, dag_id=dag_id, folder=str(corpus.parent), base_url=endpoint.base_url, options=options
    )
    ran = run_dag(module.dag)
    assert ran.state == "failed"
    record = ran.xcom("translate", REPORT_KEY)
    assert record["address"] == f"{corpus.parent}/{dag_id}.failed.report.json"
    assert "strikes" not in str(ran.xcoms)
    page, status = drawn(record)
    assert status == 200
    assert "The run ended early and committed nothing" in page
    assert said in page
    answer = show(dag_id, ran.run_id, "translate", UNMAPPED)
    assert (answer.status_code, bytes(answer.body).decode()) == (200, page)
    assert answer.headers["content-security-policy"] == POLICY


def test_the_report_of_a_failure_leaves_that_of_the_output_alone_and_goes_with_the_next_one(
    load_dag: LoadDag, run_dag: RunDag, corpus: Path, fake_endpoint: FakeEndpoint
) -> None:
    """What was committed before keeps its report; what commits after a failure takes its report away."""
    given = {"folder": str(corpus.parent), "base_url": fake_endpoint.base_url, "dag_id": "mended"}
    asked = {
        "overrides": {"prompts": [{"ask": {"template": "Say {text}", "into": "said"}}]},
        "overwrite": True,
    }
    strict = {"failures": {"max_failed": 0.0}}

    def run(name: str, options: dict[str, Any]) -> Any:
        return run_dag(load_dag(DAG, name=name, options={**strict, **options}, **given).dag)

    first = run("mended_first", {})
    fake_endpoint.script(refuse_one_house)
    failed = run("mended_failed", asked)
    assert (first.state, failed.state) == ("success", "failed")
    assert [drawn(ran.xcom("translate", REPORT_KEY))[1] for ran in (first, failed)] == [200, 200]
    fake_endpoint.script(lambda request, attempt: None)
    last = run("mended_last", asked)
    assert last.state == "success"
    shown = [drawn(ran.xcom("translate", REPORT_KEY))[1] for ran in (first, failed, last)]
    assert shown == [410, 404, 200]


SHARDED = """
from airflow.sdk import DAG
from corpusmill.airflow import enrich_shards

with DAG("sharded_failure", schedule=None) as dag:
    enrich_shards(
        "translate",
        shards=2,
        source=folder + "/corpus.parquet",
        sink={"path": folder + "/sharded", "rows_per_part": 30},
        prompts=[{"translate": {"column": "text", "into": "text_lv", "from": "en", "to": "lv"}}],
        endpoint={"openai_compatible": {"base_url": base_url, "model": "fake", "api_key": "sk-wrong"}},
        store="sqlite:///" + folder + "/sharded.db",
    )
"""


def test_each_shard_that_fails_records_a_report_of_its_own(
    load_dag: LoadDag, run_dag: RunDag, corpus: Path, fake_endpoint_factory: Callable[..., FakeEndpoint]
) -> None:
    """The page of a mapped task instance shows the report of its shard."""
    endpoint = fake_endpoint_factory(api_key="sk-right")
    module = load_dag(SHARDED, folder=str(corpus.parent), base_url=endpoint.base_url)
    ran = run_dag(module.dag)
    assert ran.state == "failed"
    records = [ran.xcom("translate.shard", REPORT_KEY, map_index) for map_index in (0, 1)]
    assert len({record["address"] for record in records}) == 2
    for map_index in (0, 1):
        assert show(ran.dag_id, ran.run_id, "translate.shard", str(map_index)).status_code == 200
    assert show(ran.dag_id, ran.run_id, "translate.plan", UNMAPPED).status_code == 404


def test_a_sink_that_cannot_be_written_does_not_hide_what_ended_the_run(
    load_dag: LoadDag,
    run_dag: RunDag,
    corpus: Path,
    fake_endpoint_factory: Callable[..., FakeEndpoint],
    *,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The log has both, and the task fails for the first."""

    def full(*_: object, **__: object) -> None:
        raise SinkError("cannot write the report: No space left on device")

    monkeypatch.setattr("corpusmill.ending.write_failed_report", full)
    endpoint = fake_endpoint_factory(api_key="sk-right")
    module = load_dag(DAG, dag_id="full", folder=str(corpus.parent), base_url=endpoint.base_url, options={})
    ran = run_dag(module.dag)
    said = "".join(capfd.readouterr())
    assert ran.xcom("translate", REPORT_KEY) is None
    warned = "there will be no report of this run: SinkError: cannot write the report: No space left"
    assert [warned in record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        True
    ]
    assert "AuthenticationError" in said


def test_a_task_without_a_report_gets_a_page_that_says_so(airflow_home: Path) -> None:
    """The tab is there for every task; an index that is none is refused."""
    answer = show("no", "such", "task", UNMAPPED)
    assert answer.status_code == 404
    assert "has recorded no report" in bytes(answer.body).decode()
    with pytest.raises(HTTPException) as caught:
        show("no", "such", "task", "1 or 1")
    assert caught.value.status_code == 404


@pytest.mark.parametrize(
    ("base_url", "below"), [("/", ""), ("https://host:8080/", ""), ("http://a/b/c/", "/b/c")]
)
def test_the_tab_leads_to_the_page_of_the_link(base_url: str, below: str) -> None:
    """Airflow fills in what stands in braces, each piece escaped."""
    filled = view_path(base_url).format(DAG_ID="d", RUN_ID="r%2B1", TASK_ID="t", MAP_INDEX=3)
    assert filled == below + report_path("d", "r+1", "t", 3)


def test_the_plugin_places_a_tab_on_task_instances_unless_it_is_told_not_to(
    airflow_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`[corpusmill] report_tab` says it."""
    from airflow.plugins_manager import AirflowPlugin

    from corpusmill.airflow.plugin import CorpusmillPlugin, tabs

    assert issubclass(CorpusmillPlugin, AirflowPlugin)
    (tab,) = CorpusmillPlugin.external_views
    assert json.loads(json.dumps(tab)) == tabs()[0]
    assert tab["destination"] == "task_instance"
    monkeypatch.setenv("AIRFLOW__CORPUSMILL__REPORT_TAB", "False")
    assert tabs() == []
