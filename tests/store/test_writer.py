from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from corpusmill.errors import StoreError
from corpusmill.store import GroupWriter, Release, SQLiteStore, Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from corpusmill.store import Claim, Put

    KeyOf = Callable[[str], bytes]
    PutOf = Callable[..., Put]


class Slow(SQLiteStore):
    """Waits before each write until it is let go on, counts writes, and fails when told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.go = threading.Event()
        self.go.set()
        self.writing = threading.Event()
        self.groups: list[int] = []
        self.beats = 0
        self.failure: Exception | None = None

    def write(
        self,
        owner: int,
        *,
        puts: Sequence[Put] = (),
        releases: Sequence[Release] = (),
        wanted: Sequence[Wanted] = (),
    ) -> list[Claim]:
        self.writing.set()
        assert self.go.wait(60)
        if self.failure is not None:
            raise self.failure
        self.groups.append(len(puts) + len(releases) + len(wanted))
        return super().write(owner, puts=puts, releases=releases, wanted=wanted)

    def heartbeat(self, owner: int) -> None:
        self.beats += 1
        super().heartbeat(owner)


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Slow]:
    """Open a store whose writes can be held up."""
    store = Slow(tmp_path / "store.db")
    yield store
    store.close()


async def until(event: threading.Event) -> None:
    """Wait for what happens in the writer's thread."""
    assert await asyncio.to_thread(event.wait, 60)


def test_every_request_gets_its_own_answer(slow: Slow, put_of: PutOf, key_of: KeyOf) -> None:
    """Claims come back to whoever asked, puts are in the store when they are done."""

    async def row(writer: GroupWriter, name: str) -> str:
        claim = await writer.claim(Wanted(key_of(name)))
        if claim == "granted":
            await writer.put(put_of(name))
            assert key_of(name) in slow.get_many([key_of(name)])
        return claim

    async def scenario() -> None:
        owner = slow.join("run").owner
        slow.write(owner, puts=[put_of("known")])
        writer = GroupWriter(slow, owner)
        names = [f"row {number}" for number in range(200)]
        names[50] = "known"
        claims = await asyncio.gather(*(row(writer, name) for name in names))
        assert claims == ["answered" if name == "known" else "granted" for name in names]
        await writer.claim(Wanted(key_of("lost")))
        await writer.release(Release(key=key_of("lost"), possibly_paid=True))
        assert await writer.claim(Wanted(key_of("lost"))) == "granted_again"
        await writer.close()

    asyncio.run(scenario())
    assert slow.stats().completions == 200


def test_what_comes_while_a_group_is_written_is_the_next_group(slow: Slow, put_of: PutOf) -> None:
    """A hundred answers that wait behind one commit take one commit."""

    async def scenario() -> None:
        writer = GroupWriter(slow, slow.join("run").owner)
        slow.go.clear()
        first = writer.put(put_of("first"))
        await until(slow.writing)
        rest = []
        for row in range(100):
            rest.append(writer.put(put_of(str(row))))
            await asyncio.sleep(0)
        slow.go.set()
        await asyncio.gather(first, *rest)
        await writer.close()

    asyncio.run(scenario())
    assert slow.groups == [1, 100]


def test_an_error_reaches_everybody_who_waits_or_claims_later(
    slow: Slow, put_of: PutOf, key_of: KeyOf
) -> None:
    """After a full disk no claim is granted, and an answer that was paid is still kept if there is space again."""

    async def scenario() -> None:
        writer = GroupWriter(slow, slow.join("run").owner)
        slow.failure = StoreError("the disk is full")
        waiting = [writer.put(put_of(str(row))) for row in range(3)]
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, StoreError)
        slow.failure = None
        with pytest.raises(StoreError, match="the disk is full"):
            await writer.claim(Wanted(key_of("later")))
        await writer.put(put_of("on its way"))
        await writer.close()

    asyncio.run(scenario())
    assert slow.stats().completions == 1


def test_closing_writes_what_waits_and_refuses_what_comes(slow: Slow, put_of: PutOf) -> None:
    """Nothing that was handed over before the end is lost, and closing twice is harmless."""

    async def scenario() -> None:
        writer = GroupWriter(slow, slow.join("run").owner)
        puts = [writer.put(put_of(str(row))) for row in range(10)]
        await writer.close()
        await writer.close()
        assert all(put.done() for put in puts)
        with pytest.raises(StoreError, match="closed"):
            await writer.put(put_of("late"))

    asyncio.run(scenario())
    assert slow.stats().completions == 10
    assert "corpusmill-store-writer" not in {thread.name for thread in threading.enumerate()}


def test_a_claim_that_nobody_waits_for_any_more_is_given_back(slow: Slow, key_of: KeyOf) -> None:
    """A row that was cancelled between asking for its claim and getting it blocks nobody."""

    async def scenario() -> None:
        writer = GroupWriter(slow, slow.join("run").owner)
        slow.go.clear()
        claim = writer.claim(Wanted(key_of("a")))
        await until(slow.writing)
        claim.cancel()
        slow.go.set()
        # Answered after the group that held the cancelled claim, so that the release is on its way by then.
        assert await writer.claim(Wanted(key_of("b"))) == "granted"
        await writer.claim(Wanted(key_of("c")))
        assert await writer.claim(Wanted(key_of("a"))) == "granted"
        await writer.close()

    asyncio.run(scenario())


def test_an_answer_is_kept_though_nobody_waits_for_it(slow: Slow, put_of: PutOf) -> None:
    """Cancelling the row does not cancel its put: it is paid."""

    async def scenario() -> None:
        writer = GroupWriter(slow, slow.join("run").owner)
        writer.put(put_of("a")).cancel()
        await writer.close()

    asyncio.run(scenario())
    assert slow.stats().completions == 1


def test_the_lease_is_renewed_when_idle_and_when_busy(slow: Slow, put_of: PutOf) -> None:
    """The same thread renews the lease between groups, by the clock."""
    now = 0.0

    async def scenario() -> None:
        nonlocal now
        writer = GroupWriter(slow, slow.join("run").owner, clock=lambda: now)
        await writer.put(put_of("a"))
        beats: list[Any] = [slow.beats]
        now += 6.0
        await writer.put(put_of("b"))
        await writer.put(put_of("c"))
        beats.append(slow.beats)
        await writer.close()
        assert beats == [0, 1]

    asyncio.run(scenario())


def test_a_loop_that_ended_first_leaves_no_thread_behind(slow: Slow, put_of: PutOf) -> None:
    """When the event loop is gone, what was handed over is written and the thread still ends when told to."""
    kept: list[GroupWriter] = []

    async def scenario() -> None:
        writer = GroupWriter(slow, slow.join("run").owner)
        kept.append(writer)
        slow.go.clear()
        writer.put(put_of("a"))
        await until(slow.writing)

    asyncio.run(scenario())
    slow.go.set()
    kept[0]._queue.put(None)
    kept[0]._thread.join(60)
    assert not kept[0]._thread.is_alive()
    assert slow.stats().completions == 1
