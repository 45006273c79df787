"""The table of faults that a transport must pass, over raw servers on loopback.

`CORPUSMILL_TRANSPORTS` names the candidates of `benchmarks/transport.py` to put through it, with commas
between; unset, it is the one that is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import importlib.util
import os
import re
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest

from corpusmill.chat.transport import Timeouts, default_transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    Make = Callable[..., httpx.AsyncBaseTransport]

SOON = Timeouts(connect=0.3, read=0.3, write=0.3)
CALM = Timeouts(connect=10, read=10, write=10)
KEY = "sk-never-to-be-shown"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ENDLESS = 600


def _candidates() -> dict[str, Make]:
    path = Path(__file__).parents[2] / "benchmarks" / "transport.py"
    spec = importlib.util.spec_from_file_location("transport_candidates", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    candidates: dict[str, Make] = module.CANDIDATES
    return candidates


@pytest.fixture(params=os.environ.get("CORPUSMILL_TRANSPORTS", "ours").split(","))
def make(request: pytest.FixtureRequest) -> Make:
    """What makes the transport under test."""
    return default_transport if request.param == "ours" else _candidates()[request.param]


class Peer:
    """A server on loopback that does with each connection what its script says."""

    def __init__(self, script: Callable[[Peer], Script]) -> None:
        self.url = ""
        self.connections = 0
        self.now = 0
        self.peak = 0
        self.bodies: list[bytes] = []
        self.heads: list[bytes] = []
        self._script = script(self)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def request(self, reader: asyncio.StreamReader) -> None:
        """Read one request, and note it."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        self.heads.append(head)
        self.bodies.append(await reader.readexactly(int(length[1])) if length else b"")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.now += 1
        self.peak = max(self.peak, self.now)
        try:
            await self._script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            return  # as StreamReaderProtocol of Python 3.11 reports cancelled handlers as errors
        finally:
            self.now -= 1
            self._tasks.discard(task)
            writer.close()

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def peer(script: Callable[[Peer], Script], **listen: Any) -> AsyncIterator[Peer]:
    """Serve a script, which is given the peer to note requests with."""
    it = Peer(script)
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0, **listen)
    scheme = "https" if "ssl" in listen else "http"
    it.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat/completions"
    try:
        yield it
    finally:
        server.close()
        await it.stop()
        await server.wait_closed()


def answering(*writes: bytes, pause: float = 0.0, then: str = "close", times: int = 1_000_000) -> Any:
    """Answer each request of a connection with these bytes; after so many times do what `then` says."""

    def script(it: Peer) -> Script:
        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in range(times):
                await it.request(reader)
                for piece in writes:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(pause)
            await leave(writer, then)

        return run

    return script


async def leave(writer: asyncio.StreamWriter, how: str) -> None:
    """Close a connection, reset it, or leave it hanging."""
    if how == "stall":
        await asyncio.sleep(ENDLESS)
    elif how == "reset":
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()


def request(url: str, timeouts: Timeouts = CALM, **options: Any) -> httpx.Request:
    """A chat request with a key and its phases, as httpx has them."""
    phases = {"connect": timeouts.connect, "read": timeouts.read, "write": timeouts.write, "pool": None}
    options.setdefault("content", b'{"n": 1}')
    options.setdefault("headers", {"Authorization": f"Bearer {KEY}"})
    return httpx.Request("POST", url, extensions={"timeout": phases}, **options)


async def call(
    transport: httpx.AsyncBaseTransport, url: str, timeouts: Timeouts = CALM, **options: Any
) -> httpx.Response:
    """Send it and read the response to its end."""
    response = await transport.handle_async_request(request(url, timeouts, **options))
    try:
        await response.aread()
    finally:
        await response.aclose()
    return response


