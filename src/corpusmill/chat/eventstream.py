"""`application/vnd.amazon.eventstream`: frames around the bytes that a container streams.

A payload part holds any cut of the container's bytes, so the parts are joined and nothing is looked for in them here.
An exception frame ends the stream as an exception, with the code that botocore's own client loses. What is no
sequence of frames passes as it is, whatever its label says: some routes call frames `text/event-stream`, others send
no frames at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

FIRST_OF_TEXT = 0x09
"""Texts begin with this byte or a higher one; a frame with the high byte of its length, which is less."""

_PARTS = frozenset({"PayloadPart"})


class StreamExceptionError(httpx.RemoteProtocolError):
    """An exception that came as a frame: `kind` is the service's name for it, `code` its own code, "" without one."""

    def __init__(self, kind: str, code: str, message: str) -> None:
        """Keep name and code beside the text."""
        super().__init__(f"{kind}{f' ({code})' if code else ''}: {message}")
        self.kind = kind
        self.code = code


class FrameDecoder:
    """Takes bytes that may be cut anywhere, gives the bytes that the container has sent."""

    __slots__ = ("_buffer", "_framed", "_pending")

    def __init__(self) -> None:
        """Begin a stream."""
        self._framed: bool | None = None
        self._buffer: Any = None
        self._pending = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next bytes and give the payloads that they complete, one by one.

        Raises:
            StreamExceptionError: The service has ended the stream with an exception.
            httpx.RemoteProtocolError: A checksum or a length is wrong.
        """
        if self._framed is None and data:
            self._begin(framed=data[0] < FIRST_OF_TEXT)
        if self._framed:
            yield from self._read(data)
        elif data:
            yield data

    def finish(self) -> None:
        """End the stream; raise `httpx.RemoteProtocolError` when it ends within a frame."""
        if self._pending:
            raise httpx.RemoteProtocolError("the event stream ended within a frame")

    def _begin(self, *, framed: bool) -> None:
        self._framed = framed
        if framed:
            from botocore.eventstream import EventStreamBuffer

            self._buffer = EventStreamBuffer()

    def _read(self, data: bytes) -> Iterator[bytes]:
        from botocore.eventstream import ParserError

        self._pending += len(data)
        self._buffer.add_data(data)
        try:
            for message in self._buffer:
                self._pending -= message.prelude.total_length
                payload = _payload(message.headers, message.payload)
                if payload:
                    yield payload
        except ParserError as error:
            raise httpx.RemoteProtocolError(
                f"a frame of the event stream is broken ({type(error).__name__})"
            ) from None


def _payload(headers: dict[str, Any], payload: bytes) -> bytes | None:
    """Give what an event brings; None for one that is not known; raise what an exception or error says."""
    match headers.get(":message-type"):
        case "exception":
            code, message = _told(payload)
            raise StreamExceptionError(str(headers.get(":exception-type", "exception")), code, message)
        case "error":
            text = str(headers.get(":error-message", "no text"))
            raise StreamExceptionError(str(headers.get(":error-code", "error")), "", text)
    return payload if headers.get(":event-type") in _PARTS else None


def _told(payload: bytes) -> tuple[str, str]:
    try:
        document = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        document = None
    if not isinstance(document, dict):
        return "", "no text"
    return str(document.get("ErrorCode") or ""), str(
        document.get("Message") or document.get("message") or "no text"
    )


class _Unframed(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        decoder = FrameDecoder()
        async for piece in self._inner:
            for payload in decoder.feed(piece):
                yield payload
        decoder.finish()

    async def aclose(self) -> None:
        await self._inner.aclose()


class EventStreamTransport(httpx.AsyncBaseTransport):
    """Takes the frames off what another transport answers."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        """Wrap a transport."""
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send, and give the answer with a body without frames."""
        response = await self._inner.handle_async_request(request)
        if response.status_code >= 300 or not isinstance(response.stream, httpx.AsyncByteStream):  # noqa: PLR2004
            return response
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_Unframed(response.stream),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close what is wrapped."""
        await self._inner.aclose()
