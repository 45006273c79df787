"""`corpusmill report` and `corpusmill failures`: what a run left, found again."""

from __future__ import annotations

import json
import webbrowser
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill import Ask, FailurePolicy, OpenAICompatible, RetryPolicy, enrich
from corpusmill.cli import main
from corpusmill.errors import TooManyFailuresError
from corpusmill.testing import FakeEndpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def run(folder: Path, sink: Path, *, max_failed: float = 1.0) -> None:
    """Run a job whose rows 3 and 7 are larger than the model's context."""

    def fault(request: Mapping[str, object], _attempt: int) -> str | None:
        text = str(request["messages"])
        return "overflow" if "number 3 " in text or "number 7 " in text else None

    pq.write_table(
        pa.table({"text": [f"Text number {number} <b>bold</b>" for number in range(10)]}),
        folder / "in.parquet",
    )
    with FakeEndpoint() as endpoint:
        endpoint.script(fault)
        enrich(
            folder / "in.parquet",
            sink,
            Ask("Topic of {text}", into="topic"),
            endpoint=OpenAICompatible(endpoint.base_url, "any"),
            store=f"sqlite:///{folder / 'store.db'}",
            retry=RetryPolicy(attempts=1),
            failures=FailurePolicy(max_failed=max_failed),
        )


@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_report_prints_the_path_of_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """The page of the run lies beside its output, a folder or a single file, and tells its rows."""
    run(tmp_path, tmp_path / name)
    assert main(["report", str(tmp_path / name)]) == 0
    page = capsys.readouterr().out.strip()
    assert page.endswith("report.html")
    with open(page, encoding="utf-8") as file:  # noqa: PTH123 - the very text that a shell would take
        assert "Text number 0 &lt;b&gt;bold&lt;/b&gt;" in file.read()


def test_report_opens_the_page_in_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--open` the browser gets a URL of the file."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    run(tmp_path, tmp_path / "out")
    assert main(["report", str(tmp_path / "out"), "--open"]) == 0
    assert opened == [(tmp_path / "out" / "_corpusmill" / "report.html").as_uri()]


def test_failures_are_listed_by_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line a cause, with the number of rows and which."""
    run(tmp_path, tmp_path / "out")
    assert main(["failures", str(tmp_path / "out")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 failed rows" in said
    assert "3, 7" in said


def test_failures_are_given_as_json(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Every failed row with its cause, and nothing else on standard output."""
    run(tmp_path, tmp_path / "out")
    capfdbinary.readouterr()  # the log of the run, wherever another test has sent logs to
    assert main(["failures", str(tmp_path / "out"), "--json"]) == 0
    failures = json.loads(capfdbinary.readouterr().out)
    assert sorted(failure["row"] for failure in failures) == [3, 7]
    assert {failure["status"] for failure in failures} == {"failed"}


def test_failures_of_a_run_that_committed_nothing_are_found_beside_its_sink(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list of a run with too many failures is read where that run wrote it."""
    with pytest.raises(TooManyFailuresError):
        run(tmp_path, tmp_path / "out", max_failed=0.1)
    assert main(["failures", str(tmp_path / "out")]) == 0
    assert "2 failed rows" in capsys.readouterr().out


def test_a_run_that_commits_makes_an_older_list_beside_the_sink_obsolete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a refused run and a good one, failures are those of the good one."""
    with pytest.raises(TooManyFailuresError):
        run(tmp_path, tmp_path / "out", max_failed=0.1)
    pq.write_table(pa.table({"text": ["short"]}), tmp_path / "short.parquet")
    with FakeEndpoint() as endpoint:
        enrich(
            tmp_path / "short.parquet",
            tmp_path / "out",
            Ask("Topic of {text}", into="topic"),
            endpoint=OpenAICompatible(endpoint.base_url, "any"),
            store=f"sqlite:///{tmp_path / 'store.db'}",
        )
    assert main(["failures", str(tmp_path / "out")]) == 0
    assert "no row of" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["report", "failures"])
def test_where_no_run_has_finished_nothing_is_made_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """A place without an output is an error that says so, with the exit code of wrong usage."""
    assert main([command, str(tmp_path / "nowhere")]) == 2
    assert "no run of corpusmill has finished there" in capsys.readouterr().err
