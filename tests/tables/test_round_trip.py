"""Whatever Arrow can hold and Parquet can store comes out of a sink as it went in."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables.anything import tables

from corpusmill.tables import changed_types, open_sink, open_source, read


@pytest.mark.parametrize("name", ["out", "out.parquet"])
@given(table=tables(), rows_per_part=st.integers(1, 7))
@settings(max_examples=60)
def test_a_table_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, name: str, table: pa.Table, rows_per_part: int
) -> None:
    """Types, nesting, nulls, metadata, any chunking, no rows; but for the types that were named as changed."""
    path = tmp_path_factory.mktemp("round") / name
    sink = open_sink(path)
    changed = {entry.partition(":")[0] for entry in changed_types(table.schema)}
    with sink.lock():
        writing = sink.begin(table.schema, run_key="run", job_key="job")
        for index, start in enumerate(range(0, table.num_rows, rows_per_part)):
            part = writing.part(index, start)
            for chunk in open_source(table.slice(start, rows_per_part)).chunks():
                part.write(chunk.batch)
            part.close()
        writing.commit()
    back = read(path).to_table()
    assert back.schema.metadata == table.schema.metadata
    assert back.to_pylist() == table.to_pylist()
    for before, after in zip(table.schema, back.schema, strict=True):
        assert (after.nullable, after.metadata) == (before.nullable, before.metadata)
        assert (before.type != after.type) == (before.name in changed)
    again = open_source(path)
    rows = [row for chunk in again.chunks() for row in chunk.batch.to_pylist()]
    assert rows == table.to_pylist()


@pytest.mark.parametrize("cut", [0, 1])
def test_dictionaries_are_decoded_wherever_they_lie(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    """Of views, under nulls that hide indices without a word, in sliced lists, maps and views of lists."""
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array(["a", "b"], pa.string_view()))
    hidden = pa.StructArray.from_arrays(
        [pa.DictionaryArray.from_arrays(pa.array([0, 7, 0, 1]), pa.array(["a", "b"]), safe=False)],
        ["w"],
        mask=pa.array([False, True, False, False]),
    )
    inner = pa.array(["a", "b", None, "a"]).dictionary_encode()
    lists: Any = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3, 4], pa.int32()), inner)
    view_of: Any = pa.ListViewArray
    views: Any = view_of.from_arrays(
        pa.array([2, 0, 0, 1], pa.int32()), pa.array([2, 0, 1, 2], pa.int32()), inner
    )
    map_of: Any = pa.MapArray
    maps: Any = map_of.from_arrays(pa.array([0, 1, 1, 3, 4], pa.int32()), pa.array(["k"] * 4), inner)
    fixed: Any = pa.FixedSizeListArray.from_arrays(inner, 1)
    columns = {"words": words, "hidden": hidden, "lists": lists, "views": views, "maps": maps, "fixed": fixed}
    table = pa.table(columns).slice(cut)
    expected: dict[str, list[Any]] = {
        "words": ["a", "b", None, "a"],
        "hidden": [{"w": "a"}, None, {"w": "a"}, {"w": "b"}],
        "lists": [["a", "b"], [], [None], ["a"]],
        "views": [[None, "a"], [], ["a"], ["b", None]],
        "maps": [[("k", "a")], [], [("k", "b"), ("k", None)], [("k", "a")]],
        "fixed": [["a"], ["b"], [None], ["a"]],
    }
    sink = open_sink(tmp_path_factory.mktemp("words") / "out")
    with sink.lock():
        writing = sink.begin(table.schema, run_key="run", job_key="job")
        part = writing.part(0, 0)
        for batch in table.to_batches():
            part.write(batch)
        part.close()
        writing.commit()
    back = read(sink.shown).to_table()
    assert back.to_pydict() == {name: values[cut:] for name, values in expected.items()}
    assert [entry.partition(":")[0] for entry in changed_types(table.schema)] == ["words"]
