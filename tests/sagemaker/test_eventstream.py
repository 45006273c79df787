"""Frames come off whatever the cuts are, and nothing that is broken passes for an answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.chat import fuzzing

from corpusmill.chat.eventstream import FrameDecoder, StreamExceptionError
from corpusmill.chat.stream import Assembler
from corpusmill.testing.sagemaker import frames

if TYPE_CHECKING:
    from collections.abc import Iterable

TEXT = "Čau — \u2028\u2029\x85 привет 🥧, {data: [DONE]}\n\ndata: nothing"


def events(text: str = TEXT, *, end: bytes = b"data: [DONE]\n\n") -> bytes:
    """Give the server-sent events of an answer, three characters at a time."""
    pieces: list[dict[str, object]] = [
        {"index": 0, "delta": {"content": text[start : start + 3]}, "finish_reason": None}
        for start in range(0, len(text), 3)
    ]
    pieces.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    lines = [
        json.dumps({"object": "chat.completion.chunk", "choices": [piece]}, ensure_ascii=False).encode()
        for piece in pieces
    ]
    return b"".join(b"data: " + line + b"\n\n" for line in lines) + end


def decoded(wire: Iterable[bytes]) -> bytes:
    """Take the frames off."""
    decoder = FrameDecoder()
    payloads = [payload for piece in wire for payload in decoder.feed(piece)]
    decoder.finish()
    return b"".join(payloads)


def content(wire: Iterable[bytes]) -> str | None:
    """Give the text of the answer that comes out behind frames and events."""
    decoder, assembler = FrameDecoder(), Assembler()
    for piece in wire:
        for payload in decoder.feed(piece):
            assembler.feed(payload)
    decoder.finish()
    assembled = assembler.finish()
    if assembled.cut is not None or not assembled.body.startswith(b"{"):
        return None
    found = json.loads(assembled.body)["choices"][0]["message"]["content"]
    assert isinstance(found, str)
    return found


sizes = st.lists(st.integers(1, 400), min_size=1, max_size=20)


@given(parts=sizes, reads=sizes)
def test_any_cut_into_parts_and_any_cut_into_reads_give_the_same_text(
    parts: list[int], reads: list[int]
) -> None:
    """Characters, lines and events may be cut by a part, parts by a read, and several may come at once."""
    wire = b"".join(frames.payload_part(piece) for piece in frames.cut(events(), parts))
    assert content(frames.cut(wire, reads)) == TEXT


def test_each_single_cut_of_the_events_gives_the_same_text() -> None:
    """Two parts, cut at each byte of a short stream."""
    whole = events("āž🥧")
    for at in range(1, len(whole)):
        wire = frames.payload_part(whole[:at]) + frames.payload_part(whole[at:])
        assert content([wire]) == "āž🥧", at


def test_each_single_cut_of_the_wire_gives_the_same_text() -> None:
    """Two reads, cut at each byte of the frames."""
    wire = b"".join(frames.payload_part(piece) for piece in frames.cut(events("āž🥧"), [50]))
    for at in range(1, len(wire)):
        assert content([wire[:at], wire[at:]]) == "āž🥧", at


@given(reads=sizes, cut=st.integers(0, 10_000))
def test_a_stream_that_ends_anywhere_is_no_answer(reads: list[int], cut: int) -> None:
    """Cut short within a frame it is broken; between two frames it lacks its finish reason."""
    parts = [frames.payload_part(piece) for piece in frames.cut(events(), [40])]
    finish = sum(len(part) for part in parts[:-2])
    wire = b"".join(parts)[: cut % finish]
    try:
        found = content(frames.cut(wire, reads))
    except httpx.RemoteProtocolError:
        return
    assert found is None


@given(at=st.integers(12, 10_000), bit=st.integers(0, 7), reads=sizes)
def test_a_flipped_bit_is_noticed(at: int, bit: int, reads: list[int]) -> None:
    """Both checksums are verified, wherever the bit is and however the bytes come."""
    wire = bytearray(frames.payload_part(events()))
    at %= len(wire)
    wire[at] ^= 1 << bit
    if wire[0] >= 0x09:  # it no longer looks like frames: the text parser then finds no event
        assert content([bytes(wire)]) is None
        return
    with pytest.raises(httpx.RemoteProtocolError, match=r"broken|within"):
        decoded(frames.cut(bytes(wire), reads))


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_what_came_before_an_exception_is_handed_on(size: int) -> None:
    """Also when the exception comes in the same read; its name and code are kept."""
    payload = b'{"ErrorCode":"StreamBroken","Message":"gone"}'
    wire = (
        frames.payload_part(b"one")
        + frames.payload_part(b"two")
        + frames.exception("ModelStreamError", payload)
    )
    decoder = FrameDecoder()
    seen: list[bytes] = []
    parts = (part for piece in frames.cut(wire, [size]) for part in decoder.feed(piece))
    with pytest.raises(StreamExceptionError, match="gone") as caught:
        seen.extend(parts)
    assert (b"".join(seen), caught.value.kind, caught.value.code) == (
        b"onetwo",
        "ModelStreamError",
        "StreamBroken",
    )


def test_an_error_frame_says_its_code() -> None:
    """A frame of `:message-type: error` has no payload, only headers."""
    with pytest.raises(StreamExceptionError, match="InternalError: no luck") as caught:
        decoded([frames.error("InternalError", "no luck")])
    assert caught.value.kind == "InternalError"


@pytest.mark.parametrize("payload", [b"", b"no JSON", b"[]", b"\xff"])
def test_an_exception_without_a_readable_body_is_one_all_the_same(payload: bytes) -> None:
    """Its name is in a header."""
    with pytest.raises(StreamExceptionError, match="InternalStreamFailure: no text"):
        decoded([frames.exception("InternalStreamFailure", payload)])


def test_a_frame_beyond_all_bounds_is_refused_at_its_head() -> None:
    """Nobody waits for 24 MiB of it."""
    with pytest.raises(httpx.RemoteProtocolError, match="broken"):
        decoded([frames.oversized_prelude()])


def test_unknown_events_are_passed_over() -> None:
    """They bring nothing."""
    wire = frames.unknown_event() + frames.payload_part(b"x") + frames.unknown_event()
    assert decoded([wire]) == b"x"


@pytest.mark.parametrize(
    "first", [b"data: x\n\n", b": hello\n", b"{}", b"\xef\xbb\xbfdata:", b"\n\ndata: x", b"<html>"]
)
def test_what_is_no_frame_passes_as_it_is(first: bytes) -> None:
    """Server-sent events without frames, JSON, a byte order mark, a page of a proxy."""
    assert decoded([b"", first[:1], first[1:], b"more"]) == first + b"more"


def test_what_a_search_for_odd_frames_has_kept_gives_the_same_whatever_the_cuts_are() -> None:
    """Payloads, and the same end: a broken frame is a broken connection and nothing else."""
    found = fuzzing.kept("eventstream")
    assert len(found) > 30
    for data in found:
        fuzzing.check_eventstream(data)


@given(data=st.binary(max_size=200))
def test_any_bytes_give_the_same_whatever_the_cuts_are(data: bytes) -> None:
    """The same oracle, over bytes that nobody has chosen."""
    fuzzing.check_eventstream(data)
