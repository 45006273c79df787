"""No paid answer is dropped for its framing, and nothing that is no whole answer passes for one."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import re
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pytest

from corpusmill import Ask, OpenAICompatible, RetryPolicy, enrich, read
from corpusmill.chat import body as module
from corpusmill.chat.client import ChatClient
from corpusmill.chat.sagemaker import open_client
from corpusmill.chat.transport import Timeouts, default_transport
from corpusmill.chat.verdict import Accepted, RetryAfter, RowFailed, Verdict
from corpusmill.endpoints.sagemaker import AwsCredentials, SageMakerEndpoint
from corpusmill.endpoints.secret import Secret
from corpusmill.exchange import ChatRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from pathlib import Path

    from corpusmill.endpoints import Endpoint

    Run = Callable[[Coroutine[Any, Any, Verdict]], Verdict]

REQUEST = ChatRequest(messages=[{"role": "user", "content": "Labdien"}])
CALM = Timeouts(connect=300, read=300, write=300)
ANSWER = json.dumps(
    {"choices": [{"index": 0, "message": {"content": "ā {}"}, "finish_reason": "stop"}], "usage": {}}
).encode()
LONGER = 100_000
"""Bytes that are announced beyond those that come."""

LOST, UNENDED = "connection_lost_after_answer", "body_without_end"


def stated(body: bytes, *, coding: bytes = b"") -> bytes:
    """Give a response that states more bytes than come."""
    return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (coding, len(body) + LONGER, body)


def chunked(body: bytes, end: bytes = b"") -> bytes:
    """Give a response in a chunk that is not the last."""
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n%b" % (len(body), body, end)


def unframed(body: bytes) -> bytes:
    """Give a response that ends with its connection."""
    return b"HTTP/1.0 200 OK\r\n\r\n" + body


def zipped(body: bytes) -> bytes:
    """Give a response whose compressed body lacks a part of its trailer."""
    return stated(gzip.compress(body)[:-5], coding=b"Content-Encoding: gzip\r\n")


ENDINGS: dict[str, tuple[Callable[[bytes], bytes], str, str]] = {
    "stated, closed": (stated, "close", LOST),
    "stated, reset": (stated, "reset", LOST),
    "stated, open": (stated, "stall", UNENDED),
    "stated, open, with white space": (stated, "drip", UNENDED),
    "chunked, closed": (chunked, "close", LOST),
    "chunked, reset": (chunked, "reset", LOST),
    "chunked, open": (chunked, "stall", UNENDED),
    "chunked, closed in the last line": (lambda body: chunked(body, b"0\r\n"), "close", LOST),
    "chunked, a chunk of no size": (lambda body: chunked(body, b"zz\r\n"), "stall", LOST),
    "chunked, open, with white space": (chunked, "drip", UNENDED),
    "unframed, reset": (unframed, "reset", LOST),
    "unframed, open": (unframed, "stall", UNENDED),
    "compressed, closed": (zipped, "close", LOST),
    "compressed, reset": (zipped, "reset", LOST),
    "compressed, open": (zipped, "stall", UNENDED),
}


class Server:
    """Answers the first request of each connection with some bytes, and leaves the connection in some way."""

    def __init__(self, response: bytes, how: str) -> None:
        self.url = ""
        self.connections = 0
        self._response = response
        self._how = how

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            assert length is not None
            await reader.readexactly(int(length[1]))
            writer.write(self._response)
            await writer.drain()
            await self._leave(reader, writer)
        writer.close()

    async def _leave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._how == "stall":
            await reader.read()
        elif self._how == "drip":
            space = b"1\r\n \r\n" if b"chunked" in self._response else b" "
            while not reader.at_eof():
                writer.write(space)
                await writer.drain()
                await asyncio.sleep(0.005)
        elif self._how == "reset":
            for _ in range(20):
                # The client, in this very loop, reads: a reset takes away what has not been read.
                await asyncio.sleep(0)
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()


@contextlib.asynccontextmanager
async def serving(response: bytes, how: str) -> AsyncIterator[Server]:
    """Serve it on loopback."""
    it = Server(response, how)
    tasks: set[asyncio.Task[Any]] = set()

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await it.serve(reader, writer)

    server = await asyncio.start_server(guarded, "127.0.0.1", 0)
    it.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield it
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def openai(url: str) -> Endpoint:
    """Describe a server that speaks as most do."""
    return OpenAICompatible(f"{url}/v1", "m", api_key="key")


def sagemaker(url: str) -> Endpoint:
    """Describe a SageMaker endpoint, asked in real time."""
    credentials = AwsCredentials(access_key="AKIA", secret_key=Secret("secret"))
    return SageMakerEndpoint(
        endpoint_name="tilde", region="eu-north-1", model="m", endpoint_url=url, credentials=credentials
    )


def ask_twice(
    response: bytes,
    how: str,
    *,
    timeouts: Timeouts = CALM,
    deadline: float | None = None,
    describe: Callable[[str], Endpoint] = openai,
) -> Verdict:
    """Make two attempts one after the other; see that they mean the same and share no connection."""

    async def attempts() -> Verdict:
        async with serving(response, how) as server:
            transport = default_transport(connections=1, timeouts=timeouts)
            client = open_client(describe(server.url), transport=transport, timeouts=timeouts)
            try:
                first, second = [await client.send(REQUEST, deadline=deadline) for _ in range(2)]
            finally:
                await client.aclose()
            assert type(first) is type(second)
            assert server.connections == 2
            return first

    return asyncio.run(asyncio.wait_for(attempts(), 30))


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_whole_answer_is_kept_however_its_body_ends(monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    """With a note of what was amiss; its connection is not used again."""
    monkeypatch.setattr(module, "LAST_BYTES", 0.05)
    respond, how, note = ENDINGS[ending]
    verdict = ask_twice(respond(ANSWER), how)
    assert isinstance(verdict, Accepted), verdict
    assert (verdict.completion.content, verdict.notes) == ("ā {}", (note,))


@pytest.mark.parametrize("how", ["close", "reset", "stall"])
def test_a_whole_answer_from_sagemaker_is_kept_too(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Real time is read in the same way."""
    monkeypatch.setattr(module, "LAST_BYTES", 0.05)
    verdict = ask_twice(stated(ANSWER), how, describe=sagemaker)
    assert isinstance(verdict, Accepted), verdict
    assert verdict.notes == (UNENDED if how == "stall" else LOST,)


