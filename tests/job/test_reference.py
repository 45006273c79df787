"""The reference of the job file: complete, and the one that lies in the documentation."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from corpusmill import Ask
from corpusmill.cli import main
from corpusmill.job import job_schema, parse_job
from corpusmill.job.reference import COLUMNS, INTRODUCTION, reference
from corpusmill.rows.render import Renderer
from corpusmill.tables.filters import OPERATORS
from corpusmill.tables.layout import layout_of

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "job-file.md"


def test_the_page_of_the_documentation_is_current() -> None:
    """It is what the schema gives now: `corpusmill schema --markdown > docs/job-file.md` writes it again."""
    assert PAGE.read_text("utf-8") == reference(job_schema())


def test_every_key_of_the_schema_is_told_with_its_meaning() -> None:
    """Each key of each model has a row, and no row is without a meaning."""
    page = reference(job_schema())
    keys = {key for model in job_schema()["$defs"].values() for key in model.get("properties", ())}
    rows = re.findall(r"^\| `(\w+)` \|.*\| ?(.*?) \|$", page, re.MULTILINE)
    told = {key for key, _ in rows} | set(
        re.findall(r"`(\w+)`", " ".join(re.findall(r"^Keys: .*$", page, re.MULTILINE)))
    )
    assert keys <= told
    assert [key for key, meaning in rows if not meaning.strip()] == []


def test_what_is_said_to_stand_below_stands_there() -> None:
    """A key whose mapping is `see below` has a section; one that takes the keys of another names its section."""
    page = reference(job_schema())
    headings = re.findall(r"^#+ `(\w+)`$", page, re.MULTILINE)
    assert set(re.findall(r"^\| `(\w+)` \|[^|]*see below", page, re.MULTILINE)) <= set(headings)
    elsewhere = re.findall(r"^\| `(\w+)` \| mapping with the keys of `(\w+)` \|", page, re.MULTILINE)
    assert elsewhere == [("real_time", "sagemaker")]
    assert "sagemaker" in headings


def test_the_page_names_the_operators_that_a_filter_knows() -> None:
    """All of them, and none besides."""
    (told,) = re.findall(r"; op is (.*?) \|$", reference(job_schema()), re.MULTILINE)
    assert re.split(r", | or ", re.sub(r" \([^)]*\)", "", told)) == list(OPERATORS)


def test_the_page_says_where_the_sidecars_of_a_single_file_lie() -> None:
    """The folder that it names is the one that is written."""
    assert f"`{layout_of('out.parquet', None).sidecars.shown}/`" in reference(job_schema())


def test_the_example_of_the_page_is_a_job() -> None:
    """What a reader copies can be read."""
    (example,) = re.findall(r"```yaml\n(.*?)```", INTRODUCTION, re.DOTALL)
    assert parse_job(example, environment={}).prompts[0].into == "text_lv"


def test_the_endpoints_that_the_page_about_sagemaker_shows_are_read() -> None:
    """In real time, and by transform jobs with a rest in real time."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.with_name("sagemaker.md").read_text("utf-8"), re.DOTALL)
    job = "source: a\nsink: b\nprompts: [{translate: {column: text, into: lv, to: lv}}]\n"
    kinds = [type(parse_job(job + block, environment={}).endpoint).__name__ for block in blocks]
    assert kinds == ["SageMakerEndpoint", "SageMakerTransform"]


def test_the_command_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """`corpusmill schema --markdown` is how the page is made."""
    assert main(["schema", "--markdown"]) == 0
    assert capsys.readouterr().out == PAGE.read_text("utf-8")


def said(prompt: Ask, **row: object) -> str:
    """Give the user message that a row is asked."""
    asked = Renderer(prompt, identity="i").ask(pa.RecordBatch.from_pylist([row]))
    return str(asked.rendered(0).messages[-1]["content"])


def test_the_texts_of_other_columns_are_those_of_the_page() -> None:
    """Each text that it shows is what a template makes of such a value."""
    values = [
        42,
        Decimal("19.90"),
        0.1,
        True,
        date(2026, 11, 30),
        time(14, 5),
        datetime(2026, 11, 30, 14, 5, 0, 250_000),  # noqa: DTZ001 - one without a zone
        datetime(2026, 11, 30, 14, 5, tzinfo=timezone(timedelta(hours=2))),
    ]
    (shown,) = re.findall(r"so does `vary_by`: (.*?)\. A whole float", COLUMNS, re.DOTALL)
    assert [said(Ask("{it}", "x"), it=value) for value in values] == re.findall("`([^`]+)`", shown)


def test_the_template_of_the_page_names_the_columns_that_it_shows() -> None:
    """A name alone, and one that braces alone do not take."""
    (written,) = re.findall(r"```python\n(.*?)```", COLUMNS, re.DOTALL)
    prompt = eval(written, {"Ask": Ask})  # noqa: S307 - our own page
    assert said(prompt, title="A", **{"Text Body (orig.)": "B"}) == "Title: A. Name the topic of: B"
    assert prompt.into == "theme"
