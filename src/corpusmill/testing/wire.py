"""One HTTP exchange, down to its TCP transport, so that faults are true on the wire."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from corpusmill.testing.bodies import Reply

TRANSPORT: Final = "corpusmill.transport"
_LINGER_ZERO: Final = struct.pack("ii", 1, 0)
"""Close at once and forget what is unsent: the peer gets an RST instead of a FIN."""

Header = tuple[bytes, bytes]


class WireTransport(asyncio.Transport):
    """A TCP transport that can join a response's head and body into one packet, and reset its connection."""

    def __init__(self, inner: asyncio.Transport) -> None:
        super().__init__()
        self._inner = inner
        self._held: bytes | None = None
        self.is_closing = inner.is_closing  # type: ignore[method-assign] # asked several times for each request
        self.close = inner.close  # type: ignore[method-assign]
        self.abort = inner.abort  # type: ignore[method-assign]
        self.get_extra_info = inner.get_extra_info  # type: ignore[method-assign]
        self.pause_reading = inner.pause_reading  # type: ignore[method-assign]
        self.resume_reading = inner.resume_reading  # type: ignore[method-assign]

    def hold(self) -> None:
        """Keep what is written next until something else is written after it."""
        self._held = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write at once, or with what is held."""
        if self._held is None:
            self._inner.write(data)
        elif not self._held:
            self._held = bytes(data)
        else:
            joined, self._held = self._held + data, None
            self._inner.write(joined)

    def reset(self) -> None:
        """Close with an RST; what is unsent is forgotten."""
        raw: socket.socket | None = self._inner.get_extra_info("socket")
        if raw is not None and not self._inner.is_closing():
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        self._inner.abort()


class WireProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol on a `WireTransport`, which it also shows to the application."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wrap the transport of a new connection."""
        super().connection_made(WireTransport(transport))

    def on_message_begin(self) -> None:
        """Put the transport into the scope of the request that begins."""
        super().on_message_begin()
        cast("dict[str, Any]", self.scope)[TRANSPORT] = self.transport


class Exchange:
    """A request and the ways in which its answer can go out, or fail to."""

    def __init__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.status: int | None = None
        self.extra_headers: Sequence[Header] = ()
        self._request_headers: list[Header] = scope["headers"]
        self._transport: WireTransport = scope[TRANSPORT]
        self._receive = receive
        self._send = send

    @property
    def gone(self) -> bool:
        """Whether the connection is closed or about to be."""
        return self._transport.is_closing()

    def header(self, name: bytes) -> str | None:
        """Return the first request header of that lower-case name."""
        return next(
            (value.decode("latin-1") for found, value in self._request_headers if found == name), None
        )

    async def body(self) -> bytes:
        """Read the whole request body; what came until the client left, if it left."""
        message = await self._receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            pieces = [body]
            while message.get("more_body"):
                message = await self._receive()
                pieces.append(message.get("body", b""))
            body = b"".join(pieces)
        return body

    async def reply(self, reply: Reply) -> bool:
        """Send a whole response. True when the connection was still there to take it."""
        self._transport.hold()
        await self._start(reply.status, reply.content_type, reply.headers, length=len(reply.body))
        # Asked before the end: a connection that was to be closed after this answer closes itself there.
        there = not self.gone
        await self._send({"type": "http.response.body", "body": reply.body})
        return there

    async def cut(self, reply: Reply) -> None:
        """State the whole length of the body, send the first half of it, and close."""
        await self._start(reply.status, reply.content_type, reply.headers, length=len(reply.body))
        await self._send(
            {"type": "http.response.body", "body": reply.body[: len(reply.body) // 2], "more_body": True}
        )
        await self._close()

    async def reset(self) -> None:
        """Reset the connection; nothing that was not sent yet is sent."""
        self._transport.reset()
        await self.lost()

    async def stall(self, seconds: float) -> None:
        """Send nothing until the client leaves; after `seconds`, close."""
        try:
            async with asyncio.timeout(seconds):
                await self.lost()
        except TimeoutError:
            await self._close()

    async def stream(self, pieces: Iterable[bytes], *, pause: float = 0.0, abort: bool = False) -> bool:
        """Send a chunked event stream, each piece on its own, `pause` seconds after the one before.

        With `abort` the connection is closed without the last chunk. True when the connection was there to
        the end.
        """
        await self._start(
            200, b"text/event-stream; charset=utf-8", ((b"cache-control", b"no-cache"),), length=None
        )
        for number, piece in enumerate(pieces):
            if pause and number:
                await asyncio.sleep(pause)
            if self.gone:
                await self.lost()
                return False
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        if abort:
            await self._close()
            return False
        there = not self.gone
        await self._send({"type": "http.response.body", "body": b""})
        return there

    async def _start(
        self, status: int, content_type: bytes, headers: Sequence[Header], *, length: int | None
    ) -> None:
        self.status = status
        sent = [(b"content-type", content_type), *self.extra_headers, *headers]
        if length is not None:
            sent.append((b"content-length", str(length).encode()))
        await self._send({"type": "http.response.start", "status": status, "headers": sent})

    async def _close(self) -> None:
        self._transport.close()
        await self.lost()

    async def lost(self) -> None:
        """Wait until the connection is lost, so that uvicorn does not miss the rest of a response."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
