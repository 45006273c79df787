"""Why was this a miss: the stored request that differs in the fewest fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class NearestSoFar:
    """The nearest of the requests seen so far; on equal terms the one that was seen first.

    `fields` are those of the request in question, digests by name; `shapes` the digests that stored requests
    share, by the shape's number. Stored digests may be cut short: as much as is there is compared.
    """

    def __init__(self, fields: Mapping[str, str], shapes: Mapping[int, Mapping[str, str]]) -> None:
        self.number: int | None = None
        self.differs: tuple[str, ...] = ()
        self._own: dict[str, str] = {}
        self._shapes = shapes
        shared = {name for shape in shapes.values() for name in shape}
        self._fixed = {name: value for name, value in fields.items() if name in shared}
        self._own = {name: value for name, value in fields.items() if name not in shared}
        self._shape_differs = {number: differing(self._fixed, shape) for number, shape in shapes.items()}
        self._least = min(map(len, self._shape_differs.values()), default=0)

    def see(self, number: int, shape: int, own: Mapping[str, str]) -> bool:
        """Look at a stored request; True when none that is still to come can be nearer."""
        if shape not in self._shape_differs:
            return False
        differs = (*self._shape_differs[shape], *differing(self._own, own))
        if self.number is None or len(differs) < len(self.differs):
            self.number = number
            self.differs = differs
        return not differs


def differing(fields: Mapping[str, str], stored: Mapping[str, str]) -> tuple[str, ...]:
    """Name the fields that only one side has, or whose digests differ; sorted."""
    return tuple(
        sorted(
            name
            for name in fields.keys() | stored.keys()
            if name not in fields or name not in stored or not fields[name].startswith(stored[name])
        )
    )
