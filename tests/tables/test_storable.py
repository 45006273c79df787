from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from corpusmill.errors import UsageError
from corpusmill.tables import changed_types, check_storable
from corpusmill.tables.storable import plain_schema, stored_metadata

make_map: Any = pa.map_
SORTED_MAP = make_map(pa.string(), pa.int32(), keys_sorted=True)
ENDS = pa.run_end_encoded(pa.int32(), pa.string())


@pytest.mark.parametrize(
    ("type_", "what"),
    [
        (pa.dense_union([pa.field("a", pa.int32())]), "union"),
        (pa.sparse_union([pa.field("a", pa.int32())]), "union"),
        (pa.month_day_nano_interval(), "interval"),
        (ENDS, "run-end-encoded"),
        (pa.struct([]), "struct without fields"),
        (pa.list_(pa.struct([])), "struct without fields"),
        (pa.struct([("a", ENDS)]), "run-end-encoded"),
        (pa.map_(pa.string(), pa.month_day_nano_interval()), "interval"),
        (pa.list_(pa.list_(ENDS), 2), "run-end-encoded"),
    ],
    ids=str,
)
def test_types_that_parquet_cannot_hold_are_refused_by_column(type_: pa.DataType, what: str) -> None:
    """Nested ones too, with what it is that cannot be held."""
    with pytest.raises(UsageError, match=rf"column 'odd' .*cannot hold an? {what}"):
        check_storable(pa.schema([("id", pa.int64()), ("odd", type_)]))


def test_names_that_stand_twice_are_refused() -> None:
    """Parquet would take them and no reader would."""
    with pytest.raises(UsageError, match="'a' appears twice"):
        check_storable(pa.schema([("a", pa.int64()), ("a", pa.int64())]))


@pytest.mark.parametrize(
    ("type_", "after"),
    [
        (pa.timestamp("s"), "timestamp[ms]"),
        (pa.timestamp("s", "Europe/Riga"), "timestamp[ms, tz=Europe/Riga]"),
        (pa.date64(), "date32[day]"),
        (pa.time32("s"), "time32[ms]"),
        (pa.dictionary(pa.int32(), pa.int64()), "int64"),
        (pa.list_(pa.timestamp("s")), "list<element: timestamp[ms]>"),
    ],
    ids=str,
)
def test_types_that_parquet_changes_are_named(type_: pa.DataType, after: str) -> None:
    """With the type before and after; they are changed, not refused."""
    schema = pa.schema([("id", pa.int64()), ("when", type_)])
    check_storable(schema)
    assert changed_types(schema) == [f"when: {type_} -> {after}"]


@pytest.mark.parametrize(
    "type_",
    [
        pa.null(),
        pa.bool_(),
        pa.float16(),
        pa.decimal256(50, 3),
        pa.timestamp("ns", "UTC"),
        pa.duration("s"),
        pa.string_view(),
        pa.large_string(),
        pa.binary(4),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
        pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))]),
        pa.list_view(pa.int32()),
        pa.list_(pa.int32(), 3),
        SORTED_MAP,
        pa.uuid(),
        pa.bool8(),
    ],
    ids=str,
)
def test_types_that_come_back_as_they_were_are_not_named(type_: pa.DataType) -> None:
    """Stored in plain form, with the schema that says otherwise."""
    schema = pa.schema([pa.field("x", type_, metadata={"kept": "yes"})], metadata={"kept": "too"})
    check_storable(schema)
    assert changed_types(schema) == []
    file = io.BytesIO()
    with pq.ParquetWriter(file, plain_schema(schema), store_schema=False) as writer:
        metadata: Any = stored_metadata(schema)
        writer.add_key_value_metadata(metadata)
    after = pq.read_schema(file)
    assert after.equals(schema)
    assert (after.metadata, after.field("x").metadata) == ({b"kept": b"too"}, {b"kept": b"yes"})
