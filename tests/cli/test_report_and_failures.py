"""`corpusmill report` and `corpusmill failures`: what a run left, found again."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill import Ask, FailurePolicy, OpenAICompatible, RetryPolicy, enrich, read
from corpusmill.cli import main
from corpusmill.errors import TooManyFailuresError
from corpusmill.testing import FakeEndpoint

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    assert "rows without a usable answer: 2" in said
    assert "3, 7" in said
    assert "under the endpoint, context_tokens: 65536." in said


def test_messages_that_differ_in_numbers_alone_are_one_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that writes the size of each request into its refusal refuses for one cause; a status is another.

    What it writes into all of them alike is told.
    """
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "_corpusmill").mkdir()
    said = [
        "HTTP 400: 4,012 tokens (id r-1f)",
        "HTTP 400: 517 tokens (id r-2e)",
        "HTTP 502: 517 tokens (id r-2e)",
        "HTTP 413: at most 512, got 600 from …",
        "HTTP 413: at most 512, got 700 from …",
        "HTTP 413: at most 512, got 800 from …",
    ]
    failures = ({"row": row, "into": "a", "status": "failed", "error": text} for row, text in enumerate(said))
    lines = "".join(json.dumps(failure) + "\n" for failure in failures)
    (tmp_path / "_corpusmill" / "failures.jsonl").write_text(lines)
    assert main(["failures", str(tmp_path)]) == 0
    table = capsys.readouterr().out
    assert "0, 1" in table
    assert "HTTP 502: 517 tokens (id r-2e)" in table
    assert "HTTP 400: … tokens (id r-…)" in table
    assert "HTTP 413: at most 512, got … from …" in table


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
    said = capsys.readouterr().out
    assert "rows without a usable answer: 2" in said
    assert "under the endpoint, context_tokens: 65536." in said


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


def job_in(folder: Path, base_url: str, **changes: object) -> str:
    """Write a corpus of ten rows and a job for it."""
    pq.write_table(
        pa.table({"text": [f"Text number {number}" for number in range(10)]}), folder / "in.parquet"
    )
    content = {
        "source": str(folder / "in.parquet"),
        "sink": str(folder / "out"),
        "prompts": [{"ask": {"template": "Topic of {text}", "into": "topic"}}],
        "endpoint": {"openai_compatible": {"base_url": base_url, "model": "any"}},
        "store": f"sqlite:///{folder / 'store.db'}",
        "limits": {"concurrency": 1},
        **changes,
    }
    (folder / "job.json").write_text(json.dumps(content), "utf-8")
    return str(folder / "job.json")