@pytest.mark.parametrize("respond", [stated, chunked, zipped])
def test_a_read_time_out_after_a_whole_answer_costs_nothing(respond: Callable[[bytes], bytes]) -> None:
    """One that is shorter than what a silent end is given."""
    verdict = ask_twice(respond(ANSWER), "stall", timeouts=Timeouts(read=0.2))
    assert isinstance(verdict, Accepted), verdict
    assert verdict.notes == (UNENDED,)


@pytest.mark.parametrize("describe", [openai, sagemaker])
@pytest.mark.parametrize("how", ["stall", "drip"])
@pytest.mark.parametrize("respond", [stated, chunked])
def test_an_answer_that_is_whole_at_the_deadline_is_kept(
    monkeypatch: pytest.MonkeyPatch,
    respond: Callable[[bytes], bytes],
    how: str,
    describe: Callable[[str], Endpoint],
) -> None:
    """One that comes so late that its end is still waited for."""
    monkeypatch.setattr(module, "LAST_BYTES", 60.0)
    verdict = ask_twice(respond(ANSWER), how, deadline=0.2, describe=describe)
    assert isinstance(verdict, Accepted), verdict
    assert (verdict.completion.content, verdict.notes) == ("ā {}", (UNENDED,))


@pytest.mark.parametrize("response", [b"", b"HTTP/1.1 200 OK\r\n", stated(ANSWER[:-1]), chunked(b" ")])
def test_what_is_not_whole_at_the_deadline_is_too_slow(response: bytes) -> None:
    """However far it has come; it may have been paid for."""
    verdict = ask_twice(response, "stall", deadline=0.1)
    assert isinstance(verdict, RetryAfter), verdict
    assert (verdict.kind, verdict.possibly_paid) == ("too_slow", True)


@pytest.mark.parametrize(("reason", "kept"), [(b'"stop"', True), (b"null", False)])
def test_a_stream_that_only_pings_at_the_deadline_is_kept_once_it_has_its_finish_reason(
    run: Run, *, reason: bytes, kept: bool
) -> None:
    """Its last event is not waited for any longer."""
    event = (
        b'data: {"choices": [{"index": 0, "delta": {"content": "Sveiki"}, "finish_reason": %b}]}\n\n' % reason
    )
    verdict = run(attempt(Late(event, *[b": ping\n\n"] * 100, seconds=10), streamed=True, deadline=300))
    if kept:
        assert isinstance(verdict, Accepted), verdict
        assert (verdict.completion.content, verdict.notes) == ("Sveiki", ("stream_without_done",))
    else:
        assert isinstance(verdict, RetryAfter), verdict
        assert verdict.kind == "too_slow"


