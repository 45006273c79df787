"""What Parquet does to Arrow types: those it refuses, those it changes, and the plain form in which we write.

Dictionaries are written as their plain values (Parquet encodes them by itself), while the Arrow schema stored
in the file keeps saying "dictionary", so that they are read back as such. Views likewise: pyarrow cannot
write slices of them. So the bytes of a file do not depend on the order in which a dictionary happened to list
its values.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet as pq
from pyarrow import types as pt

from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def children(type_: pa.DataType) -> list[pa.Field[Any]]:
    """The fields directly inside a nested type; none for a flat one. An extension type is its storage."""
    if isinstance(type_, pa.BaseExtensionType):
        return children(type_.storage_type)
    if pt.is_dictionary(type_):
        return []
    return [type_.field(position) for position in range(type_.num_fields)]


def _refusal(type_: pa.DataType) -> str | None:
    """Why Parquet cannot hold the type, by itself or for something inside it."""
    if isinstance(type_, pa.BaseExtensionType):
        return _refusal(type_.storage_type)
    if pt.is_union(type_):
        return "a union"
    if pt.is_interval(type_):
        return "an interval"
    if pt.is_run_end_encoded(type_):
        return "a run-end-encoded array"
    if pt.is_struct(type_) and not type_.num_fields:
        return "a struct without fields"
    if pt.is_dictionary(type_):
        return _refusal(type_.value_type)
    return next((why for field in children(type_) if (why := _refusal(field.type))), None)


def check_storable(schema: pa.Schema) -> None:
    """Refuse a schema with a column that Parquet cannot hold, nested ones included.

    Raises:
        UsageError: names the column, its type and what in it cannot be held; or the names that appear twice.
    """
    check_names(schema)
    for field in schema:
        why = _refusal(field.type)
        if why is not None:
            raise UsageError(
                f"column {field.name!r} has type {field.type}, and Parquet cannot hold {why}; "
                "leave the column out or convert it first"
            )
        try:
            _through_parquet(pa.schema([field]))
        except (pa.ArrowException, OSError) as error:
            raise UsageError(
                f"column {field.name!r} has type {field.type}, which Parquet cannot hold: {error}"
            ) from error


def check_names(schema: pa.Schema) -> None:
    """Refuse a schema in which a name stands twice."""
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise UsageError(f"column {name!r} appears twice; rename one of them")
        seen.add(name)


def changed_types(schema: pa.Schema) -> list[str]:
    """The columns whose type comes back changed from Parquet, as `name: before -> after`.

    Found by writing an empty table and reading its schema, so it is true of the installed pyarrow.
    """
    after = _through_parquet(schema)
    return [
        f"{before.name}: {before.type} -> {now.type}"
        for before, now in zip(schema, after, strict=True)
        if before.type != now.type
    ]


def _through_parquet(schema: pa.Schema) -> pa.Schema:
    # Arrow's own buffers: reading through a Python file object may abort the process when it ends.
    file = pa.BufferOutputStream()
    with pq.ParquetWriter(file, plain_schema(schema), store_schema=False) as writer:
        writer.add_key_value_metadata(stored_metadata(schema))
    return pq.ParquetFile(pa.BufferReader(file.getvalue())).schema_arrow


def stored_metadata(schema: pa.Schema) -> Any:
    """The metadata of a Parquet file that holds the schema: its own, and the Arrow schema for exact types."""
    arrow = base64.b64encode(schema.serialize().to_pybytes())
    return {**(schema.metadata or {}), b"ARROW:schema": arrow}


def schema_like(schema: pa.Schema, fields: Iterable[pa.Field[Any]]) -> pa.Schema:
    """The fields, under the metadata of another schema."""
    metadata: Any = schema.metadata
    return pa.schema(list(fields), metadata=metadata)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with plain types; names, order, nullability and metadata stay."""
    return schema_like(schema, [field.with_type(plain_type(field.type)) for field in schema])


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type with each dictionary, however deep, replaced by its values' type, and each view by what it shows."""
    if pt.is_dictionary(type_):
        return plain_type(type_.value_type)
    if pt.is_string_view(type_):
        return pa.large_string()
    if pt.is_binary_view(type_):
        return pa.large_binary()
    if isinstance(type_, pa.BaseExtensionType):
        return type_
    return rebuilt(type_, plain_type)


def rebuilt(type_: Any, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The nested type with `change` applied to the types directly inside; a flat type as it is."""
    new: Any = [field.with_type(change(field.type)) for field in children(type_)]
    result = type_
    if new == children(type_):
        pass
    elif pt.is_struct(type_):
        result = pa.struct(new)
    elif pt.is_map(type_):
        key, item = (type_.key_field, type_.item_field)
        make_map: Any = pa.map_
        ends: Any = (key.with_type(change(key.type)), item.with_type(change(item.type)))
        result = make_map(*ends, keys_sorted=type_.keys_sorted)
    elif pt.is_fixed_size_list(type_):
        result = pa.list_(new[0], type_.list_size)
    else:
        for is_kind, make in _LISTS:
            if is_kind(type_):
                result = make(new[0])
    return result  # type: ignore[no-any-return]


_LISTS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...] = (
    (pt.is_list, pa.list_),
    (pt.is_large_list, pa.large_list),
    (pt.is_list_view, pa.list_view),
    (pt.is_large_list_view, pa.large_list_view),
)


def has_type(type_: pa.DataType, test: Callable[[Any], bool]) -> bool:
    """Whether `test` holds for the type or for one inside it."""
    if test(type_) or (pt.is_dictionary(type_) and test(type_.value_type)):
        return True
    return any(has_type(field.type, test) for field in children(type_))
