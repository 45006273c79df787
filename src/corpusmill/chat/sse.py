"""Server-sent events out of bytes that may be cut anywhere.

By the HTML standard's grammar, read leniently: lines end at LF, CR or CRLF and nowhere else; an event that
the end of the stream leaves without its blank line still counts, since its data says for itself whether it
is whole. Two things that servers send and the standard does not know are events here too: a line that is a
bare JSON object or array, and a field that is called `error`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LARGEST_EVENT = 16 * 1024 * 1024
"""Bytes of one event beyond which the stream is broken."""

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class OversizedEventError(ValueError):
    """An event that does not end."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name ("message" unless the stream says otherwise) and its data, not yet decoded."""

    name: str
    data: bytes


class EventParser:
    """Takes bytes, gives events."""

    __slots__ = ("_after_cr", "_begun", "_data", "_name", "_pieces", "_size")

    def __init__(self) -> None:
        """Begin a stream."""
        self._pieces: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._begun = False
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes and give the events that they complete.

        Raises:
            OversizedEventError: An event is larger than `LARGEST_EVENT`.
        """
        if self._after_cr and data:
            # The line ended at the CR already; a LF behind it belongs to the same line end.
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
        has_cr = b"\r" in data
        self._size += len(data)
        if self._size > LARGEST_EVENT:
            raise OversizedEventError(f"an event of more than {LARGEST_EVENT} bytes")
        if not has_cr and b"\n" not in data:
            # Joined when the line ends: a long line in small pieces must not be copied for each of them.
            self._pieces.append(data)
            return []
        self._pieces.append(data)
        text = b"".join(self._pieces)
        if has_cr:
            self._after_cr = text.endswith(b"\r")
            lines = _LINE_END.split(text)
        else:
            lines = text.split(b"\n")
        rest = lines.pop()
        self._pieces = [rest] if rest else []
        events: list[Event] = []
        for line in lines:
            self._take(line, events)
        self._size = len(rest) + sum(map(len, self._data))
        return events

    def close(self) -> list[Event]:
        """End the stream and give the event that was not ended by a blank line, if there is one."""
        events: list[Event] = []
        rest = b"".join(self._pieces)
        self._pieces = []
        if rest:
            self._take(rest, events)
        self._dispatch(events)
        return events

    def _take(self, line: bytes, events: list[Event]) -> None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(events)
            return
        if line[:1] in b"{[":
            self._dispatch(events)
            events.append(Event("message", line))
            return
        field, colon, value = line.partition(b":")
        if colon and value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"error":
            self._dispatch(events)
            events.append(Event("error", value))
        # Comments (no field), id and retry say nothing about an answer, and unknown fields are to be ignored.

    def _dispatch(self, events: list[Event]) -> None:
        if self._data:
            events.append(Event(self._name or "message", b"\n".join(self._data)))
            self._data = []
        self._name = ""
