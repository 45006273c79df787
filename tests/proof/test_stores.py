"""A store that goes away, or is none any more, under a run."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.proof.harness import TEMPLATE
from tests.proof.material import answer_to, rows_of, table, texts
from tests.store.storm import crash_server

from corpusmill.errors import StoreError
from corpusmill.store import open_store
from corpusmill.testing import FakeEndpoint, Latency

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.proof.warm import Warm

ROWS = 300


def write_job(folder: Path, endpoint: FakeEndpoint, store: str) -> str:
    """Write a corpus, and a job over it."""
    pq.write_table(table(ROWS), folder / "corpus.parquet")
    job = {
        "source": str(folder / "corpus.parquet"),
        "sink": str(folder / "out"),
        "prompts": [{"ask": {"template": TEMPLATE, "into": "topic"}}],
        "endpoint": {"openai_compatible": {"base_url": endpoint.base_url, "model": "any"}},
        "store": store,
        "limits": {"concurrency": 8},
    }
    path = folder / "job.json"
    path.write_text(json.dumps(job), "utf-8")
    return str(path)


def check_rows(sink: Path) -> None:
    """Each row has its own answer."""
    assert [row["topic"] for row in rows_of(sink)] == [answer_to(text) for text in texts(ROWS)]


def test_a_database_server_that_crashes_ends_the_run_and_the_next_one_goes_on(
    tmp_path: Path, warm: Warm, postgres_server: str
) -> None:
    """One line names the server; what was stored before is asked no second time, the rest is counted."""
    url = f"{postgres_server}&schema=crashed"
    open_store(url).close()
    seen = 0

    def script(_request: Mapping[str, Any], _attempt: int) -> None:
        nonlocal seen
        seen += 1
        if seen == 100:
            threading.Thread(target=crash_server, args=(url,)).start()

    with FakeEndpoint(latency=Latency(mean=0.02)) as endpoint:
        job = write_job(tmp_path, endpoint, url)
        endpoint.script(script)
        ended = warm.run("run", job, "--quiet")
        endpoint.script(None)
        assert ended.code == 1, ended
        assert "store postgresql://" in ended.err
        assert len(ended.err.strip().splitlines()) == 1
        assert not (tmp_path / "out").exists()
        crashed = endpoint.stats(details=False)
        assert crashed.requests < ROWS
        until_back(url)
        again = warm.run("run", job, "--json", "--quiet")
        assert again.code == 0, again.err
        stats = endpoint.stats(details=False)
        assert again.report["cached"] + again.report["live"] == ROWS
        assert stats.computed_again <= again.report["possibly_paid_twice"] <= 8
        assert stats.computed == again.report["live"] + crashed.computed
    check_rows(tmp_path / "out")


def until_back(url: str) -> None:
    """Wait until a server answers again."""
    waiting = threading.Event()
    for _ in range(1_000):
        try:
            open_store(url).close()
        except StoreError:
            waiting.wait(0.02)  # the server is another process, and is recovering
        else:
            return
    raise AssertionError("the server has not come back")


@pytest.mark.parametrize("damage", ["cut", "garbage", "other file"])
def test_a_store_that_is_damaged_is_named_and_neither_replaced_nor_paid_for_again(
    tmp_path: Path, warm: Warm, endpoint: FakeEndpoint, damage: str
) -> None:
    """Nothing is asked; with the file restored from a copy the run has everything."""
    store = tmp_path / "store.db"
    job = write_job(tmp_path, endpoint, f"sqlite:///{store}")
    assert warm.run("run", job, "--quiet").code == 0
    whole = store.read_bytes()
    if damage == "cut":
        os.truncate(store, len(whole) // 2)
    else:
        store.write_bytes(b"garbage " * 9_000 if damage == "garbage" else b"id,text\n1,a\n")
    damaged = store.read_bytes()
    (tmp_path / "out").rename(tmp_path / "before")
    for command in (
        ["run", job, "--quiet"],
        ["plan", job],
        ["store", "stats", "--store", f"sqlite:///{store}"],
    ):
        ended = warm.run(*command)
        assert ended.code == 1, ended
        assert str(store) in ended.err
        assert "estore it from a copy" in ended.err
        assert store.read_bytes() == damaged
    assert endpoint.stats(details=False).requests == ROWS
    store.write_bytes(whole)
    ended = warm.run("run", job, "--json", "--quiet")
    assert (ended.report["cached"], ended.report["live"]) == (ROWS, 0)
    check_rows(tmp_path / "out")
