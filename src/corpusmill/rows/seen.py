"""Which request keys have come by already, in little memory: for corpora of tens of millions of rows."""

from __future__ import annotations

from array import array
from struct import Struct

_FIRST_SLOTS = 1 << 12

_number = Struct("<Q").unpack_from


class SeenKeys:
    """A set of request keys that keeps eight bytes of each, in a table that is between a third and two thirds full.

    A key takes 12 to 24 bytes, at moments of growth half as much again. Among 100 million keys the chance that
    any two are taken for one is one in 3,700; who needs certainty must not use this.
    """

    __slots__ = ("_mask", "_slots", "count")

    def __init__(self) -> None:
        """Start empty; `count` is the number of keys."""
        self._slots = array("Q", bytes(8 * _FIRST_SLOTS))
        self._mask = _FIRST_SLOTS - 1
        self.count = 0

    def add(self, key: bytes) -> bool:
        """Add a key; True when it is new."""
        number = _number(key)[0] or 1
        slots, mask = self._slots, self._mask
        place = number & mask
        while found := slots[place]:
            if found == number:
                return False
            place = (place + 1) & mask
        slots[place] = number
        self.count += 1
        if self.count * 3 > len(slots) * 2:
            self._grow()
        return True

    def _grow(self) -> None:
        before = self._slots
        slots = self._slots = array("Q", bytes(16 * len(before)))
        mask = self._mask = len(slots) - 1
        for number in before:
            if number:
                place = number & mask
                while slots[place]:
                    place = (place + 1) & mask
                slots[place] = number

    def __len__(self) -> int:
        return self.count
