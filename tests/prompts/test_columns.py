from __future__ import annotations

import pyarrow as pa
import pytest

from corpusmill.errors import SourceError
from corpusmill.prompts.columns import find_column, named, resolve_column

TEXT = pa.string()


def struct(**members: pa.DataType) -> pa.DataType:
    """Make a struct type."""
    return pa.struct(list(members.items()))


@pytest.mark.parametrize(
    ("fields", "path", "names"),
    [
        ({"doc": struct(body=struct(de=TEXT))}, "doc.body.de", ["doc", "body", "de"]),
        ({"doc.body": TEXT, "doc": struct(body=TEXT)}, "doc.body", ["doc.body"]),
        ({"doc": pa.struct([("a.b", TEXT), ("a", struct(b=TEXT))])}, "doc.a.b", ["doc", "a.b"]),
        ({"a.b": struct(c=TEXT), "a": struct(x=pa.int64())}, "a.b.c", ["a.b", "c"]),
    ],
)
def test_a_longer_name_comes_before_a_nested_reading(
    fields: dict[str, pa.DataType], path: str, names: list[str]
) -> None:
    """A name may have dots in it, at the top and inside of structs."""
    assert find_column(pa.schema(list(fields.items())), path) == (names, TEXT)


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


NFC, NFD = "gr\u00f6\u00dfe", "gro\u0308\u00dfe"


@pytest.mark.parametrize(
    ("fields", "path", "names"),
    [
        ({NFD: TEXT}, NFC, [NFD]),
        ({NFC: TEXT}, NFD, [NFC]),
        ({NFC: TEXT, NFD: TEXT}, NFD, [NFD]),
        ({"doc": struct(**{NFD: TEXT})}, f"doc.{NFC}", ["doc", NFD]),
    ],
)
def test_a_name_is_found_however_its_accents_are_encoded(
    fields: dict[str, pa.DataType], path: str, names: list[str]
) -> None:
    """The very name comes first."""
    assert find_column(pa.schema(list(fields.items())), path)[0] == names


def test_a_name_that_two_columns_differ_from_by_accents_alone_means_neither() -> None:
    """Which of them is meant cannot be told."""
    once, twice, third = "\u01d6", "u\u0308\u0304", "\u00fc\u0304"
    assert named(third, [once, "x"]) == once
    assert named(third, [once, twice]) is None
    with pytest.raises(SourceError, match="there is no column"):
        find_column(pa.schema([(once, TEXT), (twice, TEXT)]), third)


def test_a_name_that_a_struct_has_twice_is_refused() -> None:
    """It is among the paths, and leads nowhere."""
    twice = pa.struct([pa.field("b", TEXT), pa.field("b", TEXT)])
    with pytest.raises(SourceError, match=r"no column 'a\.b'"):
        find_column(pa.schema([("a", twice)]), "a.b")
