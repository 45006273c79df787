"""The page of a report: complete, self-contained, and deaf to whatever the corpus and the model say."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import threading
from dataclasses import replace
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import msgspec
import pytest

from corpusmill.page import render
from corpusmill.page.sections import rates
from corpusmill.report import LATENCY_BOUNDS, Moment, PromptReport, RunReport, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def report(text: str = "Sveika, pasaule!") -> RunReport:
    """A report in which every field is filled, `text` wherever a corpus, a model or a server may put text."""
    sample = Sample(
        row=3,
        into=text,
        inputs={text: text},
        output=text,
        status="completed",
        seconds=0.25,
        attempts=2,
        notes=(text,),
    )
    prompt = PromptReport(
        into=text,
        outcomes={"completed": 7, "failed": 2, "skipped": 1},
        live=5,
        cached=2,
        skipped=1,
        unanswered=2,
        notes={text: 1},
        errors={text: 2},
    )
    return RunReport(
        rows=10,
        outcomes={"completed": 7, "failed": 2, "skipped": 1},
        live=5,
        cached=2,
        deduplicated=0,
        skipped=1,
        unanswered=2,
        attempts=8,
        possibly_paid_twice=1,
        prompt_tokens=1_234,
        completion_tokens=567,
        cost=0.0123,
        seconds=2.0,
        output=text,
        skipped_run=False,
        run_key="ab" * 20,
        model=text,
        endpoint=text,
        prompts=[prompt],
        retries={text: 1},
        rate_limited=1,
        changed_types=[text],
        warnings=[text],
        latency=[0] * 15 + [4, 1] + [0] * (len(LATENCY_BOUNDS) - 16),
        timeline=[
            Moment(seconds=0.25 * step, rows=step, live=step, in_flight=4, rate_limited=0)
            for step in range(8)
        ],
        samples=[sample],
        slowest=[sample],
        failures=[replace(sample, status="failed", error=text, output=None)],
        job={text: [text], "endpoint": {"openai_compatible": {"api_key": "***"}}},
    )


class Elements(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes.update(name for name, _ in attrs)


def test_every_part_of_a_report_is_told() -> None:
    """Counts, tokens, cost, charts, causes, rows and the job are all there."""
    page = render(report())
    for said in (
        "10 rows in 2.0 s",
        "1,801",
        "$0.0123",
        "half within",
        "Tried again",
        "Slowest rows",
        "***",
        "ab" * 20,
    ):
        assert said in page
    assert page.count("<svg") > 4
    assert page.count("Sveika, pasaule!") > 15


def test_a_report_read_back_from_json_gives_the_same_page() -> None:
    """`report.json` is enough to make the page again."""
    made = report()
    assert render(msgspec.json.decode(msgspec.json.encode(made.as_dict()))) == render(made)


def test_a_report_of_nothing_is_a_page_too() -> None:
    """A skipped run, and a summary without details, are shown as far as they go."""
    assert "nothing to do" in render({"skipped_run": True, "rows": 5, "output": "out"})
    assert "0 rows" in render({})


def test_a_run_that_committed_nothing_is_not_called_done() -> None:
    """The verdict says so, and what ended the run comes first of what there is to know."""
    page = render({"rows": 5, "ended": "a <wrong> key", "warnings": ["cut"]})
    assert "ended early, nothing committed" in page
    assert ">done" not in page
    assert page.index("a &lt;wrong&gt; key") < page.index("cut")


def test_rows_that_were_cut_are_not_called_done() -> None:
    """The verdict counts what the lists below it show, not only what has failed."""
    cut = PromptReport(into="lv", outcomes={"completed": 9, "truncated": 1}, live=10, errors={"truncated": 1})
    page = render(replace(report(), outcomes=cut.outcomes, prompts=[cut]))
    assert "done, 1 without a usable answer" in page


def test_the_page_may_load_and_run_nothing() -> None:
    """The policy allows the one style sheet by its hash; there is no script, link, image, form or style attribute."""
    page = render(report())
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src &#x27;none&#x27;; style-src &#x27;sha256-{digest}&#x27;" in page
    assert page.index("Content-Security-Policy") < page.index("<style>")
    assert "url(" not in style
    assert "@import" not in style
    found = Elements(page)
    assert found.names.isdisjoint({"script", "link", "img", "iframe", "form", "a", "object", "base"})
    assert found.attributes.isdisjoint({"style", "src", "href", "srcset", "action"})


def hostile(url: str) -> str:
    """A text that tries to run, to load from `url`, to leave its element and to turn the text around it."""
    return (
        f"</style></title></pre></textarea><script>fetch('{url}/script')</script>"
        f"<img src={url}/img onerror=\"fetch('{url}/error')\"><svg onload=fetch('{url}/svg')>"
        f"<style>@import '{url}/css';body{{background:url({url}/background)}}</style>"
        f"<iframe src='{url}/frame'></iframe><link rel=stylesheet href={url}/link>"
        f"<meta http-equiv=refresh content='0;url={url}/refresh'><base href={url}>"
        f'" onmouseover="fetch(\'{url}/over\')" x=" \u202e\u2066 \x1b[2J -->]]> {{{{7*7}}}} ${{7*7}}'
    )


def test_hostile_text_adds_no_element_and_no_attribute() -> None:
    """A page of hostile texts has the elements and attributes of a page of harmless ones."""
    calm, wild = Elements(render(report())), Elements(render(report(hostile("http://127.0.0.1:9"))))
    assert wild.names == calm.names
    assert wild.attributes == calm.attributes


class Witness(ThreadingHTTPServer):
    """A server on loopback that notes who came."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Noting)
        self.url = f"http://127.0.0.1:{self.server_port}"


