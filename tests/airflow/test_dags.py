"""Every Dag of the folder `dags`, as it stands there, with faults on."""

from __future__ import annotations

import importlib.util
import json
import os
import pydoc_data.topics
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import corpusmill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.airflow.conftest import Amazon, Ran

    from corpusmill.testing import FakeEndpoint

SHIPPED = Path(__file__).parents[2] / "dags"
PAGE = Path(__file__).parents[2] / "docs" / "airflow.md"


@pytest.fixture
def shipped(
    airflow_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fake_endpoint_factory: Callable[..., FakeEndpoint],
) -> Iterator[Callable[[str], Any]]:
    """Lay a file of the folder where Airflow looks for Dags, and import it."""
    endpoint = fake_endpoint_factory(faults={"500": 0.1, "reset": 0.05, "cut_body": 0.03}, seed=11)
    monkeypatch.setenv("CORPUSMILL_FOLDER", str(tmp_path))
    monkeypatch.setenv("CORPUSMILL_BASE_URL", endpoint.base_url)
    laid: list[Path] = []

    def load(name: str) -> Any:
        path = airflow_home / "dags" / f"{name}.py"
        shutil.copy(SHIPPED / path.name, path)
        laid.append(path)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load
    for path in laid:
        path.unlink()


@pytest.mark.parametrize(("position", "tasks"), [(0, 1), (1, 3), (2, 1)])
def test_the_snippets_of_the_documentation_make_tasks(
    load_dag: Callable[..., Any], position: int, tasks: int
) -> None:
    """Each of them as it stands, with a prompt where the page leaves it out."""
    snippet = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[position]
    prompt = '[{"ask": {"template": "{text}", "into": "said"}}]'
    body = textwrap.indent(snippet.replace("[...]", prompt), "    ")
    module = load_dag(f"from airflow.sdk import DAG\n\nwith DAG('told', schedule=None) as dag:\n{body}")
    assert len(module.dag.task_ids) == tasks


def test_the_commands_of_the_documentation_run_a_shipped_file(
    tmp_path: Path, fake_endpoint: FakeEndpoint
) -> None:
    """In a home without a database they make one and run the Dag to its end; without `airflow db migrate` they fail."""
    (block,) = (
        found
        for found in re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
        if "dags/" in found
    )
    assert "fake-endpoint --port 8000 &" in block
    commands = [line for line in block.splitlines() if "fake-endpoint" not in line]

    def called(lines: list[str], home: str) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / home
        folder.mkdir()
        (folder / "dags").symlink_to(SHIPPED)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        return subprocess.run(
            ["sh", "-ec", "\n".join(lines)],
            cwd=folder,
            env={
                **inherited,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "CORPUSMILL_BASE_URL": fake_endpoint.base_url,
            },
            capture_output=True,
            text=True,
            check=False,
        )

    done = called(commands, "whole")
    assert done.returncode == 0, done.stderr
    (day,) = (tmp_path / "whole" / "corpusmill-data" / "translated").iterdir()
    assert pq.read_table(day, partitioning=None).num_rows == 20
    without = called([line for line in commands if not line.startswith("airflow db")], "without")
    assert without.returncode != 0
    assert "no such table: task_instance" in without.stderr


def test_every_shipped_file_is_run_here() -> None:
    """A file that is added to the folder needs a test."""
    assert {path.stem for path in SHIPPED.glob("*.py")} == {
        "quality_gate",
        "summarise_shards",
        "transform_nightly",
        "translate_daily",
        "translate_then_summarise",
    }


def test_a_day_becomes_a_partition(
    shipped: Callable[[str], Any], run_dag: Callable[..., Ran], tmp_path: Path
) -> None:
    """The partition of the day is written, with a manifest of its own."""
    ran = run_dag(shipped("translate_daily").dag)
    assert ran.state == "success"
    (folder,) = (tmp_path / "translated").iterdir()
    key, _, day = folder.name.partition("=")
    assert key == "day"
    dataset = corpusmill.read(tmp_path / "translated", partition={"day": day})
    assert dataset.count_rows() == ran.xcom("translate")["rows"] == 20


def test_shards_are_summarised_side_by_side(
    shipped: Callable[[str], Any], run_dag: Callable[..., Ran], tmp_path: Path
) -> None:
    """Four tasks make one table."""
    ran = run_dag(shipped("summarise_shards").dag)
    assert ran.state == "success"
    assert sum(task == "summarise.shard" for task, _ in ran.states) == 4
    assert corpusmill.read(tmp_path / "summaries").count_rows() == 400


def test_the_gate_reads_the_report(shipped: Callable[[str], Any], run_dag: Callable[..., Ran]) -> None:
    """Enough answers lead one way, and the other way is skipped."""
    ran = run_dag(shipped("quality_gate").dag)
    assert ran.state == "success"
    assert ran.states["publish", -1] == "success"
    assert ran.states["hold", -1] == "skipped"


def test_what_was_translated_is_summarised(
    shipped: Callable[[str], Any], run_dag: Callable[..., Ran], tmp_path: Path
) -> None:
    """The second Dag waits for the first one's asset and reads its output."""
    module = shipped("translate_then_summarise")
    assert run_dag(module.translate).state == "success"
    assert run_dag(module.summarise).state == "success"
    assert corpusmill.read(tmp_path / "latvian-summaries").schema.names == [
        "text_lv",
        "summary",
        "summary_outcome",
    ]


def test_a_night_is_translated_by_jobs_and_the_rest_in_real_time(
    shipped: Callable[[str], Any],
    run_dag: Callable[..., Ran],
    tmp_path: Path,
    amazon: Amazon,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No capacity at first, looks that are throttled, a line that no container stands: every other row is answered."""
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(amazon.connection))
    monkeypatch.setenv("CORPUSMILL_S3", f"s3://{amazon.bucket}/nightly")
    fake = amazon.fake
    fake.fail_next_job("CapacityError: Unable to provision requested ML compute capacity.")
    fake.container.poison = "Paragraph 07"
    fake.control_script = lambda operation, number: (
        "throttled" if operation == "DescribeTransformJob" and number % 3 == 2 else None
    )
    topics = {f"topic {number:02}": f"Paragraph {number:02} of the day." for number in range(40)}
    monkeypatch.setattr(pydoc_data.topics, "topics", topics)
    module = shipped("transform_nightly")
    task = module.dag.get_task("translate")
    task.endpoint["sagemaker_transform"]["poll_seconds"] = 0.05
    task.retry = {"attempts": 2}
    ran = run_dag(module.dag)
    assert ran.state == "success"
    made = ran.xcom("translate")
    assert made["outcomes"] == {"completed": 39, "failed": 1}
    # None of the first job's shards was answered; of the second's one, and so of the third's none but the bad one's.
    assert [len(job.written) for job in amazon.jobs] == [0, 1, 0]
    assert made["live"] == 19
    (folder,) = (tmp_path / "nights").iterdir()
    night = folder.name.partition("=")[2]
    rows = corpusmill.read(tmp_path / "nights", partition={"night": night}).to_table().to_pylist()
    failed = [row["text"] for row in rows if row["text_lv_outcome"]["status"] == "failed"]
    assert failed == ["Paragraph 07 of the day."]
