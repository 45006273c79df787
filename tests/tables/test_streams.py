"""Batches of a stream that are not like the first one: what means the same is taken, the rest named."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest

from corpusmill.errors import SourceError
from corpusmill.tables.streams import like_first


def second(first: pa.Array[Any], later: dict[str, Any], *needed: str) -> list[Any]:
    """Give the values of the column `x` in a batch that comes after one in which it is `first`."""
    before = pa.record_batch({"x": first})
    same, other = like_first([before, pa.record_batch(later)], before.schema, needed=needed or {"x"})
    assert same is before
    assert other.schema == before.schema
    other.validate(full=True)
    return other.column("x").to_pylist()


@pytest.mark.parametrize(
    ("type_", "later", "values"),
    [
        (pa.string(), pa.array(["b"], pa.large_string()), ["b"]),
        (pa.large_string(), pa.array(["b"], pa.string_view()), ["b"]),
        (pa.string(), pa.array(["b", None]).dictionary_encode(), ["b", None]),
        (pa.string_view(), pa.array(["b"]).dictionary_encode(), ["b"]),
        (pa.dictionary(pa.int8(), pa.string()), pa.array(["b"]), ["b"]),
        (pa.string(), pa.nulls(2), [None, None]),
        (pa.int64(), pa.array([1], pa.int8()), [1]),
        (pa.int8(), pa.array([1], pa.int64()), [1]),
        (pa.int64(), pa.array([2.0]), [2]),
        (pa.timestamp("us"), pa.array([dt.date(2026, 1, 2)]), [dt.datetime(2026, 1, 2)]),  # noqa: DTZ001 - naive
        (pa.list_(pa.string()), pa.array([["b"]], pa.large_list(pa.large_string())), [["b"]]),
        (pa.list_(pa.string()), pa.array([[], None], pa.list_(pa.null())), [[], None]),
        (
            pa.struct([("a", pa.string()), ("b", pa.int64())]),
            pa.array([{"b": 1}], pa.struct([("b", pa.int8())])),
            [{"a": None, "b": 1}],
        ),
        (
            pa.map_(pa.string(), pa.int64()),
            pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
            [[("a", 1)]],
        ),
    ],
)
def test_values_that_mean_the_same_are_taken_in_the_type_of_the_first_batch(
    type_: pa.DataType, later: pa.Array[Any], values: list[Any]
) -> None:
    """Other layouts and widths, dictionaries, and nothing at all, at any depth."""
    assert second(pa.array([], type_), {"x": later}) == values


@pytest.mark.parametrize(
    ("type_", "later"),
    [
        (pa.string(), pa.array([1])),
        (pa.string(), pa.array([b"b"])),
        (pa.string(), pa.array([["b"]])),
        (pa.string(), pa.array([1]).dictionary_encode()),
        (pa.int64(), pa.array(["1"])),
        (pa.int64(), pa.array([True])),
        (pa.bool_(), pa.array([2])),
        (pa.null(), pa.array(["b"])),
        (pa.timestamp("us"), pa.array([5])),
        (pa.list_(pa.string()), pa.array([[1]])),
        (pa.struct([("a", pa.string())]), pa.array([{"a": 1}])),
        (pa.int8(), pa.array([300])),
        (pa.int64(), pa.array([2.5])),
        (pa.decimal128(4, 1), pa.array([decimal.Decimal("1.25")])),
    ],
)
def test_values_of_another_kind_and_those_that_do_not_fit_are_refused_by_name(
    type_: pa.DataType, later: pa.Array[Any]
) -> None:
    """With the batch, the column and both types, and without any value."""
    with pytest.raises(SourceError) as caught:
        second(pa.array([], type_), {"x": later})
    said = str(caught.value)
    assert said.startswith(
        f"batch 2 of the stream has the column 'x' as {later.type}, which is {type_} in the"
    )
    assert said.endswith((f"; cast it to {type_} first", "and a value of it does not fit"))


def test_columns_are_found_by_their_names() -> None:
    """In any order; a missing one and one that is there twice are refused, and more than the first has is left out."""
    text = pa.array(["a"])
    assert second(text, {"y": pa.array([1]), "x": pa.array(["b"])}) == ["b"]
    with pytest.raises(SourceError, match=r"batch 2 of the stream has no column 'x', which is string in"):
        second(text, {"y": pa.array(["b"])})
    before = pa.record_batch({"x": text})
    twice = pa.RecordBatch.from_arrays([text, text], names=["x", "x"])
    with pytest.raises(SourceError, match="batch 3 of the stream has 2 columns 'x'"):
        list(like_first([before, before, twice], before.schema, needed={"x"}))


@pytest.mark.parametrize("later", [{"x": pa.array([1])}, {"y": pa.array([1])}])
def test_a_column_that_nobody_needs_is_null_where_it_does_not_fit(later: dict[str, Any]) -> None:
    """Missing or of another kind."""
    assert second(pa.array(["a"]), later, "another") == [None]
