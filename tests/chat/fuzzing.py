"""What has to hold of any bytes at all that the parsers of streams are given, and the bytes that are kept for it.

`benchmarks/fuzz.py` looks for bytes that lead to new places in the code; those that it found are replayed by the tests
of the parsers. The first byte says how the rest is cut into reads.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from corpusmill.chat.classify import classify
from corpusmill.chat.eventstream import FrameDecoder
from corpusmill.chat.sse import EventParser
from corpusmill.chat.stream import Assembled, Assembler
from corpusmill.chat.verdict import Accepted
from corpusmill.exchange import read_completion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CORPORA = {
    "sse": Path(__file__).parent / "sse_corpus.jsonl",
    "eventstream": Path(__file__).parents[1] / "sagemaker" / "eventstream_corpus.jsonl",
}


def kept(name: str) -> list[bytes]:
    """Give the bytes that are kept for a parser."""
    path = CORPORA[name]
    lines = path.read_text("ascii").splitlines() if path.exists() else []
    return [base64.b64decode(json.loads(line)) for line in lines]


def keep(name: str, found: Iterable[bytes]) -> None:
    """Write down what is to be kept, the shortest first."""
    lines = [
        json.dumps(base64.b64encode(data).decode())
        for data in sorted(set(found), key=lambda data: (len(data), data))
    ]
    CORPORA[name].write_text("".join(f"{line}\n" for line in lines), "ascii")


def cut(data: bytes, size: int) -> list[bytes]:
    """Cut into reads of one size."""
    return [data[start : start + size] for start in range(0, len(data), size)]


def check_sse(data: bytes) -> None:
    """Any cut gives the same events, those that the grammar says, and the same answer; nothing is raised."""
    size, stream = data[0] + 1 if data else 1, data[1:]
    events = _events([stream])
    assert _events(cut(stream, 1)) == events == _events(cut(stream, size))
    assert events == _by_the_grammar(stream)
    assembled = _assembled([stream])
    for pieces in (cut(stream, size), cut(stream, 1)):
        again = _assembled(pieces)
        assert (again.cut, again.begun, again.notes) == (assembled.cut, assembled.begun, assembled.notes)
        assert _loaded(again.body) == _loaded(assembled.body)
    _check_verdict(assembled)


def check_eventstream(data: bytes) -> None:
    """Any cut gives the same payloads and the same end; a broken frame is a broken connection and nothing else."""
    size, wire = data[0] + 1 if data else 1, data[1:]
    payload, error = _unframed([wire])
    assert _unframed(cut(wire, size)) == (payload, error) == _unframed(cut(wire, 1))
    if error is None:
        _check_verdict(_assembled([payload]))


CHECKS: dict[str, Callable[[bytes], None]] = {"sse": check_sse, "eventstream": check_eventstream}


def _events(pieces: Iterable[bytes]) -> list[tuple[str, bytes]]:
    parser = EventParser()
    found = [event for piece in pieces for event in parser.feed(piece)]
    return [(event.name, event.data) for event in [*found, *parser.close()]]


def _by_the_grammar(stream: bytes) -> list[tuple[str, bytes]]:
    """Parse once more, slowly, as it is written down: by lines of the whole stream."""
    events: list[tuple[str, bytes]] = []
    name, lines = "", list[bytes]()
    # The last line counts without its end; a stream that ends in the middle of an event has that event.
    for line in [*re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf")), b""]:
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        alone = line[:1] in (b"{", b"[") or field == b"error"
        if not line or alone:
            if lines:
                events.append((name or "message", b"\n".join(lines)))
            name, lines = "", []
        if alone:
            events.append(("error", value) if field == b"error" else ("message", line))
        elif field == b"data":
            lines.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return events


def _assembled(pieces: Iterable[bytes]) -> Assembled:
    assembler = Assembler()
    for piece in pieces:
        assembler.feed(piece)
    return assembler.finish()


def _loaded(body: bytes) -> Any:
    try:
        return repr(json.loads(body.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return body


def _check_verdict(assembled: Assembled) -> None:
    verdict = classify(
        status=200,
        headers={},
        body=assembled.body,
        cut=assembled.cut,
        begun=assembled.begun,
        notes=assembled.notes,
        now=0.0,
    )
    if isinstance(verdict, Accepted):
        assert assembled.cut is None
        # What is taken for an answer is kept as it is, and has to be one again when it is read back.
        assert read_completion(verdict.completion.body).finish_reason == verdict.completion.finish_reason


def _unframed(pieces: Iterable[bytes]) -> tuple[bytes, str | None]:
    decoder, payload = FrameDecoder(), b""
    try:
        for piece in pieces:
            for part in decoder.feed(piece):
                payload += part
        decoder.finish()
    except httpx.RemoteProtocolError as error:
        return payload, f"{type(error).__name__}: {error}"
    return payload, None
