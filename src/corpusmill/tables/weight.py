"""How many bytes of content rows hold, counted so that their sum never depends on how they were batched.

Arrow's own `nbytes` does depend on it: a slice drags a whole dictionary along, and a validity bitmap is there
or not by accident. Boundaries of chunks and of row groups rest on this measure, and so do the bytes of our
files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import types as pt

if TYPE_CHECKING:
    from collections.abc import Iterator

_OFFSET = 4
"""What an offset or an index counts for, whatever its true width."""


def content_bytes(batch: pa.RecordBatch) -> int:
    """The bytes of content in the rows of the batch."""
    return sum(array_bytes(column) for column in batch.columns)


def array_bytes(array: Any) -> int:
    """Fixed-width values at their width, text at its length and an offset, nested values by their parts."""
    type_ = array.type
    if isinstance(array, pa.ExtensionArray):
        return array_bytes(array.storage)
    if pt.is_dictionary(type_):
        return _OFFSET * len(array)
    if pt.is_binary_view(type_) or pt.is_string_view(type_):
        return array_bytes(array.cast(pa.large_binary()))
    if pt.is_string(type_) or pt.is_binary(type_) or pt.is_large_string(type_) or pt.is_large_binary(type_):
        return _OFFSET * len(array) + (pc.sum(pc.binary_length(array)).as_py() or 0)
    if pt.is_struct(type_):
        return sum(map(array_bytes, array.flatten()))
    if pt.is_map(type_):
        start, stop = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        parts = (array.keys[start:stop], array.items[start:stop])
        return _OFFSET * len(array) + sum(map(array_bytes, parts))
    if pt.is_nested(type_):
        return _OFFSET * len(array) + array_bytes(array.flatten())
    return (1 if pt.is_null(type_) else max(1, type_.bit_width // 8)) * len(array)


def rows_until(batch: pa.RecordBatch, budget: int) -> int:
    """How many leading rows it takes to reach `budget` bytes: at least 1, at most all rows."""
    low, high = 1, batch.num_rows
    while low < high:
        middle = (low + high) // 2
        if content_bytes(batch.slice(0, middle)) >= budget:
            high = middle
        else:
            low = middle + 1
    return low


def bounded(batch: pa.RecordBatch, *, rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces of at most `rows` rows, halved until each holds `size` bytes or one row."""
    if batch.num_rows > rows:
        for start in range(0, batch.num_rows, rows):
            yield from bounded(batch.slice(start, rows), rows=rows, size=size)
    elif batch.num_rows > 1 and content_bytes(batch) > size:
        half = batch.num_rows // 2
        yield from bounded(batch.slice(0, half), rows=rows, size=size)
        yield from bounded(batch.slice(half), rows=rows, size=size)
    elif batch.num_rows:
        yield batch
