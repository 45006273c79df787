"""A job that chooses no row of its source: it ends well, and a warning says what left none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.cli import main

if TYPE_CHECKING:
    from pathlib import Path


def run(folder: Path, source: dict[str, Any], *options: str, rows: int = 10) -> int:
    """Run a job over so many rows, of an endpoint that nothing must reach."""
    texts = [f"text {number}" for number in range(rows)]
    table = pa.table({"id": range(rows), "text": pa.array(texts, pa.string())})
    pq.write_table(table, folder / "in.parquet")
    job = {
        "source": {"path": str(folder / "in.parquet"), **source},
        "sink": str(folder / "out"),
        "prompts": [{"ask": {"template": "Topic of {text}", "into": "topic"}}],
        "endpoint": {"openai_compatible": {"base_url": "http://127.0.0.1:9/v1", "model": "any"}},
        "store": {"url": f"sqlite:///{folder / 'store.db'}"},
    }
    (folder / "job.json").write_text(json.dumps(job), "utf-8")
    return main(["run", str(folder / "job.json"), *options])


@pytest.mark.parametrize("options", [(), ("--quiet",), ("--json",), ("--limit", "2")], ids=str)
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"filter": [["id", ">", 99]]}, 'source.filter [["id",">",99]] left none of the 10 rows of '),
        ({"rows": [20, 40]}, "source.rows [20,40] left none of the 10 rows of "),
        (
            {"filter": [["id", "=", 3]], "rows": [1, 2]},
            'source.filter [["id","=",3]] and source.rows [1,2] left none of the 10 rows of ',
        ),
    ],
    ids=["filter", "rows", "both"],
)
def test_what_left_no_row_is_said_and_is_no_failure(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    source: dict[str, Any],
    said: str,
    options: tuple[str, ...],
) -> None:
    """With the rows that the source has, on standard error, whatever else is printed."""
    assert run(tmp_path, source, *options) == 0
    told = capsys.readouterr()
    assert f"warning: {said}{tmp_path / 'in.parquet'}" in told.err
    assert "warning" not in told.out
    assert "0 s:" not in told.out


def test_a_source_without_rows_is_called_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing was left out, nothing else is to blame."""
    assert run(tmp_path, {}, rows=0) == 0
    assert f"warning: {tmp_path / 'in.parquet'} has no rows" in capsys.readouterr().err


def test_a_run_with_rows_warns_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Blank rows are rows too, though nobody is asked about them."""
    table = pa.table({"text": ["", None]})
    pq.write_table(table, tmp_path / "blank.parquet")
    assert run(tmp_path, {"path": str(tmp_path / "blank.parquet"), "rows": [0, 2]}) == 0
    assert "warning" not in capsys.readouterr().err
