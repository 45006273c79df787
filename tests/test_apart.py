"""Source, sink and store are kept apart by where they really lie, however they are named."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from corpusmill import Ask, OpenAICompatible, enrich
from corpusmill.errors import SinkError
from corpusmill.store import open_store
from corpusmill.tables import open_source

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.testing import FakeEndpoint

ASK = Ask("Say {text}", into="out")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a table in `data`, which has a second name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    pq.write_table(pa.table({"text": ["one", "two"]}), tmp_path / "data" / "a.parquet")
    return tmp_path


def attempt(source: str, sink: str, endpoint: FakeEndpoint, store: str = "sqlite:///store.db") -> None:
    """Run a small job."""
    enrich(source, sink, ASK, endpoint=OpenAICompatible(endpoint.base_url, "any"), store=store)


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("link", "data/out"),
        ("data", "link/out"),
        ("data/../data", "data/out"),
        ("data", "link/../data/out"),
        ("data/*.parquet", "data/out.parquet"),
        ("data/*", "data/out"),
        ("*/*.parquet", "out"),
        ("link/**", "data/deep/out"),
    ],
)
def test_a_sink_that_the_next_run_would_read_is_refused(
    folder: Path, fake_endpoint: FakeEndpoint, source: str, sink: str
) -> None:
    """Links, detours and globs hide it from a look at the names."""
    with pytest.raises(SinkError, match="lies inside the source"):
        attempt(source, sink, fake_endpoint)
    assert fake_endpoint.stats().requests == 0


@pytest.mark.parametrize(
    ("source", "sink"),
    [("data/a*.parquet", "data/out.parquet"), ("data/*.parquet", "data/out"), ("data", "data/_out")],
)
def test_a_sink_beside_what_is_read_is_taken(
    folder: Path, fake_endpoint: FakeEndpoint, source: str, sink: str
) -> None:
    """The same job finds its own rows the next time, and nothing to do."""
    attempt(source, sink, fake_endpoint)
    attempt(source, sink, fake_endpoint)
    assert fake_endpoint.stats().requests == 2


@pytest.mark.parametrize("url", ["sqlite:///out/store.db", "sqlite:///way/deep/store.db"])
def test_a_store_inside_the_sink_is_refused(folder: Path, fake_endpoint: FakeEndpoint, url: str) -> None:
    """It would be replaced together with the output, and all that was paid for be gone."""
    (folder / "out").mkdir()
    (folder / "way").symlink_to("out")
    with pytest.raises(SinkError, match="holds the store"):
        attempt("data", "out", fake_endpoint, url)
    assert fake_endpoint.stats().requests == 0


def test_an_open_store_inside_the_sink_is_refused(folder: Path, fake_endpoint: FakeEndpoint) -> None:
    """As the default one is where the sink is the working folder."""
    (folder / "in").mkdir()
    store = open_store("sqlite:///in/.corpusmill/store.db")
    with pytest.raises(SinkError, match="holds the store"):
        enrich("data", "in", ASK, endpoint=OpenAICompatible(fake_endpoint.base_url, "any"), store=store)
    store.close()


def test_what_another_run_stages_beside_a_sink_is_not_read(folder: Path, fake_endpoint: FakeEndpoint) -> None:
    """A folder of sinks has each of their rows once while one of them is written, and after a kill."""
    attempt("data/a.parquet", "all/one", fake_endpoint)
    hidden = folder / "all" / ".one.corpusmill-0123456789ab"
    shutil.copytree(folder / "all" / "one", hidden)
    assert open_source("all").rows == 2
    (hidden / "_corpusmill" / "manifest.json").unlink()
    assert open_source("all").rows == 2