@pytest.mark.parametrize(
    "ending", ["stated, closed", "stated, open", "chunked, reset", "unframed, open", "compressed, closed"]
)
@pytest.mark.parametrize(
    "body",
    [ANSWER[:-1], ANSWER.replace(b'"stop"', b"null"), ANSWER + ANSWER, b'{"status": "working"}', b" \n"],
    ids=["cut", "without a finish reason", "twice", "something else", "white space"],
)
def test_what_is_no_whole_answer_is_none(monkeypatch: pytest.MonkeyPatch, body: bytes, ending: str) -> None:
    """It may have been paid for and is asked again, after the read time-out where no end comes."""
    monkeypatch.setattr(module, "LAST_BYTES", 0.01)
    respond, how, _ = ENDINGS[ending]
    verdict = ask_twice(respond(body), how, timeouts=Timeouts(read=0.2))
    assert isinstance(verdict, RetryAfter), verdict
    assert (verdict.kind, verdict.possibly_paid) == ("cut_body", True)


# What comes late, in a time that passes in timers only.


class Late(httpx.AsyncByteStream):
    """A body whose pieces come one by one, so many seconds after the one before."""

    def __init__(self, *pieces: bytes, seconds: float, ends: bool = True) -> None:
        self.pieces = pieces
        self.seconds = seconds
        self.ends = ends
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            await asyncio.sleep(self.seconds)
            yield piece
        if not self.ends:
            await asyncio.sleep(3_600)
            raise httpx.ReadTimeout("nothing moved")

    async def aclose(self) -> None:
        self.closed = True


async def attempt(
    body: httpx.AsyncByteStream, *, status: int = 200, streamed: bool = False, deadline: float | None = None
) -> Verdict:
    """Make one attempt at a server that sends this body."""
    client = ChatClient(
        OpenAICompatible("http://h.example/v1", "m", api_key="key", stream=streamed),
        transport=httpx.MockTransport(lambda _: httpx.Response(status, stream=body)),
    )
    return await client.send(REQUEST, deadline=deadline)


CUTS: dict[str, Sequence[bytes]] = {
    "every byte": [ANSWER[place : place + 1] for place in range(len(ANSWER))],
    "after each brace": re.findall(rb"[^}]*}", ANSWER),
    "with white space between and before": [b" ", b"\n", ANSWER[:20], ANSWER[20:-1], ANSWER[-1:]],
}


@pytest.mark.parametrize("cut", CUTS)
def test_an_answer_that_comes_with_pauses_is_waited_for(run: Run, cut: str) -> None:
    """Longer ones than the end is given: only what is whole can be all."""
    pieces = CUTS[cut]
    assert b"".join(pieces).strip() == ANSWER
    verdict = run(attempt(Late(*pieces, seconds=20 * module.LAST_BYTES)))
    assert isinstance(verdict, Accepted), verdict
    assert (verdict.completion.content, verdict.notes) == ("ā {}", ())


def test_a_body_that_ends_soon_after_a_whole_answer_is_read_to_its_end(run: Run) -> None:
    """White space and an end within the time that they have are nothing to note."""
    body = Late(ANSWER, b"\r\n", seconds=0.4 * module.LAST_BYTES)
    verdict = run(attempt(body))
    assert isinstance(verdict, Accepted), verdict
    assert verdict.notes == ()


@pytest.mark.parametrize(
    "before", [b'{"status": "working"}', ANSWER.replace(b'"stop"', b"null")], ids=["progress", "partial"]
)
def test_an_object_before_the_answer_is_not_taken_for_it(run: Run, before: bytes) -> None:
    """Nor are two objects together one."""
    verdict = run(attempt(Late(before, ANSWER, seconds=20 * module.LAST_BYTES)))
    assert isinstance(verdict, RetryAfter), verdict


def test_an_answer_that_is_followed_by_more_is_none(run: Run) -> None:
    """As long as it follows before the end is given up."""
    verdict = run(attempt(Late(ANSWER, b"{", seconds=0.5 * module.LAST_BYTES, ends=False)))
    assert isinstance(verdict, RetryAfter), verdict


