"""The flow of rows: read, render, look up, ask what is missing, gather, hand on.

One event loop does the asking. Beside it, the desk renders rows, takes what is stored, and binds settled chunks into
batches; the press writes them out. What the desk works on is read and looked up by `Reading`, in threads of its own.

All that Python does to rows at rest is done at the desk, for two threads that both hold on to the interpreter's lock
take longer than one. A chunk for which the store has every answer never comes to the event loop at all.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from corpusmill.chat.limits import Limiter
from corpusmill.chat.sagemaker import open_client
from corpusmill.chat.transport import Timeouts, default_transport
from corpusmill.endpoints.endpoint import shown_url
from corpusmill.engine.alike import Alike
from corpusmill.engine.asking import Asker, Pending, Terms
from corpusmill.engine.ladder import Rung
from corpusmill.engine.passes import Passes
from corpusmill.engine.press import Press
from corpusmill.engine.reading import Reading
from corpusmill.engine.side_thread import SideThread
from corpusmill.engine.tally import Timeline, Wire
from corpusmill.errors import (
    EndpointDownError,
    InterruptedRunError,
    StoreError,
    StoreMissError,
)
from corpusmill.fingerprint import canonical, digest
from corpusmill.report import Moment
from corpusmill.store.protocol import Waits
from corpusmill.store.writer import GroupWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from corpusmill.chat.client import Client
    from corpusmill.endpoints import Endpoint
    from corpusmill.engine.outputs import Output
    from corpusmill.engine.pages import Binder, OpenChunk
    from corpusmill.engine.reading import Chunk
    from corpusmill.policy import Limits
    from corpusmill.prompts.prompt import Rendered
    from corpusmill.rows.judge import Answer
    from corpusmill.rows.render import Renderer
    from corpusmill.store.protocol import Membership, Store

WINDOW_ROWS = 65_536
"""Rows that may be open at once: enough that a straggler of half a minute holds up nobody at 2,000 rows a second."""

WINDOW_BYTES = 64 << 20

READY_BYTES = 8 << 20
"""Bytes of rows that may wait to be asked: their requests are made already, and take several times as much."""

SILENT_GRACE = 5.0
"""Seconds that the last look at an endpoint that is down gets, once the run gives it up."""

REMEMBERED_FAILURES = 10_000
TICK = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a run is doing, for whoever shows it.

    `rows` of `total` (None when unknown) are done: cells that have their answer, by the number of prompts.
    `waiting` says why nothing goes out, None when all is well; `in_flight` of `concurrency` are out.
    """

    phase: str
    rows: int
    total: int | None
    seconds: float
    live: int
    hits: int
    tokens: int
    in_flight: int
    concurrency: int
    backing_off: int
    rate_limited: int
    waiting: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Everything that a run has opened and the engine works with. `total` is the number of rows where known."""

    chunks: Iterator[Chunk]
    renderers: list[Renderer]
    endpoint: Endpoint
    store: Store
    member: Membership
    terms: Terms
    limits: Limits
    binder: Binder
    output: Output
    replay: bool
    total: int | None
    transport: httpx.AsyncBaseTransport | None
    progress: Callable[[Progress], None] | None


class Engine:
    """Runs a `Work` to its end, in the event loop of the thread that the door gives it."""

    def __init__(self, work: Work) -> None:
        """Name to the store what the requests of each prompt share; nothing is started yet."""
        self._work = work
        self.wire = Wire()
        self.timeline = Timeline()
        self._started = time.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._room: asyncio.Event | None = None
        self._ending: BaseException | None = None
        self._store_failure: StoreError | None = None
        self._asker: Asker | None = None
        self._grace: float | None = None
        self._told_to_stop: tuple[float | None] | None = None
        self._ready: deque[Pending] = deque()
        self._in_flight: dict[bytes, Pending] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: OrderedDict[tuple[bytes, int | None], Answer] = OrderedDict()
        self._busy = 0
        self._open_chunks = 0
        self._open_rows = 0
        self._open_bytes = 0
        self._unbound: dict[int, OpenChunk] = {}
        self._settled: deque[OpenChunk] = deque()
        self._read_rows = 0
        self._hits = 0
        # What is done, in two counts, because two threads write: cells that the desk finds done, and those answered.
        self._known_cells = 0
        self._answered_cells = 0
        self._all_read = False
        self._alike = Alike(url=shown_url(work.endpoint.url), model=work.endpoint.model)
        self._reading = Reading(
            work.chunks, work.renderers, work.store, terms=work.terms, invocation=work.member.invocation
        )
        self._keys_of_prompts = [self._shape(renderer) for renderer in work.renderers]

    async def run(self) -> None:
        """Do the work; raise what ended it early, after everything in the air was kept."""
        work = self._work
        self._loop = asyncio.get_running_loop()
        self._over, self._room = asyncio.Event(), asyncio.Event()
        if self._told_to_stop is not None:
            self._stop(self._told_to_stop[0])
        timeouts = Timeouts(connect=work.limits.connect_timeout, read=work.limits.read_timeout)
        transport = work.transport or default_transport(
            connections=work.limits.concurrency, timeouts=timeouts
        )
        client = open_client(work.endpoint, transport=transport, timeouts=timeouts)
        self._desk = SideThread("corpusmill-desk")
        self._press = Press(work.output, failed=self._end_from_afar)
        self._limiter = Limiter(work.limits, clock=time.monotonic, name=shown_url(work.endpoint.url))
        writer = GroupWriter(work.store, work.member.owner)
        own: list[asyncio.Task[None]] = []
        try:
            self._asker = self._make_asker(client, writer)
            reader, ticker = asyncio.create_task(self._read()), asyncio.create_task(self._tick())
            own += [reader, ticker]
            await self._over.wait()
            reader.cancel()
            await self._land()
        finally:
            tasks = [*own, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await writer.close()
            await client.aclose()
            await self._desk.close(cancel=True)
            await self._reading.close()
            # What is bound is written out, unless the run comes to nothing anyway.
            await self._press.close(cancel=self._ending is not None)
        for chunk in self._unbound.values():
            work.binder.count(chunk)
        if self._store_failure is not None:
            # Whatever ended the run first, answers that could not be kept are the worse news.
            raise self._store_failure
        if self._ending is not None:
            raise self._ending
        work.output.finish(self._read_rows)
        self._report_progress("written")

    def _make_asker(self, client: Client, writer: GroupWriter) -> Asker:
        work = self._work
        return Asker(
            client=client,
            passes=Passes(self._limiter, work.store, identity=work.endpoint.identity, limits=work.limits),
            writer=writer,
            store=work.store,
            member=work.member,
            terms=work.terms,
            identity=work.endpoint.identity,
            model=work.endpoint.model,
            wire=self.wire,
            sleep=self._back_off,
            end=self._end,
        )

    # ending

    def stop(self, *, grace: float | None) -> None:
        """End the run from any thread: nothing new is sent; what arrives within `grace` seconds is kept."""
        self._told_to_stop = (grace,)  # first, for `run` may be about to look
        if isinstance(self._work.store, Waits):
            self._work.store.hurry()
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._stop, grace)
        except RuntimeError:
            return  # the loop has closed: the run is over

    def _stop(self, grace: float | None) -> None:
        self._grace = grace
        self._end(InterruptedRunError("interrupted"))
        if grace == 0:
            for task in self._tasks:
                task.cancel()

    def _end(self, error: BaseException) -> None:
        if isinstance(error, StoreError):
            self._store_failure = self._store_failure or error
        if self._ending is None:
            self._ending = error
            if self._asker is not None:
                self._asker.ended = True
                for task in self._tasks - self._asker.in_the_air:
                    task.cancel()
        assert self._over is not None
        self._over.set()

    async def _land(self) -> None:
        """Wait for what is in the air: it is paid for."""
        flying = set(self._asker.in_the_air) if self._asker is not None else set()
        if flying:
            # Of an endpoint that has long been silent no answer is on its way.
            silent = self._grace is None and isinstance(self._ending, EndpointDownError)
            await asyncio.wait(flying, timeout=SILENT_GRACE if silent else self._grace)

    def _end_if_done(self) -> None:
        if self._all_read and not self._open_chunks:
            assert self._over is not None
            self._over.set()

    # reading

    async def _read(self) -> None:
        try:
            while not self._all_read:
                await self._wait_for_room()
                chunk = await asyncio.wrap_future(self._desk.submit(self._read_on))
                if chunk is not None:
                    self._admit(chunk)
                elif not self._all_read:
                    await self._reading.coming()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - ends the run, and is raised from it
            self._end(error)
            return
        self._end_if_done()

    async def _wait_for_room(self) -> None:
        assert self._room is not None
        enough = 2 * self._work.limits.concurrency + 256
        while (
            len(self._ready) >= enough
            or len(self._ready) * self._open_bytes > READY_BYTES * self._open_rows  # by their mean weight
            or self._open_rows >= max(WINDOW_ROWS, 64 * self._work.limits.concurrency)
            or self._open_bytes >= WINDOW_BYTES
        ):
            self._room.clear()
            await self._room.wait()

    def _read_on(self) -> OpenChunk | None:
        """Read up to the next chunk of which something has to be asked.

        None at the end, while the source has nothing yet, and when settled chunks wait to be bound.
        """
        while self._ending is None and not self._settled:
            chunk = self._reading.next()
            if chunk is None:
                self._all_read = self._reading.ended
                return None
            self._read_rows += chunk.batch.num_rows
            self._hits += chunk.hits()
            self._known_cells += chunk.batch.num_rows * len(self._work.renderers) - chunk.missing
            if chunk.missing:
                return chunk
            self._hand_on(chunk)
        return None

    def _admit(self, chunk: OpenChunk) -> None:
        self._unbound[chunk.first_row] = chunk
        self._open_chunks += 1
        self._open_rows += chunk.batch.num_rows
        self._open_bytes += chunk.weight
        for position, row, rendered in chunk.to_ask:
            self._want(chunk, position, row, rendered)
        chunk.to_ask.clear()
        chunk.rest()
        self._start_more()

    def _want(self, chunk: OpenChunk, position: int, row: int, rendered: Rendered) -> None:
        key = chunk.asked[position].keys[row]
        assert key is not None
        if self._work.replay:
            raise StoreMissError(
                f"row {chunk.first_row + row} has no stored answer for {self._work.renderers[position].prompt.into!r} "
                f"(request key {key.hex()}), and the mode is replay; "
                f"`corpusmill store explain` tells what the nearest stored request differs in"
            )
        pending = self._in_flight.get(key)
        waiter = (chunk, position, row)
        rung = chunk.rungs.get((position, row)) or Rung(None, rendered.ceiling)
        if pending is None:
            pending = self._pending(position, key, rendered, rung)
            self._in_flight[key] = pending
            self._ready.append(pending)
        elif pending.ceiling != rung.ceiling:
            # The same content under another ceiling: whether the answer will serve it is known when it is there.
            for follower in pending.followers:
                if follower.ceiling == rung.ceiling:
                    follower.waiters.append(waiter)
                    return
            follower = self._pending(position, key, rendered, rung)
            follower.waiters.append(waiter)
            pending.followers.append(follower)
            return
        pending.waiters.append(waiter)

    def _pending(self, position: int, key: bytes, rendered: Rendered, rung: Rung) -> Pending:
        return Pending(
            key=key,
            ceiling=rung.ceiling,
            raised=rung.raised,
            renderer=self._work.renderers[position],
            rendered=rendered,
            shape=self._keys_of_prompts[position],
            not_before=self._work.terms.not_before,
        )

    def _shape(self, renderer: Renderer) -> str:
        shape = digest(canonical(dict(renderer.shared_fields))).hex()
        self._work.store.put_fields(shape, renderer.shared_fields)
        return shape

    # asking

    def _start_more(self) -> None:
        # A few more than can have a permit, so that one is waiting whenever one is given back.
        ceiling = self._work.limits.concurrency + 16
        while self._ready and self._busy < ceiling and self._ending is None:
            pending = self._ready.popleft()
            self._busy += 1
            task = asyncio.create_task(self._serve(pending))
            self._tasks.add(task)
            task.add_done_callback(self._served)
        if self._room is not None:
            self._room.set()

    def _served(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._busy -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end(error)
        self._start_more()

    async def _serve(self, pending: Pending) -> None:
        failed = self._failed.get((pending.key, pending.ceiling))
        if failed is not None:
            answer = failed
        else:
            assert self._asker is not None
            answer = await self._asker.ask(pending)
            if answer.completion is None:
                self._failed[(pending.key, pending.ceiling)] = replace(answer, attempts=0, seconds=None)
                if len(self._failed) > REMEMBERED_FAILURES:
                    self._failed.popitem(last=False)
            self._alike.hear(
                answer, ceiling=pending.ceiling, hits=self._hits, messages=pending.rendered.messages
            )
        del self._in_flight[pending.key]
        self._settle(pending, answer)

    def _settle(self, pending: Pending, answer: Answer) -> None:
        first = True
        for chunk, position, row in pending.waiters:
            given = answer
            if not first and answer.completion is not None and answer.origin == "live":
                given = replace(answer, origin="deduplicated", attempts=0, seconds=None)
            first = False
            self._answered_cells += 1
            if chunk.settle(position, row, given):
                self._bind(chunk)
        for follower in pending.followers:
            known = self._in_flight.get(follower.key)
            if known is None:
                self._in_flight[follower.key] = follower
                self._ready.appendleft(follower)
            else:
                known.followers.append(follower)

    async def _back_off(self, seconds: float) -> None:
        """Sleep without being counted as busy: another request takes the place."""
        if self._ending is not None:
            raise asyncio.CancelledError("the run is ending, and nothing is asked again")
        self._busy -= 1
        self.wire.backing_off += 1
        self._start_more()
        try:
            await asyncio.sleep(seconds)
        finally:
            self.wire.backing_off -= 1
            self._busy += 1

    # binding

    def _bind(self, chunk: OpenChunk) -> None:
        self._settled.append(chunk)
        binding = asyncio.wrap_future(self._desk.submit(self._bind_settled))
        binding.add_done_callback(self._bound)

    def _bind_settled(self) -> list[OpenChunk]:
        bound = []
        while self._settled and self._ending is None:
            chunk = self._settled.popleft()
            del self._unbound[chunk.first_row]
            self._hand_on(chunk)
            bound.append(chunk)
        return bound

    def _hand_on(self, chunk: OpenChunk) -> None:
        """Bind a chunk and let the press have it; waits while the press is behind."""
        self._press.take(chunk.first_row, self._work.binder.bind(chunk))

    def _end_from_afar(self, error: BaseException) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._end, error)

    def _bound(self, binding: asyncio.Future[list[OpenChunk]]) -> None:
        if binding.cancelled():
            return
        if (error := binding.exception()) is not None:
            self._end(error)
            return
        for chunk in binding.result():
            self._open_chunks -= 1
            self._open_rows -= chunk.batch.num_rows
            self._open_bytes -= chunk.weight
        assert self._room is not None
        self._room.set()
        self._end_if_done()

    # showing

    async def _tick(self) -> None:
        try:
            while True:
                self._report_progress("asking")
                await asyncio.sleep(TICK)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whoever shows the progress has failed; raised from the run
            self._end(error)

    def _report_progress(self, phase: str) -> None:
        seconds = time.monotonic() - self._started
        self.timeline.add(
            Moment(
                seconds=round(seconds, 3),
                rows=self._progress(phase, seconds).rows,
                live=self.wire.live,
                in_flight=self.wire.in_flight,
                rate_limited=self.wire.rate_limited,
            )
        )
        if self._work.progress is not None:
            self._work.progress(self._progress(phase, seconds))

    def _progress(self, phase: str, seconds: float) -> Progress:
        wire = self.wire
        return Progress(
            phase=phase,
            rows=(self._known_cells + self._answered_cells) // len(self._work.renderers),
            total=self._work.total,
            seconds=seconds,
            live=wire.live,
            hits=self._hits,
            tokens=wire.prompt_tokens + wire.completion_tokens,
            in_flight=wire.in_flight,
            concurrency=self._work.limits.concurrency,
            backing_off=wire.backing_off,
            rate_limited=wire.rate_limited,
            waiting=self._waiting(),
        )

    def _waiting(self) -> str | None:
        if isinstance(self._work.store, Waits) and (told := self._work.store.waiting()) is not None:
            return told
        wait = self._limiter.waiting
        if wait is None or not self._limiter.queued or wait.until is None:
            return None
        if wait.gives_up is not None:
            left = max(0.0, wait.gives_up - time.monotonic())
            return f"{wait.reason}; unless it answers, the run ends in {left:.0f} s (limits.patience), to be resumed"
        left = wait.until - time.monotonic()
        if left < 1:
            return None  # a pause between two requests, as any rate limit has them
        return f"{wait.reason} ({left:.0f} s more)"
