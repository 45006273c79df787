"""Requests from miss to durable: what several processes, ladders, quotas and dead endpoints do to one."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import httpx
import pyarrow as pa
import pytest

from corpusmill import Ask, FailurePolicy, Limits, OpenAICompatible, RetryPolicy, SambaNova, enrich, read
from corpusmill.errors import BrokenEndpointError, EndpointDownError, StoreError, UsageError
from corpusmill.testing import FakeEndpoint, Latency

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.report import RunReport

ROWS = pa.table({"text": [f"text number {number}, which is long enough to be cut" for number in range(24)]})


def run(folder: Path, endpoint: FakeEndpoint, sink: str, **options: object) -> RunReport:
    """Enrich the rows with a ladder of two rungs; runs of one folder share a store."""
    return enrich(
        ROWS,
        folder / sink,
        Ask("Repeat: {text}", into="out", max_tokens=4, escalate_to=400),
        endpoint=OpenAICompatible(endpoint.base_url, "any"),
        store=f"sqlite:///{folder / 'store.db'}",
        **options,  # type: ignore[arg-type]
    )


def test_two_runs_at_once_get_the_same_answers_up_a_ladder(tmp_path: Path) -> None:
    """Whoever waits for a request that another run asks goes up the ladder too, and pays for nothing again."""
    failures: list[BaseException] = []

    def other() -> None:
        try:
            run(tmp_path, endpoint, "second")
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    with FakeEndpoint(latency=Latency(mean=0.05)) as endpoint:
        thread = threading.Thread(target=other)
        thread.start()
        run(tmp_path, endpoint, "first")
        thread.join()
        stats = endpoint.stats()
    assert failures == []
    first, second = (read(tmp_path / name).to_table() for name in ("first", "second"))
    assert {(row or {})["status"] for row in first["out_outcome"].to_pylist()} == {"completed"}
    assert first.equals(second)
    assert stats.computed_again == 0


def test_patience_ends_a_run_whose_endpoint_hangs(tmp_path: Path) -> None:
    """A probe that never comes back does not keep the run for the whole of its read time-out."""
    started = time.monotonic()

    async def hang(_request: httpx.Request) -> httpx.Response:
        if time.monotonic() - started < 1.0:
            raise httpx.ConnectError("refused")
        await asyncio.sleep(3_600)
        raise AssertionError("nobody waits an hour")

    with pytest.raises(EndpointDownError, match="has not answered for"):
        enrich(
            ROWS,
            tmp_path / "out",
            Ask("{text}", into="out"),
            endpoint=OpenAICompatible("http://127.0.0.1:9/v1", "any"),
            store=f"sqlite:///{tmp_path / 'store.db'}",
            limits=Limits(patience=3.0),
            retry=RetryPolicy(backoff=0.01, backoff_max=0.02, attempts=100),
            transport=httpx.MockTransport(hang),
        )


def test_a_missing_key_leaves_no_thread_and_no_claim_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused when the client is made ends as if nothing had been."""
    monkeypatch.delenv("SAMBANOVA_API_KEY", raising=False)
    before = set(threading.enumerate())
    with pytest.raises(UsageError, match="SAMBANOVA_API_KEY"):
        enrich(
            ROWS,
            tmp_path / "out",
            Ask("{text}", into="out"),
            endpoint=SambaNova("gpt-oss-120b"),
            store=f"sqlite:///{tmp_path / 'store.db'}",
        )
    assert set(threading.enumerate()) == before


def test_an_answer_that_came_whole_before_the_connection_broke_is_kept(tmp_path: Path) -> None:
    """It was paid for; what was still announced after it does not matter."""

    class Broken(httpx.AsyncByteStream):
        async def __aiter__(self):  # type: ignore[no-untyped-def] # noqa: ANN204 - httpx's shape
            yield b'{"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "whole"}}]}'
            raise httpx.ReadError("reset")

    async def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "application/json"}, stream=Broken())

    report = enrich(
        ROWS.slice(0, 1),
        tmp_path / "out",
        Ask("{text}", into="out"),
        endpoint=OpenAICompatible("http://127.0.0.1:9/v1", "any"),
        store=f"sqlite:///{tmp_path / 'store.db'}",
        transport=httpx.MockTransport(answer),
    )
    assert (report.attempts, report.answers) == (1, 1)
    (row,) = read(tmp_path / "out").to_table().to_pylist()
    assert row["out"] == "whole"
    assert row["out_outcome"]["notes"] == ["connection_lost_after_answer"]


