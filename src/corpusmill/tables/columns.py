"""Columns by dotted path, and their text as Python strings."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types as pt

from corpusmill.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIRT = re.compile("[\x00\ud800-\udfff]")
_MARK = "\ufffd"


def is_text(type_: pa.DataType) -> bool:
    """Whether the type is a string in one of Arrow's layouts: string, large_string or string_view."""
    return pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_)


def find_column(schema: pa.Schema, path: str) -> tuple[list[str], pa.DataType]:
    """The names that lead to a column, top level first, and its type.

    A top-level column whose very name is the path wins over the nested reading, a longer name over a shorter.

    Raises:
        SourceError: there is none; names the nearest.
    """
    if path in schema.names:
        return [path], _only(schema, path).type
    pieces = path.split(".")
    for cut in range(len(pieces) - 1, 0, -1):
        top = ".".join(pieces[:cut])
        if top in schema.names:
            below = _below(_only(schema, top).type, pieces[cut:])
            if below is not None:
                return [top, *below[0]], below[1]
    known = list(paths(schema))
    near = difflib.get_close_matches(path, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(map(repr, known[:20])) or 'none'}"
    raise SourceError(f"there is no column {path!r}; {hint}")


def _only(schema: pa.Schema, name: str) -> pa.Field[Any]:
    positions = schema.get_all_field_indices(name)
    if len(positions) > 1:
        raise SourceError(f"column {name!r} appears {len(positions)} times; rename one of them")
    return schema.field(positions[0])


def _below(type_: pa.DataType, pieces: list[str]) -> tuple[list[str], pa.DataType] | None:
    if not pieces:
        return [], type_
    if not pt.is_struct(type_):
        return None
    for cut in range(len(pieces), 0, -1):
        name = ".".join(pieces[:cut])
        position = type_.get_field_index(name)
        if position >= 0:
            below = _below(type_.field(position).type, pieces[cut:])
            if below is not None:
                return [name, *below[0]], below[1]
    return None


def paths(schema: pa.Schema) -> Iterator[str]:
    """All columns, nested ones by dotted path, in order."""

    def walk(name: str, type_: pa.DataType) -> Iterator[str]:
        yield name
        if pt.is_struct(type_):
            for position in range(type_.num_fields):
                field = type_.field(position)
                yield from walk(f"{name}.{field.name}", field.type)

    for field in schema:
        yield from walk(field.name, field.type)


def resolve_column(schema: pa.Schema, path: str) -> pa.DataType:
    """The type of the column that a dotted path names.

    Raises:
        SourceError: there is none; names the nearest.
    """
    return find_column(schema, path)[1]


def column_array(batch: pa.RecordBatch, path: str) -> pa.Array[Any]:
    """The column that a dotted path names; null where a struct on the way is null."""
    names, _ = find_column(batch.schema, path)
    array: Any = batch.column(names[0])
    for name in names[1:]:
        position = array.type.get_field_index(name)
        array = array.flatten()[position]
    return array  # type: ignore[no-any-return]


def column_text(batch: pa.RecordBatch, path: str) -> tuple[list[str | None], list[int]]:
    """The text of a column as Python strings, and the positions of the rows that had to be repaired.

    Lone surrogates and NUL, and bytes that are no UTF-8, become U+FFFD: no endpoint takes them. Nothing else
    is touched. The column may be a string of any layout or a dictionary of strings, at the top or inside
    structs.

    Raises:
        SourceError: there is no such column, or it holds no text.
    """
    array: Any = column_array(batch, path)
    type_ = array.type.value_type if pt.is_dictionary(array.type) else array.type
    if pt.is_null(type_):
        return [None] * len(array), []
    if not is_text(type_):
        raise SourceError(f"column {path!r} has type {array.type}, which is no text")
    if pt.is_dictionary(array.type):
        values, dirty = _strings(array.dictionary)
        indices: list[int | None] = array.indices.to_pylist()
        bad = set(dirty)
        rows = [None if index is None else values[index] for index in indices]
        return rows, [row for row, index in enumerate(indices) if index in bad] if bad else []
    return _strings(array)


def _strings(array: pa.Array[Any]) -> tuple[list[str | None], list[int]]:
    try:
        values: list[str | None] = array.to_pylist()
    except UnicodeDecodeError:
        return _repaired_bytes(array)
    if not _may_hold_nul(array):
        return values, []
    dirty = [row for row, text in enumerate(values) if text is not None and "\x00" in text]
    for row in dirty:
        values[row] = (values[row] or "").replace("\x00", _MARK)
    return values, dirty


def _may_hold_nul(array: pa.Array[Any]) -> bool:
    """Whether a zero byte lies in the characters: one look over the buffer instead of one for each value."""
    if pt.is_string_view(array.type):
        array = array.cast(pa.large_string())
    _, offsets, characters = array.buffers()
    if offsets is None or characters is None:
        return False
    places = memoryview(offsets).cast("i" if pt.is_string(array.type) else "q")
    start, stop = places[array.offset], places[array.offset + len(array)]
    return characters.slice(start, stop - start).to_pybytes().find(0) >= 0


def _repaired_bytes(array: pa.Array[Any]) -> tuple[list[str | None], list[int]]:
    width = pa.binary() if pt.is_string(array.type) else pa.large_binary()
    values: list[str | None] = []
    dirty: list[int] = []
    for row, raw in enumerate(array.cast(width).to_pylist()):
        text = None if raw is None else _decoded(raw)
        clean = text if text is None else _DIRT.sub(_MARK, text)
        if clean is not None and clean.encode() != raw:
            dirty.append(row)
        values.append(clean)
    return values, dirty


def _decoded(raw: bytes) -> str:
    try:
        # Surrogates that were written as if they were characters: one mark each, not three.
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace")
