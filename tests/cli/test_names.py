"""A column may be called anything: from an option or a job file to what is printed."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill import read
from corpusmill.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.testing import FakeEndpoint

NFD = unicodedata.normalize("NFD", "größe")
NAMES = ["Text Body (orig.)", "2024", "text/en", "Question?", NFD, "Text [/raw]"]

JOB = """
source:
  path: in.parquet
  columns: ["Text Body (orig.)", 2024, größe, "Text [/raw]"]
  filter: [[2024, "!=", other], [größe, is not null]]
sink: {path: out, columns: [2024, größe], partition: {"Año (1)": a/b}}
store: sqlite:///store.db
prompts:
  - ask: {template: "Of {column:Text Body (orig.)}, {größe}, {column:2024}", into: "a.b (c)", vary_by: 2024}
  - answer: {question: {column: "Text [/raw]"}, context: {column: 2024}, into: "Answer [/b]?"}
endpoint: {openai_compatible: {base_url: "${BASE_URL}", model: any}}
"""


@pytest.fixture
def folder(tmp_path: Path, fake_endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a table of all these names and a job for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BASE_URL", fake_endpoint.base_url)
    monkeypatch.setenv("COLUMNS", "250")
    pq.write_table(pa.table({name: [f"text {name}", "other"] for name in NAMES}), "in.parquet")
    (tmp_path / "job.yaml").write_text(JOB, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", ["Text Body (orig.)", "2024", "text/en", "Question?", "größe"])
def test_an_option_takes_any_name(folder: Path, fake_endpoint: FakeEndpoint, name: str) -> None:
    """Quoted for the shell, and as it is typed, whichever way the table has its accents."""
    options = [
        "--to",
        "lv",
        "--base-url",
        fake_endpoint.base_url,
        "--model",
        "any",
        "--store",
        "sqlite:///s.db",
    ]
    assert main(["translate", "in.parquet", "out", "--column", name, *options, "--quiet"]) == 0
    assert read(folder / "out").schema.names == [*NAMES, f"{name}_lv", f"{name}_lv_outcome"]


def test_a_job_file_takes_any_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A number is one too; previews show names as they are, whatever they would mean as markup."""
    assert main(["plan", "job.yaml"]) == 0
    assert main(["run", "job.yaml", "--limit", "1", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ["a.b (c)", "Text [/raw]", "Answer [/b]?"])
    assert main(["run", "job.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcomes"] == {"completed": 2}
    made = read(folder / "out", partition={"Año (1)": "a/b"}).schema.names
    assert made == ["2024", NFD, "a.b (c)", "a.b (c)_outcome", "Answer [/b]?", "Answer [/b]?_outcome"]
    assert main(["store", "explain", "job.yaml", "--row", "0"]) == 0
    assert "a.b (c): answered in the store" in capsys.readouterr().out


def test_a_column_that_is_not_there_is_named_with_the_nearest(
    folder: Path, fake_endpoint: FakeEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is asked."""
    (folder / "job.yaml").write_text(JOB.replace("{column:2024}", "{column:Text Body}"), encoding="utf-8")
    assert main(["run", "job.yaml"]) == 2
    assert "names 'Text Body': there is no column 'Text Body'; did you mean" in capsys.readouterr().err
    assert fake_endpoint.stats().requests == 0