def test_a_quota_that_is_open_again_slows_nobody_down(tmp_path: Path) -> None:
    """One request finds out that a noted quota has been lifted; the others then go out together."""
    with FakeEndpoint(latency=Latency(mean=0.2)) as endpoint:
        where = OpenAICompatible(endpoint.base_url, "any")
        from corpusmill.store import open_store

        store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
        store.set_quota(where.identity, resets_at=time.time() + 3_600, reason="a day's requests")
        store.close()
        report = run(tmp_path, endpoint, "out")
        stats = endpoint.stats()
    assert report.outcomes == {"completed": len(ROWS)}
    assert stats.max_in_flight > 4


@pytest.mark.parametrize(("max_tokens", "ends"), [(None, True), (4, False)])
def test_answers_that_are_all_cut_end_the_run_unless_the_user_capped_them(
    tmp_path: Path, *, max_tokens: int | None, ends: bool
) -> None:
    """A server that cuts whatever it says is not what the user thinks; a cap of the user's own is."""
    with FakeEndpoint(faults={"length": 1.0}) as endpoint:

        def attempt() -> RunReport:
            return enrich(
                ROWS,
                tmp_path / "out",
                Ask("Repeat: {text}", into="out", max_tokens=max_tokens),
                endpoint=OpenAICompatible(endpoint.base_url, "any"),
                store=f"sqlite:///{tmp_path / 'store.db'}",
            )

        if ends:
            with pytest.raises(BrokenEndpointError, match="state one with max_tokens"):
                attempt()
        else:
            assert attempt().outcomes == {"truncated": len(ROWS)}


def test_a_server_that_only_says_that_it_is_there_fails_its_row_at_the_deadline(tmp_path: Path) -> None:
    """Keep-alive comments satisfy every time-out between bytes; the row's deadline ends the attempt all the same."""

    class Drip(httpx.AsyncByteStream):
        async def __aiter__(self):  # type: ignore[no-untyped-def] # noqa: ANN204 - httpx's shape
            while True:
                yield b": still here\n\n"
                await asyncio.sleep(0.05)

    async def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Drip())

    report = enrich(
        ROWS.slice(0, 2),
        tmp_path / "out",
        Ask("{text}", into="out"),
        endpoint=OpenAICompatible("http://127.0.0.1:9/v1", "any", stream=True),
        store=f"sqlite:///{tmp_path / 'store.db'}",
        retry=RetryPolicy(deadline=0.4),
        failures=FailurePolicy(max_failed=1.0),
        transport=httpx.MockTransport(answer),
    )
    assert report.outcomes == {"failed": 2}
    (row, _) = read(tmp_path / "out").to_table().to_pylist()
    assert "deadline of 0.4 s" in row["out_outcome"]["error"]


def test_a_store_that_is_taken_away_in_mid_run_ends_the_run(tmp_path: Path) -> None:
    """What is written to a file without a name is gone at the end, and every answer would be bought again."""
    store = tmp_path / "store.db"

    def take_away() -> None:
        while not store.exists() or endpoint.stats(details=False).computed < 20:
            time.sleep(0.01)
        store.unlink()

    table = pa.table({"text": [f"row {number}" for number in range(400)]})
    with FakeEndpoint(latency=Latency(mean=0.02)) as endpoint:
        thread = threading.Thread(target=take_away)
        thread.start()
        with pytest.raises(StoreError, match="was removed or replaced while it was in use"):
            enrich(
                table,
                tmp_path / "out",
                Ask("{text}", into="out"),
                endpoint=OpenAICompatible(endpoint.base_url, "any"),
                store=f"sqlite:///{store}",
                limits=Limits(concurrency=8),
            )
        thread.join()
        assert endpoint.stats().computed < 400
