from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.errors import SourceError
from corpusmill.tables import column_text, resolve_column

WORDS = ["āčē", None, "", "line\r\nline", "a\u200db"]


def batch(**columns: Any) -> pa.RecordBatch:
    """One batch of the columns."""
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize(
    "type_",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_string()),
    ],
    ids=str,
)
def test_text_of_any_layout_is_the_same_text(type_: pa.DataType) -> None:
    """Also from a slice, and nothing in it is touched."""
    array = pa.array(WORDS).cast(type_)
    assert column_text(batch(text=array), "text") == (WORDS, [])
    assert column_text(batch(text=array).slice(1, 3), "text") == (WORDS[1:4], [])


def test_nested_text_is_found_by_its_path() -> None:
    """A null on the way is a null, whatever lies under it."""
    docs = pa.array([{"body": {"de": "x"}}, None, {"body": None}, {"body": {"de": None}}])
    assert column_text(batch(doc=docs), "doc.body.de") == (["x", None, None, None], [])
    masked = pa.StructArray.from_arrays([pa.array(["a", "b"])], ["t"], mask=pa.array([False, True]))
    assert column_text(batch(doc=masked), "doc.t") == (["a", None], [])
    words = pa.StructArray.from_arrays([pa.array(["a", "b"]).dictionary_encode()], ["t"])
    assert column_text(batch(doc=words).slice(1), "doc.t") == (["b"], [])


def test_a_name_with_a_dot_is_a_name_first() -> None:
    """A top-level column wins over the nested reading, and inside structs a longer name over a shorter."""
    one = batch(**{"doc.body": ["top"], "doc": [{"body": "nested", "a.b": "long", "a": {"b": "short"}}]})
    assert column_text(one, "doc.body") == (["top"], [])
    assert column_text(one, "doc.a.b") == (["long"], [])
    assert column_text(batch(**{"a.b": [{"c": "x"}], "a": [{"x": 1}]}), "a.b.c") == (["x"], [])


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_bytes_that_are_no_text_are_replaced_and_flagged(type_: Any) -> None:
    """Bytes outside UTF-8, a lone surrogate written out, NUL; the rows beside them stay as they are."""
    raw = [
        b"fine",
        b"bad \xff end",
        b"lone \xed\xa0\xbd end",
        None,
        b"nul \x00 end",
        "\ufffd is fine".encode(),
    ]
    offsets_safe = pa.array(raw, pa.large_binary() if type_ == pa.large_string() else pa.binary())
    if pa.types.is_string_view(type_):
        array = pa.array(raw, pa.binary_view()).view(pa.string_view())
    else:
        array = offsets_safe.view(type_)
    texts, repaired = column_text(batch(text=array), "text")
    assert texts == ["fine", "bad \ufffd end", "lone \ufffd end", None, "nul \ufffd end", "\ufffd is fine"]
    assert repaired == [1, 2, 4]
    assert column_text(batch(text=array).slice(4), "text") == (["nul \ufffd end", "\ufffd is fine"], [0])


def test_a_zero_byte_alone_is_found_without_any_other_damage() -> None:
    """In a slice only when it lies in the slice, and in a dictionary for each row that points to it."""
    array = pa.array(["a", "b\x00", "c"])
    assert column_text(batch(text=array), "text") == (["a", "b\ufffd", "c"], [1])
    assert column_text(batch(text=array).slice(2), "text") == (["c"], [])
    words = pa.array(["b\x00", "c", None, "b\x00"]).dictionary_encode()
    assert column_text(batch(text=words), "text") == (["b\ufffd", "c", None, "b\ufffd"], [0, 3])


def test_a_column_of_nulls_is_null_text() -> None:
    """A type that knows no text cannot hold any."""
    assert column_text(batch(text=pa.nulls(2)), "text") == ([None, None], [])


def test_what_is_no_text_is_refused() -> None:
    """With the type."""
    with pytest.raises(SourceError, match="'n' has type int64, which is no text"):
        column_text(batch(n=[1]), "n")
    with pytest.raises(SourceError, match="'n' has type dictionary"):
        column_text(batch(n=pa.array([1, 2]).dictionary_encode()), "n")


def test_an_unknown_column_is_refused_with_the_nearest() -> None:
    """Nested names are candidates too, and without a near one all are listed."""
    schema = pa.schema([("doc", pa.struct([("body", pa.string())])), ("id", pa.int64())])
    assert resolve_column(schema, "doc.body") == pa.string()
    with pytest.raises(SourceError, match=r"no column 'doc.bdoy'; did you mean 'doc.body'"):
        resolve_column(schema, "doc.bdoy")
    with pytest.raises(SourceError, match=r"no column 'xyz'; there are 'doc', 'doc.body', 'id'"):
        resolve_column(schema, "xyz")
    with pytest.raises(SourceError, match=r"no column 'id.x'"):
        resolve_column(schema, "id.x")
    with pytest.raises(SourceError, match="appears 2 times"):
        resolve_column(pa.schema([("a", pa.string()), ("a", pa.string())]), "a")


@given(st.lists(st.one_of(st.none(), st.text())), st.integers(0, 5))
def test_text_comes_out_as_it_went_in(values: list[str | None], skip: int) -> None:
    """All but NUL, wherever a slice begins."""
    texts, repaired = column_text(batch(text=pa.array(values, pa.string())).slice(skip), "text")
    assert texts == [None if value is None else value.replace("\x00", "\ufffd") for value in values[skip:]]
    assert repaired == [row for row, value in enumerate(values[skip:]) if value and "\x00" in value]
