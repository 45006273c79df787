"""Whatever a table holds: right output, or a clear error before anything is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.proof import bad_data

if TYPE_CHECKING:
    import corpusmill


@given(
    table=bad_data.sources(),
    prompt=bad_data.prompts(),
    form=st.sampled_from(bad_data.FORMS),
    sink=st.sampled_from(["out", "out.parquet"]),
)
@settings(max_examples=40)
def test_any_table_gives_right_output_or_an_error_before_anything_is_sent(
    table: pa.Table, prompt: corpusmill.Ask, form: str, sink: str
) -> None:
    """Types, nesting, nulls, chunks, no rows, no row groups, bytes that are no text, names that stand twice."""
    bad_data.try_one(table, prompt, form, sink=sink)


@given(table=bad_data.sources(), form=st.sampled_from(bad_data.FORMS))
@settings(max_examples=20)
def test_a_table_with_one_column_of_text_is_asked_whatever_is_beside_it(table: pa.Table, form: str) -> None:
    """The odd columns go through, or are refused with their names."""
    names = ["text", *(f"c{number}" for number in range(1, table.num_columns))]
    table = table.rename_columns(names)
    came = bad_data.try_one(table, bad_data.ASK, form)
    assert came is None or came.error is None or any(name in str(came.error) for name in names[1:])


@pytest.mark.parametrize("form", bad_data.FORMS)
def test_a_thousand_columns_go_through(form: str) -> None:
    """The text is the last of them."""
    came = bad_data.try_one(bad_data.wide(1_000, 5), bad_data.ASK, form)
    assert came is not None
    assert came.error is None


@pytest.mark.parametrize("form", ["table", "parquet"])
def test_a_cell_of_megabytes_goes_through_whole(form: str) -> None:
    """It is sent to its last character and passed through unchanged."""
    came = bad_data.try_one(pa.table({"text": list(bad_data.large(2, 2))}), bad_data.ASK, form)
    assert came is not None
    assert min(map(len, came.asked)) > 2 * 1024 * 1024


@pytest.mark.parametrize("names", [["text", "text"], ["text", "id", "id"], ["text", "TEXT"]])
@pytest.mark.parametrize("form", bad_data.FORMS)
def test_a_name_that_stands_twice_is_refused_by_name_or_goes_through(names: list[str], form: str) -> None:
    """Nobody can say which of two columns is meant."""
    table = pa.Table.from_arrays([pa.array(["a", "b"])] * len(names), names=names)
    came = bad_data.try_one(table, bad_data.ASK, form)
    assert came is not None
    if len(set(names)) < len(names):
        assert came.error is not None
        assert names[-1] in str(came.error)