def closed_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run it, and fail rather than hang."""
    asyncio.run(asyncio.wait_for(scenario, 60))


FAULTS: dict[str, tuple[Any, type[httpx.TransportError] | tuple[type[httpx.TransportError], ...]]] = {
    "a stall before the head": (answering(times=1, then="stall"), httpx.ReadTimeout),
    "a stall in the head": (answering(b"HTTP/1.1 200 OK\r\n", times=1, then="stall"), httpx.ReadTimeout),
    "a stall in the body": (
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", times=1, then="stall"),
        httpx.ReadTimeout,
    ),
    "a stall in a chunk": (
        answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc", times=1, then="stall"),
        httpx.ReadTimeout,
    ),
    "a close before a byte": (answering(times=1), (httpx.ReadError, httpx.RemoteProtocolError)),
    "a reset before a byte": (
        answering(times=1, then="reset"),
        (httpx.ReadError, httpx.RemoteProtocolError),
    ),
    "a close in the head": (
        answering(b"HTTP/1.1 200 OK\r\nContent-", times=1),
        (httpx.ReadError, httpx.RemoteProtocolError),
    ),
    "a reset in the body": (
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", pause=0.1, times=1, then="reset"),
        (httpx.ReadError, httpx.RemoteProtocolError),
    ),
    "a cut body": (
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", times=1),
        (httpx.ReadError, httpx.RemoteProtocolError),
    ),
    "an aborted chunked body": (
        answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", times=1),
        (httpx.ReadError, httpx.RemoteProtocolError),
    ),
    "a chunked body without its last line": (
        answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", times=1),
        (httpx.ReadError, httpx.RemoteProtocolError),
    ),
    "a chunk of no size": (
        answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n", times=1),
        (httpx.ReadError, httpx.RemoteProtocolError),
    ),
    "a cut gzip body": (
        answering(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 900\r\n\r\n"
            + gzip.compress(b"text" * 50)[:20],
            times=1,
        ),
        (httpx.ReadError, httpx.RemoteProtocolError),
    ),
    "something else than HTTP": (
        answering(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", times=1),
        httpx.RemoteProtocolError,
    ),
    "HTTP/2 frames": (
        answering(b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x00\x00", times=1),
        (httpx.ReadError, httpx.RemoteProtocolError),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_a_transport_error_of_its_kind_and_never_an_answer(make: Make, fault: str) -> None:
    """Whatever the peer does wrong, the caller learns how far the exchange got, and nothing of the key."""
    script, kind = FAULTS[fault]

    async def scenario() -> None:
        timeouts = SOON if kind is httpx.ReadTimeout else CALM
        transport = make(connections=2, timeouts=timeouts)
        async with peer(script) as it:
            with pytest.raises(kind) as caught:
                await call(transport, it.url, timeouts)
            await transport.aclose()
        assert isinstance(caught.value, httpx.TransportError)
        assert it.bodies == [b'{"n": 1}']
        assert KEY not in repr(caught.value) + str(caught.value)

    run(scenario())


def test_a_refused_connection_is_a_connect_error(make: Make) -> None:
    """Nothing was sent, and the kind of the error says so."""

    async def scenario() -> None:
        transport = make(connections=2, timeouts=CALM)
        with pytest.raises(httpx.ConnectError) as caught:
            await call(transport, f"http://127.0.0.1:{closed_port()}/")
        assert KEY not in repr(caught.value)
        await transport.aclose()

    run(scenario())


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 80 + ".invalid"])
def test_a_name_that_does_not_resolve_is_a_connect_error(
    make: Make, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is a name that could never resolve."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)

    async def scenario() -> None:
        transport = make(connections=2, timeouts=CALM)
        with pytest.raises(httpx.ConnectError):
            await call(transport, f"http://{host}/")
        await transport.aclose()

    run(scenario())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux leaves a connection to a full queue waiting")
def test_a_connection_that_does_not_come_about_is_a_connect_timeout(make: Make) -> None:
    """A peer that accepts nobody costs the connect phase and no more."""

    async def scenario() -> None:
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            for _ in range(4):
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            transport = make(connections=2, timeouts=SOON)
            with pytest.raises(httpx.ConnectTimeout):
                await call(transport, f"http://127.0.0.1:{listener.getsockname()[1]}/", SOON)
            await transport.aclose()

    run(scenario())


def test_a_peer_that_takes_no_bytes_is_a_write_timeout(make: Make) -> None:
    """A request that nobody reads ends in the phase in which it hangs."""

    def deaf(it: Peer) -> Script:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            await asyncio.sleep(ENDLESS)

        return script

    async def scenario() -> None:
        timeouts = Timeouts(connect=10, read=30, write=0.3)
        transport = make(connections=2, timeouts=timeouts)
        async with peer(deaf) as it:
            with pytest.raises(httpx.WriteTimeout):
                await call(transport, it.url, timeouts, content=bytes(30_000_000))
            await transport.aclose()

    run(scenario())


def test_a_large_request_arrives_whole(make: Make) -> None:
    """More than any buffer holds is sent as the peer takes it."""

    async def scenario() -> None:
        transport = make(connections=2, timeouts=CALM)
        content = os.urandom(1_000) * 5_000
        async with peer(answering(OK)) as it:
            assert (await call(transport, it.url, content=content)).content == b"ok"
            assert it.bodies == [content]
            await transport.aclose()

    run(scenario())


def test_a_body_that_trickles_for_longer_than_any_phase_succeeds(make: Make) -> None:
    """Phases are not summed, and there is no hidden total."""

    async def scenario() -> None:
        timeouts = Timeouts(connect=0.3, read=1.0, write=0.3)
        transport = make(connections=2, timeouts=timeouts)
        pieces = [b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n", *[b"x"] * 8]
        async with peer(answering(*pieces, pause=0.25)) as it:
            assert (await call(transport, it.url, timeouts)).content == b"x" * 8
            await transport.aclose()

    run(scenario())


def test_the_timeouts_of_a_request_go_before_those_of_the_transport(make: Make) -> None:
    """The extension that httpx has for it is obeyed, shorter and longer."""

    async def scenario() -> None:
        async with peer(answering(OK, times=1, then="stall")) as it:
            transport = make(connections=2, timeouts=CALM)
            await call(transport, it.url, CALM)
            with pytest.raises(httpx.ReadTimeout):
                await call(transport, it.url, SOON)
            await transport.aclose()
        async with peer(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", b"\r\n", pause=0.6)) as it:
            transport = make(connections=2, timeouts=SOON)
            assert (await call(transport, it.url, CALM)).status_code == 200
            await transport.aclose()

    run(scenario())


def test_small_pieces_of_a_stream_arrive_at_once(make: Make) -> None:
    """The next event is sent only after the one before was seen here, so nothing may wait for the end."""
    seen = asyncio.Event()

    def turns(it: Peer) -> Script:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await it.request(reader)
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            for number in range(5):
                event = b"data: %d\n\n" % number
                writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                await seen.wait()
                seen.clear()
            writer.write(b"0\r\n\r\n")

        return script

    async def scenario() -> None:
        transport = make(connections=2, timeouts=CALM)
        async with peer(turns) as it:
            response = await transport.handle_async_request(request(it.url))
            events = []
            async for piece in response.aiter_raw():
                events.append(bytes(piece))
                seen.set()
            assert events == [b"data: %d\n\n" % number for number in range(5)]
            await transport.aclose()

    run(scenario())


@pytest.mark.parametrize(
    "framing", [b"Content-Length: %d\r\n\r\n%b", b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"]
)
def test_a_gzip_body_is_decoded_and_its_raw_bytes_are_raw(make: Make, framing: bytes) -> None:
    """Both faces of an encoded response are httpx's."""
    packed = gzip.compress("žluťoučký kůň".encode() * 100)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"

    async def scenario() -> None:
        transport = make(connections=2, timeouts=CALM)
        async with peer(answering(head + framing % (len(packed), packed))) as it:
            assert (await call(transport, it.url)).text == "žluťoučký kůň" * 100
            response = await transport.handle_async_request(request(it.url))
            assert b"".join([piece async for piece in response.aiter_raw()]) == packed
            await transport.aclose()

    run(scenario())


