"""A store that goes away, or is none any more, under a run."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.proof.harness import TEMPLATE
from tests.proof.material import ASK, QUICK, answer_to, endpoint_at, rows_of, table, texts
from tests.store.postgres_server import Line, Server

import corpusmill
from corpusmill.store import Spend, open_store
from corpusmill.testing import FakeEndpoint, Latency

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.proof.warm import Ended, Warm
    from tests.store.postgres_server import Mode as ServerMode

    from corpusmill.engine.engine import Progress
    from corpusmill.testing.stats import Stats

ROWS = 300

OUTAGE = "corpusmill.store.postgres.outage"


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


def check_rows(sink: Path, rows: int = ROWS) -> None:
    """Each row has its own answer."""
    assert [row["topic"] for row in rows_of(sink)] == [answer_to(text) for text in texts(rows)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Run a PostgreSQL server that may be stopped."""
    with Server() as server:
        yield server


def check_accounts(url: str, report: corpusmill.RunReport, stats: Stats, *, rows: int = ROWS) -> None:
    """What the store has and has counted is what the endpoint has: each row asked once, answered once, paid once."""
    assert (report.live, report.cached, report.possibly_paid_twice) == (rows, 0, 0)
    assert (stats.computed, stats.computed_again) == (rows, 0)
    assert report.run_key is not None
    with contextlib.closing(open_store(url)) as store:
        assert store.spend(report.run_key) == Spend(
            requests=rows,
            attempts=stats.requests,
            prompt_tokens=stats.prompt_tokens,
            completion_tokens=stats.completion_tokens,
        )
        kept = store.stats()
    assert (kept.completions, kept.claims, kept.lost) == (rows, 0, 0)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_run_lives_through_a_database_server_that_restarts(
    tmp_path: Path, server: Server, mode: ServerMode
) -> None:
    """Nothing is lost, asked again or counted twice, and meanwhile the run says what it waits for."""
    url = f"{server.url}&schema=restart_{mode}"
    waited: list[str] = []
    told = threading.Event()

    def restart() -> None:
        server.stop(mode)
        told.wait(60)
        server.start()

    def see(progress: Progress) -> None:
        if progress.waiting is not None and "is away" in progress.waiting:
            waited.append(progress.waiting)
            told.set()

    restarting = threading.Thread(target=restart)
    seen = itertools.count(1)

    def script(_request: Mapping[str, Any], attempt: int) -> str | None:
        number = next(seen)
        if number == 100:
            restarting.start()
        return "429_bare" if attempt == 1 and number % 25 == 0 else None

    with FakeEndpoint(latency=Latency(mean=0.02)) as endpoint:
        endpoint.script(script)
        report = corpusmill.enrich(
            table(ROWS),
            tmp_path / "out",
            ASK,
            endpoint=endpoint_at(endpoint),
            store=url,
            limits=corpusmill.Limits(concurrency=8, requests_per_minute=100_000),
            retry=QUICK,
            progress=see,
        )
        restarting.join()
        check_accounts(url, report, endpoint.stats(details=False))
    check_rows(tmp_path / "out")
    assert waited[0].startswith("store postgresql://")


def test_a_run_lives_through_commits_that_are_cut(tmp_path: Path, postgres_server: str) -> None:
    """Of half of them the server has heard, of the others not; which ones, nobody tells the run."""
    rows, seen = 100, itertools.count(1)
    with Line(postgres_server) as line, FakeEndpoint(latency=Latency(mean=0.02)) as endpoint:
        url = f"{line.url}&schema=cut"

        def script(_request: Mapping[str, Any], _attempt: int) -> None:
            number = next(seen)
            if number % 5 == 0:
                line.cuts.append("after" if number % 10 else "before")

        endpoint.script(script)
        report = corpusmill.enrich(
            table(rows),
            tmp_path / "out",
            ASK,
            endpoint=endpoint_at(endpoint),
            store=url,
            limits=corpusmill.Limits(concurrency=8),
            budget=corpusmill.Budget(tokens=10_000_000),
            retry=QUICK,
        )
        line.cuts.clear()
        check_accounts(url, report, endpoint.stats(details=False), rows=rows)
    check_rows(tmp_path / "out", rows)


def test_a_database_server_that_stays_away_ends_the_run_and_the_next_one_goes_on(
    tmp_path: Path, warm: Warm, server: Server
) -> None:
    """One line names the server; what was stored before is asked no second time, the rest is counted."""
    url = f"{server.url}&schema=away"
    with stopping_endpoint(server) as endpoint:
        job = write_job(tmp_path, endpoint, url)
        ended = warm.run("run", job, "--quiet", patches={f"{OUTAGE}.WAIT_SECONDS": 0.5})
        check_end_and_go_on(ended, tmp_path, warm, server, endpoint)


def test_a_run_that_is_interrupted_while_it_waits_for_the_server_ends(
    tmp_path: Path, warm: Warm, server: Server
) -> None:
    """It gives the server a last moment, and not the ten minutes that it would else have."""
    url = f"{server.url}&schema=interrupted"
    patches = {f"{OUTAGE}.WAIT_SECONDS": 600.0, f"{OUTAGE}.LAST_SECONDS": 0.2}
    waiting = threading.Event()
    with stopping_endpoint(server) as endpoint:
        job = write_job(tmp_path, endpoint, url)
        child = warm.start("run", job, "--quiet", patches=patches)
        while "is waited for" not in child.said():
            waiting.wait(0.02)  # the child is another process
        child.signal(signal.SIGINT)
        check_end_and_go_on(child.wait(), tmp_path, warm, server, endpoint)


@contextlib.contextmanager
def stopping_endpoint(server: Server) -> Iterator[FakeEndpoint]:
    """Give an endpoint that stops the database server when it has been asked a hundred times."""
    stopping = threading.Thread(target=server.stop, args=("fast",))
    seen = itertools.count(1)

    def script(_request: Mapping[str, Any], _attempt: int) -> None:
        if next(seen) == 100:
            stopping.start()

    with FakeEndpoint(latency=Latency(mean=0.02)) as endpoint:
        endpoint.script(script)
        yield endpoint


def check_end_and_go_on(
    ended: Ended, folder: Path, warm: Warm, server: Server, endpoint: FakeEndpoint
) -> None:
    """A run has ended for want of its server, and with the server back the next one does the rest."""
    endpoint.script(None)
    assert ended.code == 1, ended
    assert ended.err.strip().splitlines()[-1].startswith("corpusmill: store postgresql://")
    assert "Traceback" not in ended.err
    assert not (folder / "out").exists()
    before = endpoint.stats(details=False)
    assert before.requests < ROWS
    server.start()
    again = warm.run("run", str(folder / "job.json"), "--json", "--quiet")
    assert again.code == 0, again.err
    stats = endpoint.stats(details=False)
    assert again.report["cached"] + again.report["live"] == ROWS
    assert stats.computed_again <= again.report["possibly_paid_twice"] <= 8
    assert stats.computed == again.report["live"] + before.computed
    check_rows(folder / "out")


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
