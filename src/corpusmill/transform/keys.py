"""What is kept of each line beside the line itself: key, ceiling, size and script, in a fixed number of bytes.

A job of half a million lines then has 20 MB of it, which another machine reads to take the job up, and the tables
that are made from it keep 16 bytes a key.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_RECORD = Struct("<20sII12s")
RECORD_BYTES: Final = _RECORD.size

_FIRST_SLOTS = 1 << 10
_number = Struct("<Q").unpack_from


@dataclass(frozen=True, slots=True)
class LineKey:
    """One line: its request key, the ceiling that it states (None: none), characters and script of its messages."""

    key: bytes
    ceiling: int | None
    characters: int
    script: str | None

    def pack(self) -> bytes:
        """Write it in `RECORD_BYTES` bytes."""
        script = (self.script or "").encode()[:12]
        return _RECORD.pack(self.key, self.ceiling or 0, min(self.characters, 0xFFFFFFFF), script)


def read_keys(data: bytes) -> Iterator[LineKey]:
    """Read the records of a file of keys, in the order of the lines."""
    for key, ceiling, characters, script in _RECORD.iter_unpack(data):
        yield LineKey(key, ceiling or None, characters, script.rstrip(b"\0").decode() or None)


class KeyNumbers:
    """A number (of 32 bits, below zero too) for each of many keys; a later one replaces an earlier one.

    A key takes 18 to 36 bytes, and at a moment of growth half as much again. It tells keys apart by eight of their
    bytes. That two are taken for one is next to impossible, and would only let a line go out a job later, or in another
    shard.
    """

    __slots__ = ("_count", "_keys", "_mask", "_values")

    def __init__(self, expected: int = 0) -> None:
        """Start empty; nothing grows before there are more keys than are `expected`."""
        slots = _FIRST_SLOTS
        while expected * 3 > slots * 2:
            slots *= 2
        self._keys = array("Q", [0]) * slots
        self._values = array("i", [0]) * slots
        self._mask = slots - 1
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, key: bytes, value: int) -> None:
        """Note the number of a key."""
        number = _number(key)[0] or 1
        place = self._place(number)
        if not self._keys[place]:
            self._keys[place] = number
            self._count += 1
        self._values[place] = value
        if self._count * 3 > len(self._keys) * 2:
            self._grow()

    def get(self, key: bytes) -> int | None:
        """Give the number of a key; None when it has none."""
        place = self._place(_number(key)[0] or 1)
        return self._values[place] if self._keys[place] else None

    def _place(self, number: int) -> int:
        keys, mask = self._keys, self._mask
        place = number & mask
        while (found := keys[place]) and found != number:
            place = (place + 1) & mask
        return place

    def _grow(self) -> None:
        keys, values = self._keys, self._values
        self._keys = array("Q", [0]) * (2 * len(keys))
        self._values = array("i", [0]) * (2 * len(keys))
        self._mask = len(self._keys) - 1
        for number, value in zip(keys, values, strict=True):
            if number:
                place = self._place(number)
                self._keys[place] = number
                self._values[place] = value
