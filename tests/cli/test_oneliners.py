"""`corpusmill translate` and `summarise`: the same job as a file would say, and the same run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill import read
from corpusmill.cli import main
from corpusmill.testing import FakeEndpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeEndpoint]:
    """An endpoint that wants a key, in a working folder with a small corpus."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_KEY", "sk-fake-0123456789")
    pq.write_table(pa.table({"text": ["The house is red.", "The dog sleeps.", None]}), "in.parquet")
    with FakeEndpoint(api_key="sk-fake-0123456789") as started:
        yield started


def options(endpoint: FakeEndpoint) -> list[str]:
    """What both commands need to know of whom to ask."""
    asked = ["--base-url", endpoint.base_url, "--model", "any", "--api-key-env", "MY_KEY"]
    return ["in.parquet", "out", "--column", "text", "--quiet", *asked]


def test_translate_fills_a_column(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    """A glossary of a file reaches the model; blank rows stay null; the default store is used."""
    (tmp_path / "terms.csv").write_text("house,māja\n", "utf-8")
    command = ["translate", *options(endpoint), "--into", "text_lv", "--from", "en", "--to", "lv"]
    assert main([*command, "--glossary", "terms.csv"]) == 0
    rows = read("out").to_table().to_pylist()
    assert [row["text_lv"] is None for row in rows] == [False, False, True]
    assert endpoint.stats().requests == 2
    assert (tmp_path / ".corpusmill" / "store.db").is_file()


@pytest.mark.parametrize("spelling", ["summarise", "summarize"])
def test_summarise_fills_a_column_in_either_spelling(
    endpoint: FakeEndpoint, capfdbinary: pytest.CaptureFixture[bytes], spelling: str
) -> None:
    """Without `--into` the column is named after the one that is read; the report is JSON on request."""
    assert main([spelling, *options(endpoint), "--length", "20", "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["outcomes"] == {"completed": 2, "skipped": 1}
    assert "text_summary" in read("out").schema.names


def test_a_preview_writes_no_output(
    endpoint: FakeEndpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--limit` asks so many rows and shows them."""
    assert main(["translate", *options(endpoint), "--to", "lv", "--limit", "1"]) == 0
    assert "The house is red." in capsys.readouterr().out
    assert endpoint.stats().requests == 1
    assert not (tmp_path / "out").exists()


def test_the_key_is_in_no_file_that_a_run_leaves(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    """The report names the variable and not what it holds."""
    assert main(["translate", *options(endpoint), "--to", "lv"]) == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"sk-fake-0123456789" in path.read_bytes()]
    assert b"${MY_KEY}" in (tmp_path / "out" / "_corpusmill" / "report.html").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["translate", "in.parquet", "out", "--column", "text", "--to", "lv"], "say whom to ask"),
        (
            ["summarise", "in.parquet", "out", "--column", "text", "--sambanova-model", "a", "--model", "b"],
            "not beside them",
        ),
        (
            [
                "translate",
                "in.parquet",
                "out",
                "--column",
                "text",
                "--to",
                "Klingonish",
                "--sambanova-model",
                "a",
            ],
            "no language that is known",
        ),
        (
            ["translate", "in.parquet", "out", "--column", "txt", "--to", "lv", "--sambanova-model", "a"],
            "'txt'",
        ),
        (
            [
                "translate",
                "a",
                "b",
                "--column",
                "c",
                "--to",
                "lv",
                "--sambanova-model",
                "a",
                "--api-key-env",
                "NO",
            ],
            "environment variable NO, which is not set",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_exit_code_two(
    endpoint: FakeEndpoint, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    """Nothing is sent, and the message says what to write."""
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
    assert endpoint.stats().requests == 0
