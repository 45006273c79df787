"""Arrays with plain values in place of dictionaries, at any depth.

Arrow's own cast fails on what lies under a null: an index there may point nowhere, and that is allowed.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import types as pt


def plain_batch(batch: pa.RecordBatch, plain: pa.Schema) -> pa.RecordBatch:
    """The batch under a schema that `plain_schema` made of its own."""
    arrays = [plain_array(column, field.type) for column, field in zip(batch.columns, plain, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=plain)


def plain_array(array: Any, type_: Any) -> Any:
    """The array with the type that `plain_type` made of its own."""
    if array.type == type_:
        return array
    if not pt.is_nested(type_) and not pt.is_dictionary(array.type):
        return array.cast(type_)
    if pt.is_dictionary(array.type):
        return _decoded(array, type_)
    mask = array.is_null()
    if pt.is_struct(type_):
        children = [
            plain_array(array.field(place), type_.field(place).type) for place in range(type_.num_fields)
        ]
        fields = [type_.field(place) for place in range(type_.num_fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if pt.is_fixed_size_list(type_):
        values = array.values.slice(array.offset * type_.list_size, len(array) * type_.list_size)
        values = plain_array(values, type_.value_type)
        fixed: Any = pa.FixedSizeListArray
        return fixed.from_arrays(values, type=type_, mask=mask)
    if pt.is_list_view(type_) or pt.is_large_list_view(type_):
        kind: Any = pa.ListViewArray if pt.is_list_view(type_) else pa.LargeListViewArray
        values = plain_array(array.values, type_.value_type)
        return kind.from_arrays(_fresh(array.offsets), _fresh(array.sizes), values, type=type_, mask=mask)
    start, stop = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
    offsets = pc.subtract(array.offsets, array.offsets[0])
    if pt.is_map(type_):
        keys = plain_array(array.keys[start:stop], type_.key_type)
        items = plain_array(array.items[start:stop], type_.item_type)
        maps: Any = pa.MapArray
        return maps.from_arrays(offsets, keys, items, type=type_, mask=mask)
    make: Any = pa.ListArray if pt.is_list(type_) else pa.LargeListArray
    return make.from_arrays(
        offsets, plain_array(array.values[start:stop], type_.value_type), type=type_, mask=mask
    )


def _decoded(array: Any, type_: Any) -> Any:
    words = array.dictionary
    if not len(words):
        return pa.nulls(len(array), type_)
    indices = array.indices
    points = pc.and_(pc.greater_equal(indices, pa.scalar(0)), pc.less(indices, pa.scalar(len(words))))
    return plain_array(words, type_).take(pc.if_else(points, indices, pa.scalar(None, indices.type)))


def _fresh(array: Any) -> Any:
    """A copy without an offset: what is built with a mask may not be a slice."""
    return pc.add(array, 0).cast(array.type)
