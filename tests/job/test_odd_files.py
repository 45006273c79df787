"""Job files that would be read as something else, never end, or end in a traceback: one clear error each."""

from __future__ import annotations

import pytest

from corpusmill.errors import JobError
from corpusmill.job import parse_job

JOB = """\
source: corpus.parquet
sink: out/
prompts:
  - ask: {{template: "Say ${{100}} {{text}}", into: said{prompt}}}
endpoint:
  openai_compatible: {{base_url: "http://127.0.0.1:9/v1", model: any{endpoint}}}
{rest}
"""

BOMB = "x0: &x0 [a, a, a, a, a, a, a, a, a]\n" + "".join(
    f"x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 9)}]\n" for level in range(1, 9)
)


def written(*, prompt: str = "", endpoint: str = "", rest: str = "") -> str:
    """Write a job with something odd in one of three places."""
    return JOB.format(prompt=prompt, endpoint=endpoint, rest=rest)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (written(rest=BOMB), r"job: comes to more than 200,000 items once its anchors"),
        ("[" * 5_000 + "]" * 5_000, r"job: lists and mappings are nested too deeply"),
        (written(prompt=", max_tokens: 1" + "0" * 5_000), r"job: a number cannot be read"),
        (written(rest="limits: {requests_per_minute: .inf}"), r"job:7: limits.requests_per_minute.*finite"),
        (
            written(rest="limits: {concurrency: true}"),
            r"job:7: limits.concurrency: must be a number; true is none",
        ),
        (written(rest="telemetry: yes"), r"job:7: telemetry: must be true or false; 'yes' is a text"),
        (written(rest="retry: {backoff: -1}"), r"job:7: retry.*backoff is -1"),
        (
            written(rest="limits: &l {concurrency: 3}\nretry: {<<: *l}"),
            r"'concurrency' is not known in retry",
        ),
        (
            written(endpoint=", capabilities: {languages: 5}"),
            r"capabilities.languages must be a list of texts",
        ),
        (
            written(endpoint=", api_key: '${NO-NAME}'"),
            r"job:6: endpoint.openai_compatible.api_key has a \$\{",
        ),
    ],
)
def test_an_odd_job_file_is_refused_in_one_line(text: str, message: str) -> None:
    """Bombs, numbers without end, infinity, truth values and broken references."""
    with pytest.raises(JobError, match=message) as refused:
        parse_job(text)
    assert "\n" not in str(refused.value)


def test_a_dollar_in_a_template_is_a_text() -> None:
    """Only a reference to a variable is replaced."""
    assert parse_job(written()).prompts[0].content()["template"] == "Say ${100} {text}"


def test_a_reference_after_two_dollars_is_a_text() -> None:
    """Whether the variable is set or not, and wherever it stands; what a variable holds is no reference."""
    text = written(
        prompt=", system: '$${NAME} ${NAME} $$${NAME} $${NO-NAME} $$'", rest="store: 's$${NAME}.db'"
    )
    text = text.replace("model: any", "model: '$${NOT_SET}'")
    job = parse_job(text, environment={"NAME": "$${n}"})
    assert job.prompts[0].content()["system"] == "${NAME} $${n} $${NAME} $${NO-NAME} $$"
    assert (job.store, job.endpoint.model) == ("s${NAME}.db", "${NOT_SET}")


def test_a_variable_that_is_not_set_may_be_meant_as_text() -> None:
    """In a prompt; elsewhere it is meant as a variable."""
    with pytest.raises(
        JobError, match=r"NAME, which is not set; write \$\$\{NAME\} for the text \$\{NAME\}$"
    ):
        parse_job(written(prompt=", system: '${NAME}'"), environment={})
    with pytest.raises(JobError, match=r"NAME, which is not set$"):
        parse_job(written(rest="store: '${NAME}'"), environment={})


def test_a_store_in_memory_is_refused_when_it_is_opened() -> None:
    """It would keep nothing that was paid for."""
    from corpusmill.errors import UsageError
    from corpusmill.store import open_store

    with pytest.raises(UsageError, match="use the mode off"):
        open_store("sqlite:///:memory:")
