"""The batches of a stream as one table: each like the first one, or an error that says which is not, and in what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import types as pt

from corpusmill.errors import SourceError
from corpusmill.prompts.columns import is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator


def _is_list(type_: pa.DataType) -> bool:
    return bool(pt.is_list(type_) or pt.is_large_list(type_) or pt.is_fixed_size_list(type_))


_KINDS: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    is_text,
    lambda type_: pt.is_binary(type_) or pt.is_large_binary(type_) or pt.is_binary_view(type_),
    pt.is_fixed_size_binary,
    pt.is_boolean,
    lambda type_: pt.is_integer(type_) or pt.is_floating(type_) or pt.is_decimal(type_),
    pt.is_temporal,
    _is_list,
    pt.is_struct,
    pt.is_map,
)
"""Types of one kind hold the same sort of value, so that a value may go from one to the other and mean the same."""


def like_first(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, needed: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """Give each batch with the schema of the first one, before anybody has seen any of its rows.

    The columns may stand in another order and have other layouts or widths, as long as each value is kept. A column
    that is not `needed` is left out where it does not fit, and what the first batch does not have is left out.

    Raises:
        SourceError: a needed column is missing, or has values of another kind or such as do not fit; names the batch,
            the column and both types.
    """
    for number, batch in enumerate(batches, start=1):
        if batch.schema.equals(schema):
            yield batch
            continue
        arrays: list[pa.Array[Any]] = []
        for field in schema:
            try:
                arrays.append(_column(batch, field))
            except _MisfitError as misfit:
                if field.name in needed:
                    raise SourceError(f"batch {number} of the stream {misfit}") from None
                arrays.append(pa.nulls(batch.num_rows, field.type))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class _MisfitError(Exception):
    """A column that is not like that of the first batch; the text says in what."""


def _column(batch: pa.RecordBatch, field: pa.Field[Any]) -> pa.Array[Any]:
    """Give a column of a batch in the type that the first batch has."""
    places = batch.schema.get_all_field_indices(field.name)
    if len(places) != 1:
        has = f"has {len(places)} columns {field.name!r}" if places else f"has no column {field.name!r}"
        raise _MisfitError(f"{has}, which is {field.type} in the first one")
    column = batch.column(places[0])
    if column.type == field.type:
        return column
    other = f"has the column {field.name!r} as {column.type}, which is {field.type} in the first one"
    if not _same_kind(field.type, column.type):
        raise _MisfitError(f"{other}; cast it to {field.type} first")
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if isinstance(column, pa.DictionaryArray) and not pt.is_dictionary(field.type):
        column = column.dictionary_decode()
    try:
        return column.cast(field.type)
    except pa.ArrowException:
        # What Arrow says of it may show a value.
        raise _MisfitError(f"{other}, and a value of it does not fit") from None


def _same_kind(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of both types are of one kind, at every depth; null is of every kind."""
    left, right = _plain(one), _plain(other)
    if left == right or pt.is_null(right):
        return True
    kind = next((is_kind for is_kind in _KINDS if is_kind(left)), None)
    if kind is None or not kind(right):
        return False
    if kind is _is_list:
        return _same_kind(left.value_type, right.value_type)
    if kind is pt.is_struct:
        shared = [field.name for field in left if right.get_field_index(field.name) >= 0]
        return all(_same_kind(left.field(name).type, right.field(name).type) for name in shared)
    return True


def _plain(type_: pa.DataType) -> Any:
    """Give the type of the values that a dictionary or an extension type holds."""
    if isinstance(type_, pa.BaseExtensionType):
        return _plain(type_.storage_type)
    return _plain(type_.value_type) if pt.is_dictionary(type_) else type_
