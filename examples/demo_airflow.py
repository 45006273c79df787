"""The Airflow act of the demonstration: a Dag over the corpus that the command line has enriched.

The Dag runs the very job that the command line ran, into a folder of its own, so that everything is rendered, looked up
and written again; every answer comes from the store, and the endpoint counts that it was asked nothing. Airflow runs in
a process of its own, with its database and its log in the folder of the demonstration.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAG = """\
from airflow.sdk import DAG
from corpusmill.airflow import EnrichOperator

with DAG("enrich_corpus", schedule="@daily", catchup=False) as dag:
    EnrichOperator(
        task_id="enrich",
        job="{job}",
        overrides={{"sink": {{"path": "{sink}"}}}},
        asset="file://{sink}",
    )
"""

CHILD = """\
import json, sys
from airflow.utils.db import initdb
initdb()
sys.path.insert(0, sys.argv[1])
from enrich_corpus import dag
run = dag.test()
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
with create_session() as session:
    found = session.scalars(XComModel.get_many(run_id=run.run_id, dag_ids=run.dag_id)).all()
    xcoms = {each.key: XComModel.deserialize_value(each) for each in found}
with open(sys.argv[2], "w", encoding="utf-8") as file:
    json.dump({"state": str(run.state), "xcoms": xcoms}, file)
"""


def act(folder: Path, requests: Callable[[], int]) -> None:
    """Run the job of the folder as a Dag, and show that the endpoint was not asked: `requests` counts what it was."""
    if importlib.util.find_spec("airflow") is None:
        print("Airflow is not installed here: pip install 'corpusmill[airflow]' shows this act.")
        return
    folder = folder.absolute()
    dags = folder / "airflow" / "dags"
    dags.mkdir(parents=True, exist_ok=True)
    text = DAG.format(job=folder / "job.yaml", sink=folder / "enriched-by-airflow")
    (dags / "enrich_corpus.py").write_text(text, "utf-8")
    print("".join(f"  {line}\n" for line in text.splitlines()), flush=True)
    before = requests()
    found = run(dags, folder / "airflow")
    if found is None:
        return
    made = found["xcoms"]["return_value"]
    made = json.loads(made) if isinstance(made, str) else made
    print(f"  the Dag run: {found['state']}")
    print(f"  rows: {made['rows']:,}, asked for now: {made['live']:,}, from the store: {made['cached']:,}")
    print(f"  the task's link: {found['xcoms']['_link_ReportLink']}")
    print(f"  The endpoint was asked {requests() - before} times.", flush=True)


def run(dags: Path, home: Path) -> dict[str, Any] | None:
    """Run the Dag in an Airflow of its own; None, and what went wrong on standard output, when it did not."""
    result = home / "result.json"
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
    }
    with (home / "airflow.log").open("w", encoding="utf-8") as log:
        child = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", CHILD, str(dags), str(result)],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if child.returncode != 0:
        print(f"  Airflow ended with {child.returncode}; its log is {home}/airflow.log")
        return None
    found: dict[str, Any] = json.loads(result.read_text("utf-8"))
    return found
