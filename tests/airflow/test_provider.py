"""What Airflow finds of the provider, and what importing it costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

LIGHT = """
import json, sys
import airflow.sdk
before = set(sys.modules)
from corpusmill.airflow import EnrichOperator, TransformJobOperator, enrich_shards
if hasattr(airflow.sdk, "RetryPolicy"):
    from corpusmill.airflow import EnrichRetryPolicy
from corpusmill import Translate
from airflow.sdk import DAG, task
with DAG("d", schedule=None):
    EnrichOperator(task_id="e", job="job.yaml", parameters={"day": "{{ ds }}"})
    TransformJobOperator(
        task_id="n",
        endpoint={"sagemaker_transform": {"model_name": "m", "model": "m", "instance_type": "ml.g6", "s3": "s3://b/p"}},
        aws_conn_id="aws",
    )
    enrich_shards("g", job="job.yaml", prompts=[Translate("text", into="lv", to="lv")], sink="/out", conn_id="c")
    task.enrich(job="job.yaml", task_id="t")(lambda: "path")()
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def test_a_dag_file_loads_nothing_that_reads_tables_or_speaks_http() -> None:
    """Dag files are parsed again and again."""
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LIGHT],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    loaded = set(json.loads(child.stdout.splitlines()[-1]))
    assert not loaded & {"pyarrow", "httpx", "boto3", "botocore", "pyreqwest", "numpy", "psycopg"}


SPARING = """
import contextlib, os, sys
from corpusmill.airflow import TransformJobOperator
from corpusmill.airflow.shards import CommitShardsOperator, PlanShardsOperator
job = dict(task_id="t", source="/no/such.parquet", sink="/no/such", store="off", prompts=[
    {"translate": {"column": "text", "into": "lv", "to": "lv"}}
])
transform = {"model_name": "m", "model": "m", "region": "r", "instance_type": "ml.g6", "s3": "s3://b/p"}
asked = {"openai_compatible": {"base_url": "http://127.0.0.1:1/v1", "model": "m"}}
assert "pyarrow" not in sys.modules
with contextlib.suppress(Exception):
    {
        "plan": lambda: PlanShardsOperator(endpoint=asked, **job),
        "commit": lambda: CommitShardsOperator(endpoint=asked, planned=[{}], **job),
        "transform": lambda: TransformJobOperator(endpoint={"sagemaker_transform": transform}, **job),
    }[sys.argv[1]]().execute(None)
print("pyarrow" in sys.modules, os.environ.get("ARROW_DEFAULT_MEMORY_POOL"))
"""


@pytest.mark.parametrize("kind", ["plan", "commit", "transform"])
def test_a_task_says_how_arrow_gets_its_memory_before_arrow_is_loaded(kind: str) -> None:
    """Arrow looks into the environment once, when it is loaded, and a task loads it as soon as it has a job."""
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SPARING, kind],
        env={name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.stdout.splitlines()[-1:] == ["True system"], child.stderr


def airflow(*arguments: str) -> str:
    """Ask Airflow's command line."""
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "airflow", *arguments],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout


def test_the_command_line_shows_the_provider() -> None:
    """Its entry point is found, and what it says fits Airflow's schema."""
    found = json.loads(airflow("providers", "get", "corpusmill", "--full", "--output", "json"))
    assert "chat-completion" in str(found)


def test_airflow_finds_hooks_links_decorator_fields_and_plugin() -> None:
    """What the user interface is made from."""
    from airflow.plugins_manager import get_fastapi_plugins
    from airflow.providers_manager import ProvidersManager
    from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

    manager: Any = ProvidersManager()  # type: ignore[no-untyped-call] # Airflow's is not annotated
    fields = manager.connection_form_widgets
    assert fields["extra__sambanova__model"].field_name == "model"
    assert fields["extra__openai_compatible__headers"].is_sensitive
    assert manager.field_behaviours["sambanova"]["relabeling"]["password"] == "API key"
    assert "corpusmill.airflow.link.ReportLink" in manager.extra_links_class_names
    assert "corpusmill.airflow.transform_link.TransformJobLink" in manager.extra_links_class_names
    runtime: Any = ProvidersManagerTaskRuntime()  # type: ignore[no-untyped-call]
    hooks = runtime.hooks
    for name in ("sambanova", "openai_compatible"):
        hook = hooks[name]
        assert hook is not None
        assert hook.hook_class_name.startswith("corpusmill.airflow.hook.")
    assert "enrich" in runtime.taskflow_decorators
    apps, _ = get_fastapi_plugins()
    assert "corpusmill" in [app["name"] for app in apps]
