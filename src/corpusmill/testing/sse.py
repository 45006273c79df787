"""Chunks as server-sent events: plain, in odd dress, cut, and broken by an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from corpusmill.testing.bodies import Envelope, encode, stream_error
from corpusmill.testing.bodies import chunks as chunks_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from corpusmill.testing.answers import Answer

DONE: Final = b"data: [DONE]\n\n"


def events(chunks: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    """Yield one event for each chunk, and the end."""
    for chunk in chunks:
        yield b"data: " + encode(chunk) + b"\n\n"
    yield DONE


def odd_events(chunks: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    """Yield the same stream with all that the event-stream format allows and hand-made parsers forget."""
    yield b"\xef\xbb\xbf: keep-alive\r\n\r\nretry: 10\r\n"
    for number, chunk in enumerate(chunks):
        head, _, rest = encode(chunk).partition(b",")
        yield b"id: %d\r\ndata:" % number + head + b",\r\ndata:" + rest + b"\r\n\r\n"
        yield b": still here\r\n\r\nevent: ping\r\ndata:\r\n\r\n"
    yield b"data:[DONE]\r\n\r\n"


def broken_events(envelope: Envelope, answers: Sequence[Answer], request_id: str) -> Iterator[bytes]:
    """Yield the first half of a stream, and an error."""
    whole = list(events(chunks_of(envelope, answers, include_usage=False, top_logprobs=None)))
    yield from first_half(whole)
    yield b"data: " + encode(stream_error(request_id)) + b"\n\n"


def first_half(stream: Sequence[bytes]) -> Sequence[bytes]:
    """Return the first half of a stream, never its end."""
    return stream[: max(1, (len(stream) - 1) // 2)]