class Noting(BaseHTTPRequestHandler):
    server: Witness

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def witness() -> Iterator[Witness]:
    """A server that hears of every request that leaves a page."""
    server = Witness()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def shown_by_chromium(page: str, folder: Path) -> str:
    """Open a page in Chromium, give it time of its own, and return the document as it is then."""
    file = folder / "page.html"
    file.write_text(page, "utf-8")
    child = subprocess.run(
        [
            "chromium",
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={folder / 'profile'}",
            "--virtual-time-budget=2000",
            "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return child.stdout


@pytest.mark.needs_system("chromium")
def test_chromium_shows_hostile_text_runs_none_of_it_and_asks_nobody(
    tmp_path: Path, witness: Witness
) -> None:
    """The same text in a careless page runs and loads; in ours it is read, and no request leaves."""
    text = hostile(witness.url)
    shown_by_chromium(f"<!doctype html><title>careless</title><p>{text.partition('<meta')[0]}", tmp_path)
    assert {"/script", "/img"} <= set(witness.asked)
    witness.asked.clear()
    document = shown_by_chromium(render(report(text)), tmp_path)
    assert "10 rows in 2.0 s" in document
    assert "&lt;script&gt;fetch(" in document
    assert Elements(document).names.isdisjoint({"script", "img", "iframe", "link", "base"})
    assert witness.asked == []


@pytest.mark.needs_system("chromium")
def test_a_chart_that_stands_alone_is_no_larger_than_one_among_others(tmp_path: Path) -> None:
    """Nor are its letters."""
    measure = (
        "<script>document.title = document.querySelector('.card > svg:not(.stack) text').getBoundingClientRect()"
        ".height.toFixed(2)</script>"
    )

    def height(shown: RunReport) -> float:
        page = render(shown)
        assert page.count('class="column"') > 0
        document = shown_by_chromium(page.replace("Content-Security-Policy", "x") + measure, tmp_path)
        return float(document.partition("<title>")[2].partition("<")[0])

    among_others = replace(report("a"), rate_limited=0)
    assert height(replace(among_others, timeline=[])) == height(among_others) < 18


def test_a_rate_over_time_adds_up_to_the_total() -> None:
    """However uneven the moments, the rates times their widths give what was done."""
    moments = [
        {"seconds": second, "live": live}
        for second, live in ((0, 0), (0.3, 2), (1.7, 30), (2.0, 31), (4.0, 40))
    ]
    found = rates(moments, "live")
    assert sum(value for _, value in found) * 4.0 / len(found) == pytest.approx(40)
