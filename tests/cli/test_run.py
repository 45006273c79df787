"""What `corpusmill run` says when it ends: done, up to date, interrupted, and by whose prices."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill import Ask, OpenAICompatible, RunReport, enrich
from corpusmill.cli import main
from corpusmill.cli.run import _how_to_go_on, told
from corpusmill.endpoints.prices import known_prices
from corpusmill.page import render
from corpusmill.report import PromptReport, Sample

if TYPE_CHECKING:
    from corpusmill.testing import FakeEndpoint

URL = "https://api.openai.com/v1"

REPORT = RunReport(
    rows=20,
    outcomes={"completed": 18, "skipped": 2},
    live=10,
    cached=7,
    deduplicated=1,
    skipped=2,
    unanswered=0,
    attempts=12,
    possibly_paid_twice=3,
    prompt_tokens=1_000,
    completion_tokens=500,
    cost=0.25,
    seconds=75.0,
    output="out",
    skipped_run=False,
    answers=11,
    prices="the job",
)


async def answer(request: httpx.Request) -> httpx.Response:
    """Answer every question alike, as a paid service would."""
    asked = json.loads(request.content)
    choice = {"index": 0, "message": {"role": "assistant", "content": "numbers"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1_000, "completion_tokens": 100, "total_tokens": 1_100}
    return httpx.Response(200, json={"model": asked["model"], "choices": [choice], "usage": usage})


def run(folder: Path, **options: Any) -> RunReport:
    """Ask ten rows of a service that the public price list knows."""
    return enrich(
        pa.table({"text": [f"text {number}" for number in range(10)]}),
        folder / "out",
        Ask("Topic of {text}", into="topic"),
        endpoint=OpenAICompatible(URL, "gpt-4o", api_key="k" * 8),
        store=f"sqlite:///{folder / 'store.db'}",
        transport=httpx.MockTransport(answer),
        **options,
    )


def test_without_stated_prices_the_cost_is_by_the_list_and_says_so(tmp_path: Path) -> None:
    """The report, its page and the last lines name the list, because an invoice may know better."""
    listed = known_prices(URL, "gpt-4o")
    assert listed is not None
    report = run(tmp_path)
    assert report.cost == pytest.approx(listed.cost(10_000, 1_000))
    assert report.prices == listed.origin
    assert Path(told(report).rpartition("report: ")[2]).read_text("utf-8") == render(report)
    assert f"by {listed.origin}" in told(report)
    assert f"by {listed.origin}" in render(report)


def test_stated_prices_are_taken_and_need_no_word(tmp_path: Path) -> None:
    """What the user said goes before any list."""
    report = run(tmp_path, prices=(1.0, 10.0))
    assert report.cost == pytest.approx(0.02)
    assert "by the job" not in told(report) + render(report)


def test_where_no_price_is_known_the_page_says_what_to_do() -> None:
    """The price of a server of one's own is not guessed."""
    assert known_prices("http://localhost:8000/v1", "gpt-4o") is None
    assert "the job may state prices" in render(replace(REPORT, cost=None, prices=None))


def test_what_a_run_did_is_told_in_counts_that_add_up() -> None:
    """Rows by status, rows by origin, answers, tokens, cost, what may have been paid twice, where the output is."""
    assert told(REPORT).splitlines() == [
        "20 rows in 1 min 15 s: 18 completed, 2 skipped",
        "asked 10, from the store 7, same as another row 1, blank 2, without an answer 0",
        "12 attempts, 11 answers, 1,000 tokens in and 500 out, $0.2500",
        "at most 3 requests may have been paid twice",
        "output: out, report: out/_corpusmill/report.html",
    ]


def test_what_was_found_in_answers_and_where_the_failures_are_is_told() -> None:
    """Whoever looks at the last lines alone learns that something is to be looked at, and by which command."""
    prompt = PromptReport(
        into="lv",
        outcomes={},
        notes={"untranslated": 1_200, "lines": 3},
        errors={"truncated": 2, "timeout": 1},
    )
    assert told(replace(REPORT, output="my out", prompts=[prompt])).splitlines()[-3:] == [
        "found in answers for lv: lines 3, untranslated 1,200",
        "output: my out, report: my out/_corpusmill/report.html",
        "corpusmill failures 'my out' lists the 3 without a usable answer, by cause",
    ]
    assert "failures" not in told(replace(REPORT, prompts=[prompt]), preview=True)


def test_what_a_notebook_shows_of_a_report_are_its_counts() -> None:
    """Rows of the corpus are in the report, and not on every screen and in every log that it is printed to."""
    row = Sample(row=0, into="lv", inputs={"text": "of the corpus"}, output="an answer", status="completed")
    shown = repr(replace(REPORT, samples=[row], slowest=[row], failures=[row], job={"sink": "of the corpus"}))
    assert "possibly_paid_twice=3" in shown
    assert "of the corpus" not in shown


def test_a_quiet_run_says_nothing_and_its_help_says_so(
    tmp_path: Path, fake_endpoint: FakeEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    """What ends well has nothing to say; whoever wants counts asks for `--json`."""
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "in.parquet")
    asked = ["summarise", str(tmp_path / "in.parquet"), str(tmp_path / "out"), "--column", "text"]
    where = [
        "--base-url",
        fake_endpoint.base_url,
        "--model",
        "any",
        "--store",
        f"sqlite:///{tmp_path / 's.db'}",
    ]
    assert main([*asked, *where]) == 0
    opening = f"asking any at {fake_endpoint.base_url}/chat/completions"
    said = capsys.readouterr().err
    assert said.startswith(f"{opening}: 1 row, new columns: text_summary, output: {tmp_path / 'out'}\n")
    assert main([*asked, *where]) == 0
    assert opening not in capsys.readouterr().err, "there is nothing to do"
    where.append("--overwrite")
    assert main([*asked, *where, "--quiet"]) == 0
    told_quietly = capsys.readouterr()
    assert (told_quietly.out, told_quietly.err) == ("", "")
    assert main([*asked, *where, "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 1
    for command in ("run", "translate", "summarise"):
        assert main([command, "--help"]) == 0
        assert "Show no progress and no summary" in " ".join(capsys.readouterr().out.split())


def test_an_output_that_is_up_to_date_is_told_in_one_line() -> None:
    """Nothing was asked, and it says so."""
    assert told(replace(REPORT, skipped_run=True)).startswith("nothing to do: out is up to date (20 rows)")


def test_an_interrupted_run_tells_the_answers_that_it_kept_and_how_to_go_on() -> None:
    """Answers of rows that were not finished are kept too, so they are counted, though no row has been written."""
    ended = replace(REPORT, rows=0, live=0, answers=7)
    assert _how_to_go_on(ended, "corpusmill run job.yaml", None) == (
        "interrupted: 0 rows were finished, and 7 answers were kept. Go on with: corpusmill run job.yaml"
    )
    assert "nothing was sent" in _how_to_go_on(None, "x", None)
