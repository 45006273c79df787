"""`corpusmill run --limit N`: a few rows, asked as the job would ask them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.cli import main
from corpusmill.cli.progress import Display
from corpusmill.testing import FakeEndpoint

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, endpoint: FakeEndpoint, **more: Any) -> str:
    """Write a corpus of ten texts and a job over it; give the path of the job."""
    texts = [f"A text about the number {number}." for number in range(10)]
    pq.write_table(
        pa.table({"id": range(10), "doc": [{"text": text} for text in texts]}), folder / "in.parquet"
    )
    job = {
        "source": str(folder / "in.parquet"),
        "sink": str(folder / "out"),
        "prompts": [{"ask": {"template": "Topic of {doc.text}", "into": "topic"}}],
        "endpoint": {"openai_compatible": {"base_url": endpoint.base_url, "model": "any"}},
        "store": {"url": f"sqlite:///{folder / 'store.db'}"},
        **more,
    }
    (folder / "job.json").write_text(json.dumps(job), "utf-8")
    return str(folder / "job.json")


def test_a_preview_shows_what_went_in_and_what_came_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows are shown side by side, also where the text lies in a struct, and no output is claimed or written."""
    with FakeEndpoint() as endpoint:
        assert main(["run", written(tmp_path, endpoint), "--limit", "3", "--quiet"]) == 0
        assert endpoint.stats().requests == 3
    said = capsys.readouterr().out
    assert "A text about the number 2." in said
    assert "number 3." not in said
    assert "preview: no output was written" in said
    assert "output: None" not in said
    assert not (tmp_path / "out").exists()


def test_a_preview_shows_the_texts_that_were_asked_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the model was told them, also beside a value that Python cannot hold."""
    with FakeEndpoint() as endpoint:
        prompts = [{"ask": {"template": "{new} since {at}?", "into": "topic"}}]
        job = written(tmp_path, endpoint, prompts=prompts)
        moment = pa.array([1_000_000_001]).view(pa.timestamp("ns", "Europe/Riga"))
        beyond = pa.array([2**31 - 1], pa.int32()).view(pa.date32())
        pq.write_table(pa.table({"new": [True], "at": moment, "beyond": beyond}), tmp_path / "in.parquet")
        assert main(["run", job, "--limit", "1", "--quiet"]) == 0
        assert endpoint.stats().requests == 1
    said = capsys.readouterr().out
    assert "true" in said
    assert "1970-01-01T00" in said  # the rest may be on another line


@pytest.mark.parametrize(
    ("source", "limit", "numbers"),
    [
        ({"rows": [4, 9]}, 2, [4, 5]),
        ({"rows": [4, 6]}, 5, [4, 5]),
        ({"rows": [4, 9], "limit": 5}, 3, [4]),
        ({"rows": [4, 9], "filter": [["id", "!=", 4]]}, 1, [5]),
        ({"limit": 2}, 3, [0, 1]),
    ],
    ids=["rows", "fewer rows than asked for", "rows after a limit", "rows after a filter", "a limit"],
)
def test_a_preview_asks_the_first_of_the_rows_that_the_job_would_ask(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    source: dict[str, Any],
    limit: int,
    numbers: list[int],
) -> None:
    """So many of the rows that are left of the source by filter, limit and rows, and no others."""
    source = {"path": str(tmp_path / "in.parquet"), **source}
    with FakeEndpoint() as endpoint:
        job = written(tmp_path, endpoint, source=source)
        assert main(["run", job, "--limit", str(limit), "--quiet"]) == 0
    said = capsys.readouterr().out
    assert [number for number in range(10) if f"about the number {number}." in said] == numbers


def test_a_preview_knows_how_many_rows_it_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that its progress can say how long they will take."""
    totals = []
    monkeypatch.setattr(Display, "__call__", lambda _self, progress: totals.append(progress.total))
    source = {"path": str(tmp_path / "in.parquet"), "rows": [4, 9]}
    with FakeEndpoint(latency=0.6) as endpoint:
        assert main(["run", written(tmp_path, endpoint, source=source), "--limit", "3"]) == 0
    assert set(totals) == {3}


def test_a_preview_of_a_narrowed_refresh_asks_only_the_rows_that_the_job_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of ten stored answers two were cut; only those are asked again."""
    with FakeEndpoint() as endpoint:
        endpoint.script(
            lambda request, _attempt: (
                "length" if "number 1." in str(request) or "number 4." in str(request) else None
            )
        )
        assert main(["run", written(tmp_path, endpoint), "--limit", "10", "--quiet"]) == 0
        endpoint.script(None)
        store = {"url": f"sqlite:///{tmp_path / 'store.db'}", "mode": "refresh", "refresh": ["truncated"]}
        before = endpoint.stats().requests
        assert main(["run", written(tmp_path, endpoint, store=store), "--limit", "10", "--quiet"]) == 0
        assert endpoint.stats().requests - before == 2
    assert "asked 2, from the store 8" in capsys.readouterr().out


def test_a_preview_is_given_as_json(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Standard output is the summary of the report, and nothing else."""
    with FakeEndpoint() as endpoint:
        assert main(["run", written(tmp_path, endpoint), "--limit", "3", "--quiet", "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["rows"] == 3
