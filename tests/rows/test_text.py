from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.prompts.prompt import Input
from corpusmill.rows.text import Values, column_values

WORDS = ["āčē", None, "", "line\r\nline", "a\u200db"]


def read(column: pa.Array[Any], path: str = "text", kind: Any = "text") -> Values:
    """Read the values of one column."""
    return column_values(
        pa.RecordBatch.from_arrays([column], names=[path.partition(".")[0]]), Input(path=path, kind=kind)
    )


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
    """Also from a slice; nothing in it is touched but a zero byte."""
    array = pa.array(WORDS).cast(type_)
    assert read(array) == Values(WORDS)
    assert read(array.slice(1, 3)) == Values(WORDS[1:4])
    damaged = pa.array(["a", None, "b\0"]).cast(type_)
    assert read(damaged) == Values(["a", None, "b\ufffd"], frozenset({2}))
    assert read(damaged.slice(1)) == Values([None, "b\ufffd"], frozenset({1}))
    assert read(damaged.slice(0, 2)) == Values(["a", None])


def test_text_with_a_logical_type_is_the_text_that_is_stored() -> None:
    """A column of JSON documents is text to a prompt, at the top and inside of structs."""
    documents: pa.Array[Any] = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', None]))
    assert read(documents) == Values(['{"a": 1}', None])
    assert read(documents, kind="json") == Values(['{"a": 1}', None])
    assert read(pa.StructArray.from_arrays([documents], ["t"]), "doc.t") == Values(['{"a": 1}', None])


def test_nested_text_is_found_by_its_path() -> None:
    """A null on the way is a null, whatever lies under it, and a name may have a dot."""
    docs = pa.array([{"body": {"de": "x"}}, None, {"body": None}, {"body": {"de": None}}])
    assert read(docs, "doc.body.de").items == ["x", None, None, None]
    masked = pa.StructArray.from_arrays([pa.array(["a", "b"])], ["t"], mask=pa.array([False, True]))
    assert read(masked, "doc.t").items == ["a", None]
    words = pa.StructArray.from_arrays([pa.array(["a", "b"]).dictionary_encode()], ["t"])
    assert read(words.slice(1), "doc.t").items == ["b"]
    dotted = pa.RecordBatch.from_pydict({"a.b": [{"c": "x"}], "a": [{"x": 1}]})
    assert column_values(dotted, Input(path="a.b.c")).items == ["x"]


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
    layouts = {
        pa.string(): pa.binary(),
        pa.large_string(): pa.large_binary(),
        pa.string_view(): pa.binary_view(),
    }
    array = pa.array(raw, layouts[type_]).view(type_)
    expected = ["fine", "bad \ufffd end", "lone \ufffd end", None, "nul \ufffd end", "\ufffd is fine"]
    assert read(array) == Values(expected, frozenset({1, 2, 4}))
    assert read(array.slice(4)) == Values(expected[4:], frozenset({0}))
    if not pa.types.is_string_view(type_):
        nested = pa.ListArray.from_arrays([0, 1, 3, 6], pa.StructArray.from_arrays([array], ["a"]))
        found = read(nested, kind="json")
        assert found.items == [[{"a": text} for text in expected[a:b]] for a, b in ((0, 1), (1, 3), (3, 6))]
        assert found.cleaned == {1, 2}


def test_a_zero_byte_in_a_nested_text_is_replaced_and_flagged() -> None:
    """Text in messages is text like any other."""
    found = read(pa.array([[{"content": "a\0b"}], [{"content": "c"}]]), kind="json")
    assert found == Values([[{"content": "a\ufffdb"}], [{"content": "c"}]], frozenset({0}))


def test_a_value_that_python_cannot_hold_costs_its_own_row() -> None:
    """A moment beyond the year 9999 has no Python object; its row says so, and the next one is read."""
    moments = pa.array([10**18, 0], pa.timestamp("s"))
    found = read(pa.StructArray.from_arrays([moments], ["at"]), kind="json")
    assert list(found.unreadable) == [0]
    assert "cannot be read" in found.unreadable[0]
    assert found.items[0] is None
    assert found.items[1]["at"].year == 1970


@given(st.lists(st.one_of(st.none(), st.text())), st.integers(0, 5))
def test_text_comes_out_as_it_went_in(values: list[str | None], skip: int) -> None:
    """All but NUL, wherever a slice begins."""
    found = read(pa.array(values, pa.string()).slice(skip))
    assert found.items == [
        None if value is None else value.replace("\x00", "\ufffd") for value in values[skip:]
    ]
    assert found.cleaned == {row for row, value in enumerate(values[skip:]) if value and "\x00" in value}
