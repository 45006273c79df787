"""Where the column lies that a dotted path names: the one reading of such paths, for prompts, filters and plans."""

from __future__ import annotations

import difflib
import unicodedata
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types as pt

from corpusmill.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def is_text(type_: pa.DataType) -> bool:
    """Whether the type is a string in one of Arrow's layouts: string, large_string or string_view."""
    return pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_)


def is_scalar(type_: pa.DataType) -> bool:
    """Whether values of the type have a text of their own: numbers, booleans, dates, times and timestamps."""
    number = pt.is_integer(type_) or pt.is_floating(type_) or pt.is_decimal(type_)
    return number or pt.is_boolean(type_) or pt.is_date(type_) or pt.is_time(type_) or pt.is_timestamp(type_)


def find_column(schema: pa.Schema, path: str) -> tuple[list[str], pa.DataType]:
    """The names that lead to a column, top level first, and its type.

    A top-level column whose very name is the path wins over the nested reading, a longer name over a shorter. Where
    there is neither, the only column is taken whose path has the same characters in another Unicode normalisation.

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
    meant = named(path, known)
    if meant is not None and meant != path:
        return find_column(schema, meant)
    near = difflib.get_close_matches(path, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(map(repr, known[:20])) or 'none'}"
    raise SourceError(f"there is no column {path!r}; {hint}")


def named(name: str, names: Iterable[str]) -> str | None:
    """Give the one of the names that is meant: the very name, or the only one that is it but for normalisation."""
    known = set(names)
    if name in known:
        return name
    form = unicodedata.normalize("NFC", name)
    alike = [one for one in known if unicodedata.normalize("NFC", one) == form]
    return alike[0] if len(alike) == 1 else None


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
