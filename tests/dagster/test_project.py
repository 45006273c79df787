"""The project in `assets/`: it loads, it runs out of the box, and the commands of Dagster understand it."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from corpusmill import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dagster.conftest import Runs

PROJECT = Path(__file__).parents[2] / "assets"

COMMANDS = """
import os, sys, time, warnings
warnings.simplefilter("ignore")
import dagster_dg_cli.cli as dg_cli
from dagster._cli import create_dagster_cli

def run(cli, *arguments):
    print(time.time(), "$", *arguments, flush=True)
    try:
        cli.main(args=list(arguments), standalone_mode=False)
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise

dg = dg_cli.create_dg_cli()
run(create_dagster_cli(), "definitions", "validate", "-m", "corpus_assets.definitions", "--log-level", "warning")
run(dg, "check", "yaml")
run(dg, "check", "defs")
run(dg, "list", "components", "--json")
run(dg, "list", "defs", "--json")
run(dg, "scaffold", "defs", "corpusmill.dagster.EnrichmentComponent", "scaffolded")
run(dg, "launch", "--assets", "raw_corpus,summarised_corpus")
"""


@pytest.fixture
def definitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dg.Definitions:
    """The project's definitions, with its tables in a folder of the test's own."""
    monkeypatch.setenv("CORPUS_FOLDER", str(tmp_path))
    monkeypatch.syspath_prepend(str(PROJECT / "src"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "corpus_assets"]:
        monkeypatch.delitem(sys.modules, name)
    module = importlib.import_module("corpus_assets.definitions")
    made = module.defs()
    assert isinstance(made, dg.Definitions)
    return made


def test_the_project_runs_from_the_raw_corpus_to_the_facts(
    definitions: dg.Definitions, runs: Runs, tmp_path: Path
) -> None:
    """All assets are materialised against the fake endpoint; a second time nothing is asked."""
    assert runs.materialise(definitions, assets=["raw_corpus"]).success
    whole = ["summarised_corpus", "extracted_facts"]
    assert runs.materialise(definitions, assets=whole).success
    assert runs.materialise(definitions, assets=["translated_corpus"], span=("lv", "et")).success
    assert read(tmp_path / "facts").to_table().column("facts").null_count == 0
    again = runs.materialise(definitions, assets=whole)
    for asset in whole:
        assert runs.told(again, asset)["corpusmill/answers/live"] == 0
    names = {sensor.name for sensor in definitions.sensors or ()}
    assert names == {"resume_after_quota", "collect_nightly_translation"}
    assert [schedule.name for schedule in definitions.schedules or ()] == ["nightly"]
    graph = definitions.resolve_asset_graph()
    assert graph.get(dg.AssetKey("summarised_corpus")).automation_condition is not None
    assert graph.get(dg.AssetKey("extracted_facts")).parent_keys == {dg.AssetKey("summarised_corpus")}


@pytest.fixture
def amazon(definitions: dg.Definitions, tmp_path: Path) -> Iterator[None]:
    """End the fake SageMaker that the project starts for itself."""
    yield
    os.kill(json.loads((tmp_path / "amazon.json").read_text("utf-8"))["pid"], signal.SIGTERM)


@pytest.mark.usefixtures("amazon")
def test_the_night_of_the_project_runs_out_of_the_box(
    definitions: dg.Definitions, runs: Runs, tmp_path: Path
) -> None:
    """The fake SageMaker is started by the first run and outlives it; the sensor asks for the run that collects."""
    assert runs.materialise(definitions, assets=["raw_corpus"]).success
    assert runs.materialise(definitions, assets=["nightly_translation_jobs"]).success
    repository = definitions.get_repository_def()
    sensor = repository.get_sensor_def("collect_nightly_translation")
    resources = repository.get_top_level_resources()
    cursor: str | None = None
    requested: list[dg.RunRequest] = []
    while not requested:
        with dg.build_sensor_context(
            instance=runs.instance,
            cursor=cursor,
            repository_def=repository,
            resources={"amazon": resources["amazon"]},
        ) as context:
            evaluated = sensor.evaluate_tick(context)
        cursor, requested = evaluated.cursor, list(evaluated.run_requests or ())
    assert len(requested) == 1
    told = runs.told(runs.materialise(definitions, assets=["nightly_translation"]), "nightly_translation")
    assert told["corpusmill/answers/live"] == 0
    assert told["corpusmill/answers/cached"] > 100
    assert read(tmp_path / "nightly").to_table().column("text_lv").null_count == 0


def test_the_commands_of_dagster_understand_the_project(tmp_path: Path) -> None:
    """Validate, check, list, scaffold and launch, one after the other in one process; scaffolding leaves a file."""
    project = tmp_path / "assets"
    copied = project / "src" / "corpus_assets" / "defs"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__", "corpus-output"))
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n", "utf-8")
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(tmp_path),
        "CORPUS_FOLDER": str(tmp_path / "tables"),
        "PYTHONPATH": os.pathsep.join([str(project / "src"), os.environ["PYTHONPATH"]]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "COLUMNS": "200",
    }
    ran = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        check=False,
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "corpusmill.dagster.EnrichmentComponent" in ran.stdout
    assert "translated_corpus" in ran.stdout
    written = (copied / "scaffolded" / "defs.yaml").read_text("utf-8")
    assert "type: corpusmill.dagster.EnrichmentComponent" in written
    assert read(tmp_path / "tables" / "summarised").count_rows() > 100
