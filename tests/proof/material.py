"""Rows, and what the fake endpoint answers to them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.proof.harness import TEMPLATE, paragraphs

import corpusmill
from corpusmill.testing import expected_answer, request_digest

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.testing import FakeEndpoint

ASK = corpusmill.Ask(template=TEMPLATE, into="topic")
QUICK = corpusmill.RetryPolicy(backoff=0.01, backoff_max=0.05)
"""A policy that waits for no test."""


def texts(count: int) -> list[str]:
    """Give so many different paragraphs of Python's help."""
    return list(itertools.islice(dict.fromkeys(paragraphs()), count))


def table(count: int) -> pa.Table:
    """Give a table of so many different texts, with their numbers."""
    return pa.table({"id": range(count), "text": texts(count)})


def messages_to(text: str) -> list[dict[str, str]]:
    """Give the messages by which a text is asked about."""
    return [{"role": "user", "content": TEMPLATE.replace("{text}", text)}]


def answer_to(text: str) -> str:
    """Give the answer to a text: no other text has it."""
    return expected_answer(messages_to(text))


def digest_of(text: str) -> str:
    """Give the digest by which the fake endpoint knows the request about a text."""
    return request_digest({"model": "any", "messages": messages_to(text)})


def endpoint_at(endpoint: FakeEndpoint | str, **options: Any) -> corpusmill.OpenAICompatible:
    """Name the endpoint that is asked."""
    base_url = endpoint if isinstance(endpoint, str) else endpoint.base_url
    return corpusmill.OpenAICompatible(base_url, "any", **options)


def store_in(folder: Path) -> str:
    """Name a store in a folder."""
    return f"sqlite:///{folder / 'store.db'}"


def rows_of(sink: Path) -> list[dict[str, Any]]:
    """Read a sink, row by row."""
    return corpusmill.read(sink).to_table().to_pylist()
