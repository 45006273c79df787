"""Every Dag of the folder `dags`, as it stands there, with faults on."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import corpusmill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.airflow.conftest import Ran

    from corpusmill.testing import FakeEndpoint

SHIPPED = Path(__file__).parents[2] / "dags"


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


def test_every_shipped_file_is_run_here() -> None:
    """A file that is added to the folder needs a test."""
    assert {path.stem for path in SHIPPED.glob("*.py")} == {
        "quality_gate",
        "summarise_shards",
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
