"""From a stream to the body that the same answer would have had without streaming.

What is a whole answer: every choice has a finish reason. `[DONE]` or a `response.completed` event alone
make none, since a stream may be closed in good order by a party that knows nothing of the model; and a
stream that ends without either, after every choice has its finish reason, has lost nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from corpusmill.chat.merge import merge_choices, merge_top
from corpusmill.chat.sse import Event, EventParser, OversizedEventError

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

_BOM = b"\xef\xbb\xbf"
_EVENTS = re.compile(rb"(?:data|event|id|retry)?:")
"""How a stream of events begins, if only with a comment; anything else is something else."""

_KEPT = 65_536
"""Bytes that are kept of a response in which no event has been seen, to tell what it is instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """What a response came to.

    `body` is an answer in the non-streaming shape, or an error's, or what came instead of either. `cut`
    says why it is no whole answer, None when nothing is missing. `begun` tells that some of an answer had come
    before an error.
    """

    body: bytes
    cut: str | None = None
    begun: bool = False
    notes: tuple[str, ...] = ()


class Assembler:
    """Takes the bytes of one response, gives its body.

    Read beside server-sent events are JSON lines and a body that was not streamed after all.
    """

    __slots__ = ("_answer", "_choices", "_cut", "_done", "_error", "_head", "_kind", "_parser", "_pieces")

    def __init__(self) -> None:
        """Begin a response."""
        self._parser = EventParser()
        self._kind = ""
        self._head = b""
        self._pieces: list[bytes] = []
        self._answer: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._done = False
        self._error: bytes | None = None
        self._cut: str | None = None

    @property
    def done(self) -> bool:
        """Whether the stream has said that nothing more will come."""
        return self._done

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        if self._kind == "events":
            self._parse(data)
        elif self._kind == "json":
            self._pieces.append(data)
        else:
            self._begin(self._head + data)

    def finish(self) -> Assembled:
        """End the response and give what it came to."""
        if self._kind == "json":
            whole = b"".join(self._pieces)
            if _is_plain(whole):
                return Assembled(body=whole, notes=("not_streamed",))
            self._parse(whole)
        if self._cut is None:
            self._take(self._parser.close())
        return self._result()

    def _begin(self, data: bytes) -> None:
        """Look at the first byte that says something: a brace begins JSON, anything else events."""
        data = data.removeprefix(_BOM)
        seen = data.lstrip()
        if not seen or (len(data) < len(_BOM) and _BOM.startswith(data)):
            self._head = data[:_KEPT]
        elif seen[:1] in b"{[":
            self._kind = "json"
            self._head = b""
            self._pieces.append(seen)
        else:
            self._kind = "events"
            self._head = b""
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        if self._cut is not None:
            return
        if not self._answer and len(self._head) < _KEPT:
            self._head += data
        try:
            events = self._parser.feed(data)
        except OversizedEventError as error:
            self._cut = str(error)
        else:
            self._take(events)

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if self._done or self._error is not None or self._cut is not None:
                return
            data = event.data.strip()
            if data == b"[DONE]":
                self._done = True
            elif event.name == "error":
                self._error = _as_error(data)
            elif data:
                self._chunk(event.name, data)

    def _chunk(self, name: str, data: bytes) -> None:
        try:
            chunk = _decoded(data)
        except (ValueError, RecursionError):
            self._cut = "an event of the stream is not JSON"
            return
        if not isinstance(chunk, dict):
            return
        if "error" in chunk or chunk.get("object") == "error":
            self._error = data
            return
        choices = chunk.get("choices")
        if name == "response.completed" or chunk.get("type") == "response.completed":
            self._done = True
            if choices is None and "usage" not in chunk:
                return
        merge_top(self._answer, chunk)
        merge_choices(self._choices, choices)

    def _result(self) -> Assembled:
        if self._error is not None:
            return Assembled(body=self._error, begun=bool(self._choices))
        if (
            not self._answer
            and self._cut is None
            and not self._done
            and not _EVENTS.match(self._head.lstrip())
        ):
            return Assembled(body=self._head)
        choices = [self._choices[index] for index in sorted(self._choices)]
        for choice in choices:
            message = choice["message"]
            choice["message"] = {"role": message.pop("role", None) or "assistant", "content": None, **message}
        self._take_reason_from_usage(choices)
        answer = {**self._answer, "choices": choices}
        if answer.get("object") in {None, "chat.completion.chunk"}:
            answer["object"] = "chat.completion"
        try:
            body = _encode(answer)
        except UnicodeEncodeError:
            # Escapes keep half a surrogate pair; two halves that came in two pieces are read as the whole again.
            body = json.dumps(answer).encode()
        cut = self._cut
        if cut is None and not choices:
            cut = "the stream ended without a choice"
        elif cut is None and any(choice.get("finish_reason") is None for choice in choices):
            cut = "the stream ended before the answer had a finish reason"
        return Assembled(body=body, cut=cut, notes=() if self._done else ("stream_without_done",))

    def _take_reason_from_usage(self, choices: list[dict[str, Any]]) -> None:
        # The document: usage.stop_reason "mirrors the choice-level finish_reason".
        usage = self._answer.get("usage")
        reason = usage.get("stop_reason") if isinstance(usage, dict) else None
        if len(choices) == 1 and choices[0].get("finish_reason") is None and isinstance(reason, str):
            choices[0]["finish_reason"] = reason


def _decoded(data: bytes) -> Any:
    """Parse JSON, also with what a paid answer may hold and JSON may not: half a surrogate pair, NaN, bad UTF-8."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data.decode("utf-8", "replace"))


def _is_plain(whole: bytes) -> bool:
    """Tell whether bytes are one JSON value, and not the only chunk of a stream of JSON lines."""
    try:
        value = _decoded(whole)
    except (ValueError, RecursionError):
        return False
    choices = value.get("choices") if isinstance(value, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return not (isinstance(first, dict) and "delta" in first)


def _as_error(data: bytes) -> bytes:
    """Give the body of an error from the data of an event that is one by its name."""
    try:
        value = _decoded(data)
    except (ValueError, RecursionError):
        value = data.decode("utf-8", "replace")
    return data if isinstance(value, dict) and "error" in value else _encode({"error": value})
