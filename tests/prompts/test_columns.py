from __future__ import annotations

import pyarrow as pa
import pytest

from corpusmill.errors import SourceError
from corpusmill.prompts.columns import find_column, resolve_column

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
