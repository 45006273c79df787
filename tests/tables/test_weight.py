from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.tables.weight import array_bytes, bounded, content_bytes, rows_until

ARRAYS: list[pa.Array[Any]] = [
    pa.array(["ab", None, "", "čšž"]),
    pa.array(["ab", None, "", "čšž"], pa.large_string()),
    pa.array(["ab", None, "", "čšž"], pa.string_view()),
    pa.array([b"ab", None, b"", b"xyz"], pa.binary_view()),
    pa.array(["ab", None, "ab", "čšž"]).dictionary_encode(),
    pa.array([1, None, 3, 4], pa.int16()),
    pa.array([True, None, False, True]),
    pa.nulls(4),
    pa.array([[1, 2], None, [], [3]]),
    pa.array([["ab"], None, [], ["c", None]], pa.large_list(pa.string())),
    pa.array([[1, 2], None, [], [3]], pa.list_view(pa.int32())),
    pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.int32(), 2)),
    pa.array([{"a": "x", "b": 1}, None, {"a": None, "b": 2}, {"a": "yyy", "b": None}]),
    pa.array([[("a", 1)], None, [], [("bb", 2), ("c", None)]], pa.map_(pa.string(), pa.int32())),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None, b"1" * 16, None], pa.binary(16))),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.type))
def test_the_weight_of_rows_is_the_sum_of_each_row_s(array: pa.Array[Any]) -> None:
    """However they are cut, so that no boundary depends on how rows were batched."""
    each = [array_bytes(array.slice(row, 1)) for row in range(4)]
    assert array_bytes(array) == sum(each)
    assert array_bytes(array.slice(1, 2)) == sum(each[1:3])
    assert array_bytes(pa.concat_arrays([array.slice(2), array.slice(0, 2)])) == sum(each)


def test_text_weighs_its_bytes_and_a_validity_bitmap_nothing() -> None:
    """Four bytes for the offset, the characters in UTF-8."""
    assert array_bytes(pa.array(["ab", None, "č"])) == 4 + 2 + 4 + 4 + 2
    assert array_bytes(pa.array([1, None])) == array_bytes(pa.array([1, 2])) == 16


def test_a_dictionary_does_not_weigh_on_each_slice() -> None:
    """A slice of one row drags the whole dictionary along in memory, and yet does not weigh more."""
    words = pa.array(["x" * 1_000, "y" * 1_000]).dictionary_encode()
    assert array_bytes(words.slice(0, 1)) == 4


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60), st.integers(1, 20), st.integers(1, 500))
def test_pieces_are_bounded_and_lose_nothing(lengths: list[int], rows: int, size: int) -> None:
    """Each holds few enough rows and bytes, or one row, and together they are the batch."""
    batch = pa.RecordBatch.from_pydict({"t": ["x" * length for length in lengths]})
    pieces = list(bounded(batch, rows=rows, size=size))
    assert pa.Table.from_batches(pieces).to_pylist() == batch.to_pylist()
    for piece in pieces:
        assert 1 <= piece.num_rows <= rows
        assert piece.num_rows == 1 or content_bytes(piece) <= size


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(0, 800))
def test_the_row_that_fills_a_budget_is_the_first_that_reaches_it(lengths: list[int], budget: int) -> None:
    """Found by halving, the same as by counting."""
    batch = pa.RecordBatch.from_pydict({"t": ["x" * length for length in lengths]})
    total = 0
    expected = len(lengths)
    for row, length in enumerate(lengths):
        total += 4 + length
        if total >= budget:
            expected = row + 1
            break
    assert rows_until(batch, budget) == expected
