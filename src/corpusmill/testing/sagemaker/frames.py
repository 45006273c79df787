"""Frames of `application/vnd.amazon.eventstream`, from the side that writes them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_STRING: Final = 7


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Write one frame: prelude, headers (all of them strings), payload, checksums."""
    head = b"".join(
        struct.pack("!B", len(name))
        + name.encode()
        + struct.pack("!BH", _STRING, len(value.encode()))
        + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack("!II", 16 + len(head) + len(payload), len(head))
    whole = prelude + struct.pack("!I", crc32(prelude)) + head + payload
    return whole + struct.pack("!I", crc32(whole))


def payload_part(piece: bytes) -> bytes:
    """Write a piece of the container's answer."""
    return frame(
        {":event-type": "PayloadPart", ":content-type": "application/octet-stream", ":message-type": "event"},
        piece,
    )


def unknown_event() -> bytes:
    """Write an event that no client of today knows."""
    return frame(
        {":event-type": "Trace", ":content-type": "application/json", ":message-type": "event"},
        b'{"at":"node 3"}',
    )


def exception(kind: str, payload: bytes) -> bytes:
    """Write an exception of the service's model: ModelStreamError, InternalStreamFailure."""
    return frame(
        {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}, payload
    )


def error(code: str, message: str) -> bytes:
    """Write an error that is not in the service's model."""
    return frame({":error-code": code, ":error-message": message, ":message-type": "error"}, b"")


def oversized_prelude() -> bytes:
    """Write the beginning of a frame that says it is larger than any may be (16 MiB)."""
    prelude = struct.pack("!II", (24 << 20) + 200, 120)
    return prelude + struct.pack("!I", crc32(prelude)) + b"\0" * 64


def corrupted(whole: bytes) -> bytes:
    """Flip a bit of a frame's payload."""
    at = len(whole) - 5
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


def cut(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """Cut bytes into pieces of these sizes, one after the other and again from the first; none is empty."""
    taken = [max(1, size) for size in sizes] or [len(data) or 1]
    at, turn = 0, 0
    while at < len(data):
        size = taken[turn % len(taken)]
        yield data[at : at + size]
        at += size
        turn += 1
