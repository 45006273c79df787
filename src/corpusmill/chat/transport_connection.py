"""One HTTP/1.1 connection, and the exchange of one request and one response that it carries at a time.

What holds here:

- A request is written once. What goes wrong afterwards is an `httpx.TransportError`, never a second try.
- A response is complete only when its framing says so. A body that ends early is an error.
- Two phases are timed, writing and reading. Each starts anew whenever bytes move.
- A connection is used again only after a complete exchange that both sides allow to be followed by another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

import httptools
import httpx

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HEAD_LIMIT = 1 << 18
"""Bytes that a response may send before its head must be complete."""

BACKLOG = 1 << 20
"""Bytes of a body that may wait for its reader before the peer is made to wait."""

FRAMING = (b"content-length", b"transfer-encoding")
"""The headers that tell where a body ends. A response without ends with its connection (RFC 9112, 6.3)."""


class Owner(Protocol):
    """What a connection reports to. Each exchange ends with exactly one of the two calls."""

    def reusable(self, connection: Connection) -> None:
        """The exchange is complete, and the connection can carry another."""

    def spent(self, connection: Connection) -> None:
        """The connection is over. Called once, during an exchange or between two."""


class Exchange(httpx.AsyncByteStream):
    """The response to one request as it arrives; as a stream, its body in pieces as the peer sent them."""

    def __init__(self, connection: Connection, request: httpx.Request) -> None:
        self.request = request
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = False
        self.failure: httpx.TransportError | None = None
        self.pieces: deque[bytes] = deque()
        self.waiting = 0
        self._connection = connection
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Let whoever waits for something to happen have a look."""
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    async def head(self) -> None:
        """Wait for the status and the headers.

        Raises:
            httpx.TransportError: The exchange failed before they were there.
        """
        try:
            while not self.status:
                if self.failure is not None:
                    raise self.failure
                await self._news()
        except asyncio.CancelledError:
            self._connection.abandon(self)
            raise

    def whole(self) -> bytes | None:
        """Give the body if all of it is there, which is usual when the head is, and has not been read; else None."""
        if not self.complete or self.failure is not None:
            return None
        body = b"".join(self.pieces)
        self.pieces.clear()
        self.waiting = 0
        return body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while True:
                if self.pieces:
                    piece = self.pieces.popleft()
                    self.waiting -= len(piece)
                    self._connection.taken(self)
                    yield piece
                elif self.failure is not None:
                    raise self.failure
                elif self.complete:
                    return
                else:
                    await self._news()
        finally:
            self._connection.abandon(self)

    async def aclose(self) -> None:
        """Give up what has not arrived."""
        self._connection.abandon(self)

    async def _news(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter


class Connection(asyncio.Protocol):
    """A connection of a pool, which is its owner: idle, or busy with one exchange."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner) -> None:
        self.idle_since = 0.0
        self.closed = False
        self._loop = loop
        self._owner = owner
        self._transport: asyncio.Transport
        self._exchange: Exchange | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_size = 0
        self._keep_alive = False
        self._surplus = False
        self._bodiless = False
        self._held_back = False
        self._timer: asyncio.TimerHandle | None = None
        self._read_limit: float | None = None
        self._write_limit: float | None = None
        self._moved = 0.0
        self._unsent = 0

    def send(
        self, request: httpx.Request, message: bytes, *, read: float | None, write: float | None
    ) -> Exchange:
        """Write a whole request and return the exchange that its response will arrive in.

        `read` and `write` limit the two phases, in seconds; None is no limit.
        """
        self._exchange = exchange = Exchange(self, request)
        self._headers = []
        self._head_size = 0
        self._bodiless = request.method == "HEAD"
        self._read_limit = read
        self._write_limit = write
        self._moved = self._loop.time()
        self._transport.write(message)
        self._unsent = self._transport.get_write_buffer_size()
        self._watch()
        return exchange

    def taken(self, exchange: Exchange) -> None:
        """Pieces were taken: if the peer was made to wait and few are left, let it go on."""
        if self._held_back and exchange is self._exchange and exchange.waiting <= BACKLOG // 2:
            self._held_back = False
            self._moved = self._loop.time()
            self._transport.resume_reading()

    def abandon(self, exchange: Exchange) -> None:
        """Close the connection unless that exchange is over already."""
        if exchange is self._exchange:
            self._fail(httpx.ReadError("the response was closed before it was complete"))

    def close(self) -> None:
        """Close at once, whatever is under way."""
        self._fail(httpx.ReadError("the transport was closed"))

    def on_message_begin(self) -> None:
        """Parser: a response begins, which may be one that nobody asked for."""
        exchange = self._exchange
        self._surplus = exchange is None or exchange.complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """Parser: a header, or a trailer after the body."""
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Parser: a head is complete; after an interim one (1xx) the one that counts will follow."""
        exchange = self._exchange
        headers, self._headers = self._headers, []
        status = self._parser.get_status_code()
        if exchange is None or self._surplus or 100 <= status < 200:  # noqa: PLR2004 - as named above
            return
        self._keep_alive = self._parser.should_keep_alive()
        exchange.headers = headers
        exchange.status = status
        if self._bodiless:
            # The parser does not know the request and would wait for a body.
            self._keep_alive = False
            exchange.complete = True
        exchange.wake()

    def on_body(self, body: bytes) -> None:
        """Parser: a piece of the body."""
        exchange = self._exchange
        if exchange is not None and not exchange.complete:
            exchange.pieces.append(body)
            exchange.waiting += len(body)
            exchange.wake()

    def on_message_complete(self) -> None:
        """Parser: the response, or an interim one, is complete."""
        exchange = self._exchange
        if exchange is not None and exchange.status:
            exchange.complete = True
            exchange.wake()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Event loop: the connection stands."""
        assert isinstance(transport, asyncio.Transport)  # create_connection makes no other
        # Told as soon as everything is written, not when little is left.
        transport.set_write_buffer_limits(high=0)
        self._transport = transport

    def resume_writing(self) -> None:
        """Event loop: the whole request is written."""
        self._unsent = 0
        self._moved = self._loop.time()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Event loop: bytes arrived."""
        exchange = self._exchange
        if exchange is None:
            # Between two exchanges: a farewell (408), or a tail that must not be read as the next answer.
            self._end()
            return
        self._moved = self._loop.time()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._keep_alive = False
            if not exchange.complete:
                self._fail(httpx.RemoteProtocolError("the response is not valid HTTP/1.1"))
        if exchange.complete:
            self._finish()
        elif not exchange.status:
            self._head_size += len(data)
            if self._head_size > HEAD_LIMIT:
                self._fail(httpx.RemoteProtocolError("the head of the response has no end"))
        elif exchange.waiting > BACKLOG and not self._held_back:
            self._held_back = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """Event loop: the peer will send no more."""
        self._broken(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Event loop: the connection is gone, by an error unless `exc` is None."""
        self._broken(exc)

    def _broken(self, exc: Exception | None) -> None:
        exchange = self._exchange
        if exchange is None:
            self._end()
        elif exc is not None:
            kind = httpx.WriteError if self._unsent else httpx.ReadError
            self._fail(kind(f"the connection broke: {type(exc).__name__}"))
        elif not exchange.status:
            self._fail(httpx.RemoteProtocolError("the connection was closed without a response"))
        elif any(name.lower() in FRAMING for name, _ in exchange.headers):
            self._fail(httpx.RemoteProtocolError("the connection was closed in the middle of a body"))
        else:
            self._keep_alive = False
            exchange.complete = True
            exchange.wake()
            self._finish()

    def _finish(self) -> None:
        self._exchange = None
        if self._held_back:
            self._held_back = False
            self._transport.resume_reading()
        if self._keep_alive and not self._surplus and not self._unsent:
            self._owner.reusable(self)
        else:
            self._end()

    def _fail(self, failure: httpx.TransportError) -> None:
        exchange = self._exchange
        if exchange is not None:
            self._exchange = None
            failure.request = exchange.request
            exchange.failure = failure
            exchange.wake()
        self._end()

    def _end(self) -> None:
        if not self.closed:
            self.closed = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._transport.abort()
            self._owner.spent(self)

    def _watch(self) -> None:
        """See to it that a timer rings no later than the present phase may last.

        One timer outlives many exchanges: it is set anew when it rings, not whenever bytes move.
        """
        limit = self._write_limit if self._unsent else self._read_limit
        if limit is None:
            return
        due = self._moved + limit
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._exchange is None:
            return
        now = self._loop.time()
        if self._unsent:
            unsent = self._transport.get_write_buffer_size()
            if unsent < self._unsent:
                self._unsent = unsent
                self._moved = now
        elif self._held_back:
            # The reader is slow, not the peer.
            self._moved = now
        limit = self._write_limit if self._unsent else self._read_limit
        if limit is not None and now >= self._moved + limit:
            kind = httpx.WriteTimeout if self._unsent else httpx.ReadTimeout
            self._fail(kind(f"nothing moved for {limit:g} s"))
        else:
            self._watch()