def page_of(out: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Ask where the report of an output lies."""
    capsys.readouterr()
    assert main(["report", str(out)]) == 0
    return Path(capsys.readouterr().out.strip())


def test_a_run_that_ends_early_says_how_to_see_what_was_done_until_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the line of the error; the page has the counts and the error, until a run commits."""
    numbers = itertools.count()
    with FakeEndpoint() as endpoint:
        endpoint.script(lambda _request, _attempt: "401" if next(numbers) == 6 else None)
        job = job_in(tmp_path, endpoint.base_url)
        assert main(["run", job, "--quiet"]) == 1
        (said,) = capsys.readouterr().err.splitlines()
        assert f"; {tmp_path / 'out.failed.report.html'} shows what was done until then" in said
        page = page_of(tmp_path / "out", capsys)
        assert page == tmp_path / "out.failed.report.html"
        text = page.read_text("utf-8")
        assert "ended early, nothing committed" in text
        assert "6 rows in" in text
        assert "7 attempts" in text
        found = json.loads((tmp_path / "out.failed.report.json").read_bytes())
        assert (found["rows"], found["outcomes"], found["live"]) == (6, {"completed": 6}, 6)
        assert [sample["row"] for sample in found["samples"]] == list(range(6))
        assert "401" in text
        assert not (tmp_path / "out").exists()
        assert main(["run", job, "--quiet"]) == 0
    assert page_of(tmp_path / "out", capsys) == tmp_path / "out" / "_corpusmill" / "report.html"
    assert not page.exists()


def test_the_report_of_a_run_that_did_not_get_to_overwrite_goes_before_that_of_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the younger one; the output and its own report stay as they are."""
    with FakeEndpoint() as endpoint:
        assert main(["run", job_in(tmp_path, endpoint.base_url), "--quiet"]) == 0
        inside = page_of(tmp_path / "out", capsys)
        before = inside.read_bytes()
        other = job_in(
            tmp_path, endpoint.base_url, prompts=[{"ask": {"template": "Say {text}", "into": "said"}}]
        )
        endpoint.script(lambda _request, _attempt: "401")
        assert main(["run", other, "--overwrite", "--quiet"]) == 1
        assert page_of(tmp_path / "out", capsys) == tmp_path / "out.failed.report.html"
        assert inside.read_bytes() == before
        assert read(tmp_path / "out").schema.names == ["text", "topic", "topic_outcome"]
        endpoint.script(None)
        assert main(["run", other, "--overwrite", "--quiet"]) == 0
    assert page_of(tmp_path / "out", capsys) == inside
    assert inside.read_bytes() != before


def test_the_report_of_a_partition_lies_where_the_run_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The path of the partition's folder is enough, and readers of the other partitions pass over the page."""
    sink = {"path": str(tmp_path / "all of it"), "partition": {"lang": "lv"}}
    with FakeEndpoint(faults={"401": 1.0}) as endpoint:
        assert main(["run", job_in(tmp_path, endpoint.base_url, sink=sink), "--quiet"]) == 1
    page = tmp_path / "all of it" / "_lang=lv.failed.report.html"
    assert f"; {page} shows what was done" in capsys.readouterr().err
    assert page_of(tmp_path / "all of it" / "lang=lv", capsys) == page


def test_an_interrupted_run_says_how_to_see_what_was_done_and_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both stand in the one line, the command that goes on last."""
    numbers = itertools.count()

    def interrupt(_request: object, _attempt: int) -> None:
        if next(numbers) == 4:
            os.kill(os.getpid(), signal.SIGINT)

    with FakeEndpoint() as endpoint:
        endpoint.script(interrupt)
        job = job_in(tmp_path, endpoint.base_url)
        assert main(["run", job, "--quiet"]) == 130
    said = capsys.readouterr().err.splitlines()[-1]
    see = f"; {tmp_path / 'out.failed.report.html'} shows what was done until then. "
    assert said.endswith(f"{see}Go on with: corpusmill run {job}")
    assert page_of(tmp_path / "out", capsys) == tmp_path / "out.failed.report.html"


def test_a_run_with_too_many_failures_names_the_command_that_lists_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The very command works, also where the output is one partition of a folder."""
    sink = {"path": str(tmp_path / "all of it"), "partition": {"lang": "lv"}}
    with FakeEndpoint() as endpoint:
        endpoint.script(lambda request, _attempt: "400" if "number 3" in str(request) else None)
        job = job_in(tmp_path, endpoint.base_url, sink=sink, failures={"max_failed": 0})
        assert main(["run", job, "--quiet"]) == 1
    named = re.search(r"; (corpusmill failures .*) lists the rows that failed", capsys.readouterr().err)
    assert named is not None
    _, *arguments = shlex.split(named[1])
    assert main(arguments) == 0
    assert "rows without a usable answer: 1" in capsys.readouterr().out
    assert main(["failures", str(tmp_path / "all of it")]) == 2
    assert f"it holds partitions, and those of a partition are listed by its name: {named[1]}" in (
        capsys.readouterr().err
    )


def test_a_run_that_ended_early_has_no_list_and_its_report_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody reads that no run has finished, where one has ended and left something to read."""
    with FakeEndpoint(faults={"401": 1.0}) as endpoint:
        assert main(["run", job_in(tmp_path, endpoint.base_url), "--quiet"]) == 1
    capsys.readouterr()
    assert main(["failures", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert f"ended before its last row; corpusmill report {tmp_path / 'out'} shows what had failed" in said


@pytest.mark.parametrize("command", ["report", "failures"])
def test_where_no_run_has_finished_nothing_is_made_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """A place without an output is an error that says so, with the exit code of wrong usage."""
    assert main([command, str(tmp_path / "nowhere")]) == 2
    assert "no run of corpusmill has finished there" in capsys.readouterr().err
