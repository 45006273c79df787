"""What a job file says is shown without its secrets: by key, in headers, in URLs, beside references."""

from __future__ import annotations

import json
from typing import Any

import pytest

from corpusmill.endpoints.endpoint import masked_url, shown_url
from corpusmill.job import parse_job
from corpusmill.job.masking import masked

JOB = """
source: s3://AKIAKEY:canary-source@bucket/in.parquet
sink: out
prompts:
  - ask: {template: "Topic of {text}", into: topic, max_tokens: 400, extra: {session_token: canary-extra}}
endpoint:
  openai_compatible:
    base_url: https://host.invalid/v1?api-key=canary-query
    model: any
    api_key: canary-key${X}
    headers: {X-Anything: canary-header, Authorization: "Bearer ${X}"}
store: postgresql://user:canary-store@host.invalid/db?password=canary-option
"""


def test_no_literal_secret_of_a_job_is_in_what_is_written_of_it() -> None:
    """Whatever the report holds of the job file, no secret is among it; what is no secret is."""
    job = parse_job(JOB, environment={"X": "canary-environment"})
    written = job.written
    for said in (json.dumps(written), repr(job)):
        assert "canary" not in said
        assert "AKIAKEY" not in said
        assert "Topic of {text}" in said
    assert written["prompts"][0]["ask"]["max_tokens"] == 400
    assert written["store"] == "postgresql://***@host.invalid/db?password=***"
    asked = written["endpoint"]["openai_compatible"]
    assert asked["base_url"] == "https://host.invalid/v1?api-key=***"
    assert asked["api_key"] == "***${X}"
    assert asked["headers"] == {"X-Anything": "***", "Authorization": "Bearer ${X}"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"api_key": "${KEY}"}, {"api_key": "${KEY}"}),
        ({"api_key": "sk-live${X}"}, {"api_key": "***${X}"}),
        ({"api_key": "${A}${B}"}, {"api_key": "${A}${B}"}),
        ({"api_key": "${A}-literal-${B}"}, {"api_key": "${A}***${B}"}),
        ({"api_key": "${not a name}"}, {"api_key": "***"}),
        ({"api_key": "$${LITERAL}"}, {"api_key": "***"}),
        ({"api_key": 12345678}, {"api_key": "***"}),
        ({"api_key": None, "secrets": True}, {"api_key": None, "secrets": True}),
        ({"model": "prefix${NAME}"}, {"model": "prefix${NAME}"}),
        ({"passwords": ["one", "${TWO}"]}, {"passwords": ["***", "${TWO}"]}),
        ({"headers": {"a": {"b": "c"}}}, {"headers": {"a": {"b": "***"}}}),
        ({"max_tokens": 4, "context_tokens": 5}, {"max_tokens": 4, "context_tokens": 5}),
        (
            {"schema": {"properties": {"token": {"type": "string"}}}},
            {"schema": {"properties": {"token": {"type": "string"}}}},
        ),
        ({1: "no text for a key"}, {1: "no text for a key"}),
        (["see https://me:pw@host/a?b=c and go"], ["see https://***@host/a?b=*** and go"]),
    ],
)
def test_a_literal_that_may_be_a_secret_becomes_stars(value: Any, shown: Any) -> None:
    """A reference stays beside it, and so does everything that carries no secret."""
    assert masked(value) == shown


@pytest.mark.parametrize(
    ("url", "shown", "starred"),
    [
        ("https://h/v1?version=1&key=${K}#x", "https://h/v1", "https://h/v1?version=***&key=${K}#***"),
        ("postgresql://u:pw@h:5432/db", "postgresql://h:5432/db", "postgresql://***@h:5432/db"),
        ("postgresql://u:p/w?x@h/db?password=z", "postgresql://h/db", "postgresql://***@h/db?password=***"),
        ("postgresql://${U}:${P}@h/db", "postgresql://h/db", "postgresql://${U}:${P}@h/db"),
        ("postgresql://u:${P}@h/db", "postgresql://h/db", "postgresql://***@h/db"),
        ("sqlite:////home/me@work/store.db", "sqlite:////home/me@work/store.db", None),
        ("http://h:80/v1?mail=a@b", "http://h:80/v1", "http://h:80/v1?mail=***"),
        ("http://[::1]:8000/v1?secret", "http://[::1]:8000/v1", "http://[::1]:8000/v1?***"),
        ("h/v1?key=a", "h/v1", "h/v1?key=***"),
    ],
)
def test_a_url_is_shown_without_what_may_be_a_secret(url: str, shown: str, starred: str | None) -> None:
    """User info and query go, also where a password was not escaped; host, port and path stay."""
    assert shown_url(url) == shown
    assert masked_url(url) == (starred or url)
