"""How a run uses the store: read and write, read only, replay, refresh, off."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.proof.harness import stored_keys
from tests.proof.material import ASK, QUICK, answer_to, endpoint_at, rows_of, store_in, table

import corpusmill
from corpusmill.errors import EndpointError, StoreMissError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from corpusmill.testing import FakeEndpoint


@pytest.fixture
def run(tmp_path: Path, endpoint: FakeEndpoint) -> Callable[..., corpusmill.RunReport]:
    """Run over so many rows into a sink of its own each time."""
    count = 0

    def enrich(rows: int, **options: Any) -> corpusmill.RunReport:
        nonlocal count
        count += 1
        return corpusmill.enrich(
            table(rows),
            tmp_path / f"out{count}",
            ASK,
            endpoint=endpoint_at(endpoint),
            **{"store": store_in(tmp_path), "retry": QUICK, **options},
        )

    return enrich


def test_what_was_stored_by_one_run_serves_another(
    endpoint: FakeEndpoint, run: Callable[..., corpusmill.RunReport]
) -> None:
    """The default: only what is new is asked."""
    assert run(20).live == 20
    again = run(30)
    assert (again.cached, again.live) == (20, 10)
    assert endpoint.stats(details=False).computed == 30


def test_read_only_takes_from_the_store_and_writes_nothing_to_it(
    tmp_path: Path, endpoint: FakeEndpoint, run: Callable[..., corpusmill.RunReport]
) -> None:
    """Misses are asked, and forgotten afterwards."""
    run(20)
    store = tmp_path / "store.db"
    before = hashlib.sha256(store.read_bytes()).digest()
    report = run(30, mode="read-only")
    assert (report.cached, report.live) == (20, 10)
    assert hashlib.sha256(store.read_bytes()).digest() == before
    assert len(stored_keys(store)) == 20
    assert endpoint.stats(details=False).computed == 30


def test_replay_asks_nobody_and_a_miss_is_an_error_that_names_the_row(
    tmp_path: Path, endpoint: FakeEndpoint, run: Callable[..., corpusmill.RunReport]
) -> None:
    """What is stored is enough, or nothing is written."""
    run(20)
    report = run(20, mode="replay")
    assert (report.cached, report.live) == (20, 0)
    with pytest.raises(StoreMissError, match="row 20"):
        run(21, mode="replay")
    assert not (tmp_path / "out3").exists()
    assert endpoint.stats(details=False).requests == 20


def test_off_leaves_no_store(
    tmp_path: Path, endpoint: FakeEndpoint, run: Callable[..., corpusmill.RunReport]
) -> None:
    """Everything is asked, each different request once."""
    assert run(20, mode="off").live == 20
    assert run(20, mode="off").live == 20
    assert not (tmp_path / "store.db").exists()
    assert endpoint.stats(details=False).computed == 40


def test_refresh_asks_everything_anew_and_a_broken_one_goes_on(
    tmp_path: Path, endpoint: FakeEndpoint
) -> None:
    """What the first try of the refresh has asked counts as fresh in the second; the sink is replaced."""

    def enrich(mode: str) -> corpusmill.RunReport:
        return corpusmill.enrich(
            tmp_path / "corpus.parquet",
            tmp_path / "out",
            ASK,
            endpoint=endpoint_at(endpoint),
            store=store_in(tmp_path),
            mode=mode,
            limits=corpusmill.Limits(concurrency=4),
        )

    pq.write_table(table(40), tmp_path / "corpus.parquet")
    enrich("read-write")
    seen = 0

    def script(_request: object, _attempt: int) -> str | None:
        nonlocal seen
        seen += 1
        return "401" if seen > 20 else None

    endpoint.script(script)
    with pytest.raises(EndpointError):
        enrich("refresh")
    endpoint.script(None)
    report = enrich("refresh")
    assert (report.cached, report.live) == (20, 20)
    assert endpoint.stats(details=False).computed == 80
    assert enrich("refresh").live == 40
    assert all(row["topic"] == answer_to(row["text"]) for row in rows_of(tmp_path / "out"))


def test_a_narrowed_refresh_asks_only_the_rows_with_those_statuses(
    endpoint: FakeEndpoint, run: Callable[..., corpusmill.RunReport]
) -> None:
    """Answers that were cut are asked again, whole ones are not."""
    numbers = iter(range(1_000))
    endpoint.script(lambda _request, _attempt: "length" if next(numbers) % 4 == 0 else None)
    first = run(40)
    assert first.outcomes == {"completed": 30, "truncated": 10}
    endpoint.script(None)
    assert run(40).live == 0
    second = run(40, mode="refresh", refresh=["truncated"])
    assert (second.live, second.cached) == (10, 30)
    assert second.outcomes == {"completed": 40}
    assert run(40).outcomes == {"completed": 40}


def test_raising_the_ceiling_asks_only_what_was_cut(tmp_path: Path, endpoint: FakeEndpoint) -> None:
    """An answer that ended by itself serves every ceiling that it fits in."""

    def enrich(ceiling: int) -> corpusmill.RunReport:
        return corpusmill.enrich(
            table(60),
            tmp_path / f"out{ceiling}",
            corpusmill.Ask(template="Name the topic of: {text}", into="topic", max_tokens=ceiling),
            endpoint=endpoint_at(endpoint),
            store=store_in(tmp_path),
        )

    low = enrich(18)
    cut = low.outcomes["truncated"]
    assert 0 < cut < 60
    high = enrich(4_000)
    assert (high.live, high.cached) == (cut, 60 - cut)
    assert high.outcomes == {"completed": 60}
    assert enrich(18).live == 0
    assert endpoint.stats(details=False).computed == 60 + cut


def test_the_same_rows_in_other_files_other_shards_and_another_order_are_the_same_requests(
    tmp_path: Path, endpoint: FakeEndpoint
) -> None:
    """The key covers what is sent: not file names, not chunking, not the columns beside it."""
    rows = table(60)

    def enrich(source: Any, sink: str) -> corpusmill.RunReport:
        return corpusmill.enrich(
            source, tmp_path / sink, ASK, endpoint=endpoint_at(endpoint), store=store_in(tmp_path)
        )

    enrich(rows, "out")
    assert enrich(rows.slice(30, 30).select(["text"]), "half").live == 0
    assert enrich(rows.take(list(reversed(range(60)))), "turned").live == 0
    assert enrich(rows.to_reader(max_chunksize=7), "chunked").live == 0
    assert endpoint.stats(details=False).requests == 60
    assert (
        corpusmill.read(tmp_path / "turned").to_table().sort_by("id")
        == corpusmill.read(tmp_path / "out").to_table()
    )
