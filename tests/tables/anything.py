"""Tables of whatever Arrow can hold, for Hypothesis to draw."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

TEXT = st.text(max_size=8)
FLAT: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXT),
    (pa.large_string(), TEXT),
    (pa.string_view(), TEXT),
    (pa.binary(), st.binary(max_size=8)),
    (pa.binary(4), st.binary(min_size=4, max_size=4)),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", ""])),
    (pa.dictionary(pa.int32(), pa.string()), TEXT),
    (pa.dictionary(pa.int32(), pa.int64()), st.integers(-3, 3)),
    (
        pa.timestamp("us", "UTC"),
        st.integers(-(2**50), 2**50),
    ),
    (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.decimal128(12, 3), st.decimals(-1_000_000, 1_000_000, places=3).map(Decimal)),
    (pa.null(), st.none()),
]


def nested(inner: tuple[pa.DataType, st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[pa.DataType, Any]]:
    """Lists, structs and maps of a type."""
    type_, values = inner
    maybe = st.none() | values
    few = st.lists(maybe, max_size=3)
    return st.sampled_from(
        [
            (pa.list_(type_), few),
            (pa.large_list(type_), few),
            (pa.list_(type_, 2), st.lists(maybe, min_size=2, max_size=2)),
            (pa.list_view(type_), few),
            (
                pa.struct([("a", type_), ("b", pa.int32())]),
                st.fixed_dictionaries({"a": maybe, "b": st.none()}),
            ),
            (pa.map_(pa.string(), type_), st.lists(st.tuples(TEXT, maybe), max_size=3)),
        ]
    )


TYPES = st.one_of(
    st.sampled_from(FLAT),
    st.sampled_from(FLAT).flatmap(nested),
    st.sampled_from(FLAT).flatmap(nested).flatmap(nested),
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """A table of some columns and rows, in chunks, some of them empty."""
    columns = draw(st.lists(TYPES, min_size=1, max_size=4))
    rows = draw(st.integers(0, 12))
    fields, arrays = [], []
    for position, (type_, values) in enumerate(columns):
        never_null = draw(st.booleans()) and not pa.types.is_null(type_)
        cells = draw(st.lists(values if never_null else st.none() | values, min_size=rows, max_size=rows))
        fields.append(pa.field(f"c{position}", type_, nullable=not never_null, metadata={"n": str(position)}))
        arrays.append(pa.array(cells, type_))
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata={"kept": "yes"}))
    cut = draw(st.integers(0, rows))
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)])
