"""Every example runs, in an empty folder, against the fake endpoint."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import corpusmill

if TYPE_CHECKING:
    from corpusmill.testing import FakeEndpoint

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = sorted((EXAMPLES / "jobs").glob("*.yaml"))


def run(arguments: list[str], folder: Path, **environment: str) -> str:
    """Run a Python program in a folder, and give its standard output."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_corpus(path: Path) -> None:
    """Write the first twenty rows of the demonstration's corpus."""
    runpy.run_path(str(EXAMPLES / "demo.py"))["build_corpus"](path)
    pq.write_table(pq.read_table(path).slice(0, 20), path)


def test_there_is_a_job_for_each_prompt() -> None:
    """The examples show all five prompts."""
    assert {path.stem for path in JOBS} == {"answer", "ask", "extract", "summarise", "translate"}


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_a_job_file_runs_as_it_stands(job: Path, tmp_path: Path, fake_endpoint: FakeEndpoint) -> None:
    """Each job writes a complete dataset with its new column."""
    write_corpus(tmp_path / "corpus.parquet")
    run(["-m", "corpusmill", "run", str(job), "--quiet"], tmp_path, BASE_URL=fake_endpoint.base_url)
    (sink,) = (tmp_path / "out").iterdir()
    table = corpusmill.read(sink).to_table()
    (outcome,) = [name for name in table.column_names if name.endswith("_outcome")]
    assert {(row or {})["status"] for row in table[outcome].to_pylist()} == {"completed"}
    assert table[outcome.removesuffix("_outcome")].null_count == 0
    assert table.num_rows == 20


def test_the_warehouse_asks_only_rows_that_changed(tmp_path: Path, fake_endpoint: FakeEndpoint) -> None:
    """The first run asks all articles, the second the one that changed."""
    arguments = [str(EXAMPLES / "warehouse.py"), fake_endpoint.base_url, "articles.duckdb"]
    assert run(arguments, tmp_path).startswith("50 articles were new or changed")
    assert run(arguments, tmp_path).startswith("1 articles were new or changed")
    assert fake_endpoint.stats().computed == 51


def test_the_notebook_runs_inside_a_running_loop(tmp_path: Path, fake_endpoint: FakeEndpoint) -> None:
    """The cells print the counts and each row."""
    printed = run([str(EXAMPLES / "notebook.py"), fake_endpoint.base_url], tmp_path)
    assert "{'completed': 2, 'skipped': 1}" in printed
    assert "2 None skipped" in printed


@pytest.mark.parametrize("name", ["notebook", "warehouse"])
def test_an_example_without_an_address_says_how_it_is_called(name: str, tmp_path: Path) -> None:
    """It ends with 1 and the usage, with no trace of where it failed."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"usage: python examples/{name}.py BASE_URL")
    assert "Traceback" not in done.stderr


def test_the_warehouse_says_what_to_install(tmp_path: Path) -> None:
    """Without DuckDB it is one line, which names the package."""
    code = (
        "import runpy, sys\n"
        "sys.modules['duckdb'] = None\n"
        f"runpy.run_path({str(EXAMPLES / 'warehouse.py')!r}, run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        "This example needs DuckDB, which no extra of corpusmill brings: pip install duckdb\n"
    )
