"""The one thread that writes: it takes all that waits, commits it in one transaction, and then says so.

On the side of the event loop each call appends to a list and gives a future. Once per turn of the loop the
list goes to the thread, which takes everything that has come meanwhile; a commit takes longer than a turn, so
that the groups grow with the load by themselves. All futures of a group are resolved by one call into the
loop, after the commit.
"""

from __future__ import annotations

import asyncio
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from corpusmill.errors import StoreError
from corpusmill.store.protocol import Put, Release, Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from corpusmill.store.protocol import Claim, Store

HEARTBEAT = 5.0
"""Seconds between two renewals of the owner's lease, which is several times as long."""

Item = tuple[Put | Release | Wanted, asyncio.Future[Any]]


class GroupWriter:
    """Groups the writes of one owner to a store. Made, used and closed within one running event loop.

    The first error of the store goes to everybody who waits, and no claim is granted any more, so that no new
    request is sent. Answers that are still on their way have been paid, so each group of them is tried.
    `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        store: Store,
        owner: int,
        *,
        heartbeat: float = HEARTBEAT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._owner = owner
        self._heartbeat = heartbeat
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._pending: list[Item] = []
        self._queue: SimpleQueue[list[Item] | None] = SimpleQueue()
        self._failure: BaseException | None = None
        self._closed = False
        self._ended = self._loop.create_future()
        self._thread = threading.Thread(target=self._work, name="corpusmill-store-writer", daemon=True)
        self._thread.start()

    def claim(self, wanted: Wanted) -> asyncio.Future[Claim]:
        """Ask for the right to ask a key."""
        return self._enqueue(wanted)

    def put(self, put: Put) -> asyncio.Future[None]:
        """Keep an answer; done once it is durable."""
        return self._enqueue(put)

    def release(self, release: Release) -> asyncio.Future[None]:
        """Give a claim up without an answer."""
        return self._enqueue(release)

    async def close(self) -> None:
        """Write what waits, and end the thread. The owner stays joined."""
        if not self._closed:
            self._flush()
            self._closed = True
            self._queue.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    def _enqueue(self, what: Put | Release | Wanted) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._closed:
            future.set_exception(StoreError("the writer of the store is closed"))
        else:
            if not self._pending:
                self._loop.call_soon(self._flush)
            self._pending.append((what, future))
        return future

    def _flush(self) -> None:
        if self._pending:
            self._queue.put(self._pending)
            self._pending = []

    def _work(self) -> None:
        last = self._clock()
        running = True
        while running:
            items, running = self._take()
            if items:
                self._write(items)
            if self._clock() - last >= self._heartbeat:
                last = self._clock()
                try:
                    self._store.heartbeat(self._owner)
                except BaseException as error:  # noqa: BLE001 - the next who claims is told
                    self._failure = error
        self._call(self._end)

    def _take(self) -> tuple[list[Item], bool]:
        """Wait for work, then take all there is; not running any more once the end was in it."""
        try:
            batch = self._queue.get(timeout=self._heartbeat)
        except Empty:
            return [], True
        items: list[Item] = []
        while True:
            if batch is None:
                return items, False
            items.extend(batch)
            try:
                batch = self._queue.get_nowait()
            except Empty:
                return items, True

    def _write(self, items: list[Item]) -> None:
        if self._failure is not None:
            claiming_too_late = [item for item in items if isinstance(item[0], Wanted)]
            self._fail(claiming_too_late, self._failure)
            items = [item for item in items if not isinstance(item[0], Wanted)]
        puts: list[Put] = []
        releases: list[Release] = []
        wanted: list[Wanted] = []
        claiming: list[asyncio.Future[Any]] = []
        done: list[asyncio.Future[Any]] = []
        for what, future in items:
            if isinstance(what, Wanted):
                wanted.append(what)
                claiming.append(future)
                continue
            done.append(future)
            if isinstance(what, Put):
                puts.append(what)
            else:
                releases.append(what)
        try:
            claims = self._store.write(self._owner, puts=puts, releases=releases, wanted=wanted)
        except BaseException as error:  # noqa: BLE001 - it is given to everybody who waits
            self._fail(items, error)
            return
        self._call(self._resolve, done, claiming, claims, wanted)

    def _fail(self, items: Sequence[Item], error: BaseException) -> None:
        self._failure = error
        self._call(self._refuse, [future for _, future in items], error)

    def _call(self, callback: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            # The loop is closed, so nobody waits any more; what was written is written.
            return

    def _resolve(
        self,
        done: Sequence[asyncio.Future[Any]],
        claiming: Sequence[asyncio.Future[Any]],
        claims: Sequence[Claim],
        wanted: Sequence[Wanted],
    ) -> None:
        for future in done:
            if not future.done():
                future.set_result(None)
        for future, claim, want in zip(claiming, claims, wanted, strict=True):
            if not future.done():
                future.set_result(claim)
            elif claim in ("granted", "granted_again") and not self._closed:
                # Whoever wanted it has gone, and nobody will ask: others may.
                self.release(Release(key=want.key, possibly_paid=False))

    def _refuse(self, futures: Sequence[asyncio.Future[Any]], error: BaseException) -> None:
        for future in futures:
            if not future.done():
                future.set_exception(error)

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
