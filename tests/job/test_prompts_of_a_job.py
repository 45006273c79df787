"""Prompts of a job file: each reads what its class takes, by the names that a user writes."""

from __future__ import annotations

import pytest

from corpusmill.errors import JobError
from corpusmill.job import Job, parse_job


def job(prompt: str) -> Job:
    """A job with one prompt."""
    return parse_job(
        "source: corpus.parquet\nsink: out\nprompts:\n"
        f"  - {prompt}\n"
        "endpoint: {openai_compatible: {base_url: 'http://127.0.0.1:8/v1', model: any}}\n",
        environment={},
    )


@pytest.mark.parametrize(
    ("prompt", "content"),
    [
        (
            "translate: {column: text, into: lv, from: no, to: Latvian, register: formal}",
            {"prompt": "translate", "from": "no", "to": "lv", "register": "formal"},
        ),
        (
            "summarise: {column: text, into: short, length: 50, language: lv}",
            {"prompt": "summarise", "length": "at most 50 words", "language": "lv"},
        ),
        (
            "summarise: {column: text, into: short, length: three sentences}",
            {"prompt": "summarise", "length": "three sentences"},
        ),
        (
            "answer: {question: What is it?, context: {column: text}, into: what}",
            {"prompt": "answer", "question": "What is it?", "context": {"column": "text"}},
        ),
        (
            "extract: {column: text, into: data, schema: {type: object, properties: {year: {type: integer}}}}",
            {
                "prompt": "extract",
                "json_schema": {"type": "object", "properties": {"year": {"type": "integer"}}},
            },
        ),
        ("ask: {template: 'Topic of {text}', into: topic}", {"prompt": "ask", "template": "Topic of {text}"}),
    ],
)
def test_a_prompt_of_a_job_file_is_the_prompt_of_its_class(prompt: str, content: dict[str, object]) -> None:
    """Every field that is written, also under a name that Python cannot use, is part of the content."""
    (built,) = job(prompt).prompts
    assert content.items() <= dict(built.content()).items()


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("translate: {column: text, into: lv, frm: en, to: lv}", "'frm'.*did you mean 'from'"),
        ("translate: {column: text, into: lv, to: Klingonish}", "translate.to is 'Klingonish'.*Klingon"),
        ("summarize: {column: text, into: short}", "did you mean 'summarise'"),
        ("extract: {column: text, into: data}", "'schema' is missing"),
        ("answer: {question: a, context: b, into: c}", "name a column"),
    ],
)
def test_what_is_wrong_with_a_prompt_is_named_with_its_line(prompt: str, words: str) -> None:
    """The message names the line and the key, and the nearest right one."""
    with pytest.raises(JobError, match=rf"^job:4: .*{words}"):
        job(prompt)
