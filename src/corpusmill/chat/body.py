"""The body of one response, read until it ends, or until it has said all and no end comes.

An answer that came whole was paid for, and is kept however its framing ends: cut short, broken, or never. What is no
whole answer by then is none.
"""

from __future__ import annotations

import asyncio
import codecs
from typing import TYPE_CHECKING, Any

import httpx

from corpusmill.chat.stream import Assembler
from corpusmill.chat.transport_connection import Exchange
from corpusmill.exchange import NotACompletionError, read_completion

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LARGEST_BODY = 256 * 1024 * 1024
"""Bytes of a response beyond which it is no answer to a row."""

LARGEST_TOGETHER = 1024 * 1024 * 1024
"""Bytes that the large ones among the responses that a client is reading may have together."""

LARGE = 16 * 1024 * 1024
"""Bytes beyond which a response is large. So many can come of each that is read, whatever the others have."""

LAST_BYTES = 1.0
"""Seconds that the end of a response gets after the last event of its stream, or after what is a whole answer."""

_ANSWERS = 200
"""The status of answers."""

_FAULTS = (httpx.HTTPError, httpx.StreamError, OSError, EOFError)


class TooLargeError(Exception):
    """More has come of a body than is taken; the text says how much that is."""


class Held:
    """How many bytes the large bodies that a client is reading have by now."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        """Begin with none."""
        self.size = 0


class Body:
    """Takes the pieces of one body, and tells what they came to."""

    __slots__ = ("_assembler", "_fault", "_held", "_mine", "_pieces", "_status", "overdue")

    def __init__(self, status: int, held: Held, *, streamed: bool) -> None:
        """Begin the body of a response with this status; `streamed` when it should be a stream of events.

        `held` is shared by all bodies of a client. `overdue` tells, once it was read, that it had not ended in time.
        """
        self.overdue = False
        self._held = held
        self._mine = 0
        self._status = status
        self._assembler = Assembler() if streamed else None
        self._pieces: list[bytes] = []
        self._fault: BaseException | None = None

    async def read(
        self, stream: httpx.AsyncByteStream, incoming: AsyncIterator[bytes], *, until: float | None
    ) -> None:
        """Read `incoming`, which is what `stream` carries freed of its content encoding, to its end.

        Reading ends at `until` by the loop's clock (None: never), whatever has come. Raises `TooLargeError`.
        """
        assembler = self._assembler
        keep = self._pieces.append if assembler is None else assembler.feed
        size = 0
        limit = asyncio.timeout_at(until)
        try:
            async with limit:
                async for piece in incoming:
                    size += len(piece)
                    if size > LARGE:
                        self._hold(size)
                    keep(piece)
                    if assembler is not None:
                        if assembler.done:
                            await _see_off(incoming)
                            break
                    elif self._may_be_all(stream, piece):
                        await self._until_silent(incoming, size)
        except _FAULTS as error:
            self._fault, self.overdue = error, limit.expired()
        finally:
            self._held.size -= self._mine

    def result(self) -> dict[str, Any]:
        """Give what came, as `classify` is told of it."""
        fault = self._fault
        if self._assembler is not None:
            assembled = self._assembler.finish()
            return {
                "body": assembled.body,
                # Once everything that was announced has come, it no longer matters how the connection ended.
                "error": None if assembled.cut is None else fault,
                "cut": assembled.cut,
                "begun": assembled.begun,
                "notes": assembled.notes,
            }
        body = b"".join(self._pieces)
        if fault is None or self._status != _ANSWERS or not _is_answer(body):
            return {"body": body, "error": fault}
        silent = isinstance(fault, TimeoutError | httpx.ReadTimeout)
        note = "body_without_end" if silent else "connection_lost_after_answer"
        return {"body": body, "error": None, "notes": (note,)}

    def _hold(self, size: int) -> None:
        """Count a large body among the others."""
        self._held.size += size - self._mine
        self._mine = size
        if size > LARGEST_BODY:
            raise TooLargeError(f"the answer has more than {LARGEST_BODY} bytes")
        if self._held.size > LARGEST_TOGETHER:
            raise TooLargeError(
                f"the answer has more than {LARGE} bytes, and with others that came at the same time "
                f"more than {LARGEST_TOGETHER}"
            )

    def _may_be_all(self, stream: httpx.AsyncByteStream, piece: bytes) -> bool:
        """Tell whether the body may be whole after a piece and has yet to end. All pieces are asked, so it is cheap."""
        return (
            self._status == _ANSWERS
            and _ends_an_object(piece)
            and not (isinstance(stream, Exchange) and stream.complete)
        )

    async def _until_silent(self, incoming: AsyncIterator[bytes], size: int) -> None:
        """Read on: to the end, or until there is a whole answer after which nothing was said for a while.

        White space says nothing: some servers send it to show that they are still there. Raises `TimeoutError` when
        the end is not waited for.
        """
        loop = asyncio.get_running_loop()
        grace = LAST_BYTES

        def look() -> None:
            nonlocal grace
            if _is_answer(b"".join(self._pieces)):
                left.reschedule(loop.time())
            else:
                # A look reads all there is: a server that pauses after each brace gets few of them.
                grace *= 2

        async with asyncio.timeout(None) as left:
            timer = loop.call_later(grace, look)
            try:
                async for piece in incoming:
                    size += len(piece)
                    if size > LARGE:
                        self._hold(size)
                    self._pieces.append(piece)
                    if piece.strip():
                        timer.cancel()
                        if _ends_an_object(piece):
                            timer = loop.call_later(grace, look)
            finally:
                timer.cancel()


async def _see_off(incoming: AsyncIterator[bytes]) -> None:
    """Let a stream end that has said all, so that its connection can be used again; one that stays open is left."""
    try:
        async with asyncio.timeout(LAST_BYTES):
            async for _ in incoming:
                pass
    except TimeoutError:
        return


def _ends_an_object(piece: bytes) -> bool:
    return piece.rstrip()[-1:] == b"}"


def _is_answer(body: bytes) -> bool:
    """Tell whether what came of a body that did not end well is an answer from which nothing is missing."""
    try:
        return read_completion(body.removeprefix(codecs.BOM_UTF8)).finish_reason is not None
    except NotACompletionError:
        return False
