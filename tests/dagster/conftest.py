"""What the tests of the Dagster integration share: one fake endpoint, small corpora, one way to run an asset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.testing import FakeEndpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXTS = {
    "en": ["The sea is calm today.", "Two ships\ncame back.", "", "Who lit the lamp?"],
    "de": ["Das Meer ist heute ruhig.", "Zwei Schiffe kamen zurück."],
}


@pytest.fixture(scope="session")
def server() -> Iterator[FakeEndpoint]:
    """The fake endpoint of all these tests."""
    with FakeEndpoint() as endpoint:
        yield endpoint


@pytest.fixture
def endpoint(server: FakeEndpoint) -> Iterator[FakeEndpoint]:
    """The fake endpoint as new."""
    server.reset()
    yield server
    server.configure(faults=None, limits=None, latency=None)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance that is gone after the test."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A small corpus in two languages, with a day and a number for each row."""
    rows = [
        {"id": number, "lang": lang, "day": f"2026-01-0{1 + number % 2}", "text": text}
        for number, (lang, text) in enumerate((lang, text) for lang, texts in TEXTS.items() for text in texts)
    ]
    path = tmp_path / "corpus.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.fixture
def job(tmp_path: Path, corpus: Path, endpoint: FakeEndpoint) -> dict[str, Any]:
    """The content of a job file that translates the corpus."""
    return {
        "source": str(corpus),
        "sink": str(tmp_path / "translated"),
        "prompts": [{"translate": {"column": "text", "into": "latvian", "to": "lv"}}],
        "endpoint": {"openai_compatible": {"base_url": endpoint.base_url, "model": "any"}},
        "store": f"sqlite:///{tmp_path / 'store.db'}",
    }