def test_a_refusal_that_does_not_end_is_still_that_refusal(run: Run) -> None:
    """What it says has come, whatever the read time-out then says."""
    body = Late(b'{"error": {"message": "no", "code": "context_length_exceeded"}}', seconds=0.0, ends=False)
    verdict = run(attempt(body, status=400))
    assert getattr(verdict, "kind", None) == "context_overflow"


def test_a_body_is_looked_at_few_times(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither after each piece nor after each pause, since each look reads the whole of it."""
    looks: list[int] = []

    def count(body: bytes) -> bool:
        looks.append(len(body))
        return False

    monkeypatch.setattr(module, "_is_answer", count)
    run(attempt(Late(*[b"}"] * 10_000, seconds=0.5 * module.LAST_BYTES)))
    assert len(looks) == 0
    run(attempt(Late(*[b"}"] * 10_000, seconds=2.5 * module.LAST_BYTES)))
    assert len(looks) <= 3


def test_a_cancelled_attempt_leaves_no_timer_behind(run: Run) -> None:
    """Also one that was waiting for the end of a body."""

    async def cancelled() -> Verdict:
        body = Late(ANSWER, seconds=0.0, ends=False)
        task = asyncio.ensure_future(attempt(body))
        await asyncio.sleep(0.5 * module.LAST_BYTES)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert body.closed
        loop: Any = asyncio.get_running_loop()
        assert [timer for timer in loop._scheduled if not timer.cancelled()] == []
        return await attempt(Late(ANSWER, seconds=0.0))

    assert isinstance(run(cancelled()), Accepted)


def test_all_that_is_being_read_is_bounded_together(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large bodies beyond the bound fail their rows; small ones beside them do not, nor what comes afterwards."""
    monkeypatch.setattr(module, "LARGE", 10_000)
    monkeypatch.setattr(module, "LARGEST_TOGETHER", 100_000)

    def body(size: int) -> Late:
        return Late(*[b" " * 1_000] * (size // 1_000), ANSWER, seconds=0.1)

    async def together() -> Verdict:
        bodies = [body(size) for size in [9_000] * 20 + [30_000] * 8]
        client = ChatClient(
            OpenAICompatible("http://h.example/v1", "m", api_key="key"),
            transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=bodies.pop())),
        )
        verdicts = await asyncio.gather(*(client.send(REQUEST) for _ in range(28)))
        large, small = verdicts[:8], verdicts[8:]
        failed = [verdict for verdict in large if isinstance(verdict, RowFailed)]
        assert {(verdict.kind, verdict.possibly_paid) for verdict in failed} == {("answer_too_large", True)}
        assert "100000" in failed[0].reason
        assert sum(isinstance(verdict, Accepted) for verdict in large) == 3
        assert all(isinstance(verdict, Accepted) for verdict in small)
        bodies.append(body(90_000))
        return await client.send(REQUEST)

    assert isinstance(run(together()), Accepted)


# Through a run.


@pytest.mark.parametrize("ending", ["stated, open", "stated, reset", "chunked, open, with white space"])
def test_a_run_asks_once_for_what_came_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """One request, one row completed, before its deadline is over."""
    monkeypatch.setattr(module, "LAST_BYTES", 0.05)
    respond, how, note = ENDINGS[ending]
    there = threading.Event()
    done = threading.Event()
    servers: list[Server] = []

    async def serve() -> None:
        async with serving(respond(ANSWER), how) as server:
            servers.append(server)
            there.set()
            await asyncio.to_thread(done.wait, 60)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert there.wait(60)
        report = enrich(
            pa.table({"text": ["Labdien"]}),
            tmp_path / "out",
            Ask("{text}", into="out"),
            endpoint=OpenAICompatible(f"{servers[0].url}/v1", "m"),
            store=f"sqlite:///{tmp_path / 'store.db'}",
            retry=RetryPolicy(deadline=30.0),
        )
    finally:
        done.set()
        thread.join()
    assert (report.attempts, report.answers, servers[0].connections) == (1, 1, 1)
    (row,) = read(tmp_path / "out").to_table().to_pylist()
    assert (row["out"], row["out_outcome"]["status"]) == ("ā {}", "completed")
    assert row["out_outcome"]["notes"] == [note]
