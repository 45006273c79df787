"""One schema for several files: exact widening at most, hive keys as columns, the rest refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types as pt

from corpusmill.errors import SourceError
from corpusmill.tables.storable import rebuilt, schema_like

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from corpusmill.tables.files import Footer
    from corpusmill.tables.locate import FileState


def keys_schema(file: FileState, types: Mapping[str, str]) -> pa.Schema:
    """The columns that the folders give: text, unless `types` declares another Arrow type for a key."""
    names = [name for name, _ in file.keys]
    for name in types:
        if name not in names:
            raise SourceError(
                f"source.partition_types names {name!r}, which is no key of the folders; "
                f"there are {', '.join(map(repr, names)) or 'none'}"
            )
    fields = []
    for name in names:
        try:
            fields.append(pa.field(name, _type_named(types.get(name, "string"))))
        except ValueError as error:
            raise SourceError(
                f"source.partition_types: {name!r} has {types[name]!r}, which is no Arrow type"
            ) from error
    return pa.schema(fields)


def _type_named(name: str) -> pa.DataType:
    find: Any = pa.type_for_alias
    found: pa.DataType = find(name)
    return found


def one_schema(footers: Sequence[Footer], keys: pa.Schema) -> pa.Schema:
    """The schema of all files together: names, order and metadata of the first, then the hive keys.

    Raises:
        SourceError: a column is missing or additional in a file, or of a type that cannot be widened exactly;
            names the file and the column.
    """
    first = footers[0]
    fields = {field.name: field for field in first.schema}
    for footer in footers[1:]:
        if footer.schema.equals(first.schema):
            continue
        for name in footer.schema.names:
            if name not in fields:
                raise SourceError(
                    f"{footer.state.shown} has a column {name!r} that {first.state.shown} has not"
                )
        for name, field in fields.items():
            if name not in footer.schema.names:
                raise SourceError(
                    f"{footer.state.shown} has no column {name!r}, which {first.state.shown} has"
                )
            other = footer.schema.field(name)
            type_ = _wider(field.type, other.type)
            if type_ is None:
                raise SourceError(
                    f"column {name!r} has type {other.type} in {footer.state.shown} and {field.type} in "
                    f"{first.state.shown}; they cannot be read as one"
                )
            fields[name] = field.with_type(type_).with_nullable(field.nullable or other.nullable)
    extra = [field for field in keys if field.name not in fields]
    return schema_like(first.schema, [*fields.values(), *extra])


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of both exactly; None when there is none."""
    if one == other:
        return one
    for small, large in ((one, other), (other, one)):
        if pt.is_null(small) or _holds(large, small):
            return large
    return None


def _holds(large: pa.DataType, small: pa.DataType) -> bool:
    if pt.is_large_string(large):
        return bool(pt.is_string(small))
    if pt.is_large_binary(large):
        return bool(pt.is_binary(small))
    if pt.is_signed_integer(large) and pt.is_integer(small):
        return bool(large.bit_width > small.bit_width)
    if pt.is_unsigned_integer(large) and pt.is_unsigned_integer(small):
        return bool(large.bit_width > small.bit_width)
    return bool(pt.is_float64(large) and pt.is_float32(small))


def fitted(batch: pa.RecordBatch, schema: pa.Schema, file: FileState) -> pa.RecordBatch:
    """The batch of one file with the schema's columns, widened where needed, and its hive keys filled in."""
    keys = dict(file.keys)
    arrays: list[pa.Array[Any]] = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        if position >= 0:
            array = batch.column(position)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        else:
            arrays.append(_constant(keys[field.name], field, batch.num_rows, file))
    if not arrays:
        raise SourceError(f"{file.shown} holds no columns")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _constant(value: str | None, field: pa.Field[Any], rows: int, file: FileState) -> pa.Array[Any]:
    try:
        scalar = pa.scalar(value, pa.string()).cast(field.type)
    except pa.ArrowException as error:
        raise SourceError(f"{file.shown}: the key {field.name}={value!r} is no {field.type}") from error
    constant: pa.Array[Any] = pa.repeat(scalar, rows)
    return constant


def without_views(schema: pa.Schema) -> pa.Schema:
    """The schema with strings and bytes in place of their view layouts, however deep."""
    return schema_like(schema, [field.with_type(_without_views(field.type)) for field in schema])


def _without_views(type_: pa.DataType) -> pa.DataType:
    if pt.is_string_view(type_):
        return pa.large_string()
    if pt.is_binary_view(type_):
        return pa.large_binary()
    return rebuilt(type_, _without_views)