def test_headers_travel_intact_with_their_duplicates(make: Make) -> None:
    """Neither direction folds, drops or adds to what the other side has to see."""
    head = b"HTTP/1.1 200 OK\r\nX-Note: one\r\nContent-Length: 2\r\nx-note: two\r\nX-Word: caf\xe9\r\n\r\nok"

    async def scenario() -> None:
        transport = make(connections=2, timeouts=CALM)
        async with peer(answering(head)) as it:
            sent = [("X-Tag", "a"), ("Authorization", f"Bearer {KEY}"), ("X-Tag", "b")]
            response = await call(transport, it.url, headers=sent)
            assert response.headers.get_list("x-note") == ["one", "two"]
            assert response.headers["x-word"] == "café"
            lines = it.heads[0].lower().split(b"\r\n")
            assert [line for line in lines if line.startswith(b"x-tag")] == [b"x-tag: a", b"x-tag: b"]
            assert [line for line in lines if line.startswith(b"authorization")] == [
                f"authorization: bearer {KEY}".encode()
            ]
            assert [line.partition(b":")[0] for line in lines].count(b"host") == 1
            assert [line.partition(b":")[0] for line in lines].count(b"content-length") == 1
            await transport.aclose()

    run(scenario())


def test_a_header_with_a_line_break_is_refused_without_quoting_it(make: Make) -> None:
    """A key with a newline at its end, as files have it, neither smuggles a header nor shows itself."""

    async def scenario() -> None:
        transport = make(connections=2, timeouts=CALM)
        async with peer(answering(OK)) as it:
            with pytest.raises(httpx.LocalProtocolError) as caught:
                await call(transport, it.url, headers={"Authorization": f"Bearer {KEY}\r\nX-Evil: 1"})
            assert KEY not in repr(caught.value) + str(caught.value.__cause__)
            assert it.heads == []
            await transport.aclose()

    run(scenario())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_seen_and_not_followed(make: Make, status: int) -> None:
    """A key goes to no host but the one that it was given for."""
    head = b"HTTP/1.1 %d Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n" % status

    async def scenario() -> None:
        transport = make(connections=2, timeouts=CALM)
        async with peer(answering(head)) as it:
            response = await call(transport, it.url)
            assert (response.status_code, response.headers["location"]) == (status, "/elsewhere")
            assert len(it.heads) == 1
            await transport.aclose()

    run(scenario())


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_break_on_a_kept_connection_is_told_and_the_request_was_sent_once(make: Make, how: str) -> None:
    """The peer may have computed an answer, so only the caller may decide to ask again."""

    def second_is_dropped(it: Peer) -> Script:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await it.request(reader)
            writer.write(OK)
            await it.request(reader)
            await leave(writer, how)

        return script

    async def scenario() -> None:
        transport = make(connections=2, timeouts=CALM)
        async with peer(second_is_dropped) as it:
            await call(transport, it.url, content=b"first")
            with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
                await call(transport, it.url, content=b"second")
            await asyncio.sleep(0.05)
            assert it.bodies == [b"first", b"second"]
            assert (await call(transport, it.url, content=b"third")).content == b"ok"
            assert it.connections == 2
            await transport.aclose()

    run(scenario())


def test_a_connection_that_the_peer_closed_while_it_rested_is_not_used_again(make: Make) -> None:
    """An orderly close between two requests costs nobody a request."""

    async def scenario() -> None:
        transport = make(connections=2, timeouts=CALM)
        async with peer(answering(OK, times=1)) as it:
            for number in range(5):
                await call(transport, it.url, content=b"%d" % number)
                await asyncio.sleep(0.05)
            assert it.bodies == [b"%d" % number for number in range(5)]
            await transport.aclose()

    run(scenario())


def test_an_answer_that_nobody_asked_for_is_given_to_nobody(make: Make) -> None:
    """What comes after a complete response never becomes the response to the next request."""

    async def scenario() -> None:
        transport = make(connections=1, timeouts=CALM)
        stray = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"
        async with peer(answering(OK, stray, pause=0.05)) as it:
            for _ in range(3):
                assert (await call(transport, it.url)).content == b"ok"
                await asyncio.sleep(0.1)
        async with peer(answering(OK + stray)) as it:
            for _ in range(3):
                assert (await call(transport, it.url)).content == b"ok"
            await transport.aclose()

    run(scenario())


def test_a_cancelled_call_closes_its_request_and_frees_its_place(make: Make) -> None:
    """Before the head, in the body, in the queue: what is given up here is given up on the wire."""

    async def scenario() -> None:
        transport = make(connections=1, timeouts=CALM)
        hung_up = asyncio.Event()
        started = asyncio.Event()

        def patient(*writes: bytes) -> Callable[[Peer], Script]:
            def script(it: Peer) -> Script:
                async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                    await it.request(reader)
                    for piece in writes:
                        writer.write(piece)
                    started.set()
                    with contextlib.suppress(ConnectionError):
                        await reader.read()
                    hung_up.set()

                return serve

            return script

        for writes in ([], [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"]):
            async with peer(patient(*writes)) as it:
                task = asyncio.create_task(call(transport, it.url))
                await started.wait()
                queued = asyncio.create_task(call(transport, it.url))
                await asyncio.sleep(0.05)
                for each in (queued, task):
                    each.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await each
                await asyncio.wait_for(hung_up.wait(), 5)
                assert len(it.heads) == 1
            started.clear()
            hung_up.clear()
        async with peer(answering(OK)) as it:
            assert (await asyncio.wait_for(call(transport, it.url), 5)).content == b"ok"
        await transport.aclose()

    run(scenario())


def test_a_response_that_is_closed_early_closes_its_connection_and_frees_its_place(make: Make) -> None:
    """Who has seen enough of a stream need not read to its end."""

    async def scenario() -> None:
        transport = make(connections=1, timeouts=CALM)
        start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
        async with peer(answering(start, times=1, then="stall")) as it:
            for _ in range(3):
                response = await asyncio.wait_for(transport.handle_async_request(request(it.url)), 5)
                await response.aclose()
            assert it.connections == 3
        await transport.aclose()

    run(scenario())


@pytest.mark.parametrize(("connections", "flying"), [(8, 8), (64, 64), (4, 40)])
def test_there_are_never_more_connections_than_were_allowed(
    make: Make, connections: int, flying: int
) -> None:
    """At that concurrency nobody waits, above it all have their turn, and connections are used again."""

    async def scenario() -> None:
        transport = make(connections=connections, timeouts=CALM)
        async with peer(answering(OK, pause=0.001)) as it:

            async def worker() -> None:
                for _ in range(10):
                    assert (await call(transport, it.url)).content == b"ok"

            await asyncio.gather(*(worker() for _ in range(flying)))
            assert len(it.bodies) == flying * 10
            assert it.peak <= connections
            assert it.connections == connections
            await transport.aclose()

    run(scenario())


def test_two_hosts_share_the_connections(make: Make) -> None:
    """A resting connection makes room for one to another host."""

    async def scenario() -> None:
        transport = make(connections=3, timeouts=CALM)
        async with peer(answering(OK)) as one, peer(answering(OK)) as two:
            for _ in range(3):
                await asyncio.gather(*(call(transport, one.url) for _ in range(3)))
                await asyncio.gather(*(call(transport, two.url) for _ in range(3)))
                await asyncio.sleep(0.05)
                assert one.now + two.now <= 3
            assert len(one.bodies) == len(two.bodies) == 9
            await transport.aclose()

    run(scenario())


def test_descriptors_stay_flat_over_ten_thousand_calls(make: Make) -> None:
    """Answers, cut bodies and closed connections leave nothing open behind them."""

    def mixed(it: Peer) -> Script:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                await it.request(reader)
                kind = len(it.bodies) % 10
                it.bodies[-1] = it.heads[-1] = b""
                if kind == 8:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
                if kind >= 8:
                    return
                writer.write(OK)

        return script

    async def scenario() -> None:
        transport = make(connections=16, timeouts=CALM)
        this = psutil.Process()
        async with peer(mixed) as it:
            count = 0

            async def worker(until: int) -> None:
                nonlocal count
                while count < until:
                    count += 1
                    with contextlib.suppress(httpx.TransportError):
                        await call(transport, it.url)

            levels = []
            for until in (2_000, 10_000):
                await asyncio.gather(*(worker(until) for _ in range(16)))
                gc.collect()
                await asyncio.sleep(0.1)
                levels.append(this.num_fds())
            assert levels[1] <= levels[0] + 16
            await transport.aclose()
            await asyncio.sleep(0.1)
            gc.collect()
            assert this.num_fds() <= levels[0]

    run(scenario())


def test_a_response_without_a_length_ends_with_its_connection(make: Make) -> None:
    """Old servers answer so, and interim responses come before the one that counts."""

    async def scenario() -> None:
        transport = make(connections=2, timeouts=CALM)
        old = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.0 200 OK\r\nX-A: 1\r\n\r\nall of it"
        async with peer(answering(old, times=1)) as it:
            response = await call(transport, it.url)
            assert (response.content, response.headers["x-a"]) == (b"all of it", "1")
            assert "link" not in response.headers
        async with peer(answering(b"HTTP/1.1 204 No Content\r\n\r\n")) as it:
            for _ in range(2):
                assert (await call(transport, it.url)).content == b""
            assert it.connections == 1
            await transport.aclose()

    run(scenario())


def test_a_streamed_request_body_is_sent(make: Make) -> None:
    """A body that comes in pieces arrives whole, and can be framed either way."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    async def scenario() -> None:
        transport = make(connections=2, timeouts=CALM)
        headers = {"Content-Length": "7"}
        async with peer(answering(OK)) as it:
            assert (await call(transport, it.url, content=pieces(), headers=headers)).content == b"ok"
            assert it.bodies == [b"one two"]
            await transport.aclose()

    run(scenario())


def test_it_works_in_the_event_loop_of_any_thread(make: Make) -> None:
    """Our own thread beside a running loop, as in a notebook, is such a place."""
    answers: list[bytes] = []

    async def once() -> None:
        transport = make(connections=2, timeouts=CALM)
        async with peer(answering(OK)) as it:
            answers.append((await call(transport, it.url)).content)
            await transport.aclose()

    async def scenario() -> None:
        await once()
        await asyncio.to_thread(asyncio.run, once())

    run(scenario())
    assert answers == [b"ok", b"ok"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_one_that_is_made_after_a_fork_works(make: Make) -> None:
    """Airflow forks: what a parent did with its transport must not reach its child, nor the child's."""

    async def once() -> None:
        transport = make(connections=2, timeouts=CALM)
        async with peer(answering(OK)) as it:
            assert (await call(transport, it.url)).content == b"ok"
            await transport.aclose()

    def generation(depth: int) -> int:
        child = os.fork()
        if child == 0:
            status = 1
            with contextlib.suppress(BaseException):
                asyncio.run(asyncio.wait_for(once(), 20))
                status = generation(depth - 1) if depth else 0
            os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    run(once())
    assert generation(1) == 0
