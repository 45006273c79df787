from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet as pq

from corpusmill.errors import SourceError
from corpusmill.tables import SourceSpec, open_source

if TYPE_CHECKING:
    from pathlib import Path

TABLE = pa.table(
    {
        "row": [0, 1, 2, 3],
        "lang": pa.array(["en", "lv", None, "de"]),
        "view": pa.array(["en", "lv", None, "de"], pa.string_view()),
        "wide": pa.array(["en", "lv", None, "de"], pa.large_string()),
        "word": pa.array(["en", "lv", None, "de"]).dictionary_encode(),
        "size": pa.array([1.5, 2.0, None, 4.0]),
        "good": pa.array([True, False, None, True]),
        "when": pa.array(["2024-01-01", "2024-01-02", None, "2025-01-01"]).cast(pa.date32()),
        "time": pa.array(["2024-01-01 10:00", "2024-01-02 00:00", None, "2025-01-01 00:00"]).cast(
            pa.timestamp("us")
        ),
        "zoned": pa.array(["2024-01-01 10:00Z", "2024-01-02 00:00Z", None, "2025-01-01 00:00Z"]).cast(
            pa.timestamp("us", "Europe/Riga")
        ),
        "hour": pa.array([dt.time(10), dt.time(9, 30), None, dt.time(11)], pa.time64("us")),
        "cost": pa.array([Decimal("1.10"), Decimal("2.20"), None, Decimal("4.40")]),
        "doc": pa.array([{"lang": "en"}, {"lang": "lv"}, None, {"lang": "de"}]),
        "list": [[1], [2], None, [3]],
    }
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that holds the table."""
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=2)
    return tmp_path


def rows(folder: Path, *conditions: list[Any]) -> list[Any]:
    """The numbers of the rows that fulfil the conditions."""
    source = open_source(SourceSpec(path=folder, filter=conditions))
    return [row for chunk in source.chunks() for row in chunk.batch.column("row").to_pylist()]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (["lang", "=", "lv"], [1]),
        (["lang", "==", "lv"], [1]),
        (["lang", "!=", "lv"], [0, 3]),
        (["lang", "in", ["lv", "de", "xx"]], [1, 3]),
        (["lang", "in", []], []),
        (["zoned", "<", "2024-01-02T00:00:00+02:00"], [0]),
        (["zoned", "=", "2024-01-02T00:00:00Z"], [1]),
        (["hour", "<=", "10:00:00"], [0, 1]),
        (["hour", "=", "09:30"], [1]),
        (["cost", "<", "3.5"], [0, 1]),
        (["lang", "not in", ["lv"]], [0, 3]),
        (["lang", "NOT  IN", ("lv",)], [0, 3]),
        (["lang", "is null"], [2]),
        (["lang", "is not null"], [0, 1, 3]),
        (["lang", "is null", None], [2]),
        (["view", "=", "lv"], [1]),
        (["wide", ">", "en"], [1]),
        (["word", "in", ["lv"]], [1]),
        (["word", "!=", "lv"], [0, 3]),
        (["size", "<", 2], [0]),
        (["size", "<=", 2.0], [0, 1]),
        (["size", ">", 2], [3]),
        (["size", ">=", 2], [1, 3]),
        (["good", "=", True], [0, 3]),
        (["when", "<", "2024-12-31"], [0, 1]),
        (["when", "=", dt.date(2024, 1, 2)], [1]),
        (["time", ">", "2024-01-01 12:00:00"], [1, 3]),
        (["cost", ">", "1.5"], [1, 3]),
        (["cost", "=", Decimal("2.20")], [1]),
        (["cost", ">", 2], [1, 3]),
        (["doc.lang", "=", "lv"], [1]),
        (["doc.lang", "is null"], [2]),
        (["list", "is null"], [2]),
        (["row", "!=", 1 << 40], [0, 1, 2, 3]),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_a_condition_keeps_the_rows_that_fulfil_it(
    folder: Path, condition: list[Any], expected: list[int]
) -> None:
    """Of each type, nulls fulfilling nothing but `is null`."""
    assert rows(folder, condition) == expected


def test_all_conditions_must_hold(folder: Path) -> None:
    """Several conditions narrow one another."""
    assert rows(folder, ["row", ">", 0], ["lang", "!=", "de"]) == [1]


def test_the_columns_of_a_filter_need_not_be_kept(folder: Path) -> None:
    """They are read, and left out afterwards."""
    source = open_source(SourceSpec(path=folder, filter=[["doc.lang", "=", "lv"]], columns=["row"]))
    assert [chunk.batch.to_pylist() for chunk in source.chunks()] == [[{"row": 1}]]


def test_whole_files_and_row_groups_that_cannot_match_are_not_read(tmp_path: Path) -> None:
    """By the keys of their folders and by statistics: damaged pages of theirs do no harm."""
    for lang in ("lv", "en"):
        (tmp_path / f"lang={lang}").mkdir()
        pq.write_table(TABLE.select(["row"]), tmp_path / f"lang={lang}" / "a.parquet", row_group_size=2)
    path = tmp_path / "lang=en" / "a.parquet"
    data = bytearray(path.read_bytes())
    data[4:40] = b"x" * 36
    path.write_bytes(data)
    assert rows(tmp_path, ["lang", "=", "lv"]) == [0, 1, 2, 3]
    assert rows(tmp_path / "lang=en", ["row", ">=", 2]) == [2, 3]
    with pytest.raises(SourceError, match="cannot read"):
        rows(tmp_path / "lang=en", ["row", ">=", 1])


@pytest.mark.parametrize(
    ("conditions", "count"),
    [
        ([["lang", "=", "lv"]], 8),
        ([["lang", "!=", "lv"]], 4),
        ([["lang", "is null"]], 4),
        ([["lang", "=", "lv"], ["year", "in", [2024]]], 4),
        ([["lang", "=", "xx"]], 0),
        ([["lang", "=", "lv"], ["row", ">=", 0]], None),
    ],
    ids=str,
)
def test_rows_are_counted_without_reading_where_folders_alone_decide(
    tmp_path: Path, conditions: list[Any], count: int | None
) -> None:
    """As many as are read then, also within a range; a condition on what lies in the files takes reading."""
    for lang, year in (("lv", 2024), ("lv", 2025), ("en", 2025), ("__HIVE_DEFAULT_PARTITION__", 2025)):
        inside = tmp_path / f"lang={lang}" / f"year={year}"
        inside.mkdir(parents=True)
        pq.write_table(TABLE.select(["row"]), inside / "a.parquet", row_group_size=2)
    source = open_source(SourceSpec(path=tmp_path, filter=conditions, partition_types={"year": "int32"}))
    assert source.rows == count
    if count is not None:
        assert sum(chunk.batch.num_rows for chunk in source.chunks()) == count
        part = open_source(
            SourceSpec(path=tmp_path, filter=conditions, partition_types={"year": "int32"}, rows=(1, 6))
        )
        assert part.rows == sum(chunk.batch.num_rows for chunk in part.chunks()) == min(5, max(0, count - 1))


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (["lnag", "=", "lv"], "source.filter names 'lnag': there is no column 'lnag'; did you mean 'lang'"),
        (["lang", "~", "lv"], "source.filter on 'lang': unknown operator '~'"),
        (["lang", "=", 1], r"'lang': 1 \(int\) does not fit the column's type string"),
        (["lang", "=", None], "use 'is null'"),
        (["lang", "="], "needs a value"),
        (["lang"], "not of the form"),
        ("lang = lv", "not of the form"),
        ([1, "=", 1], "must be text"),
        (["lang", "is null", "x"], "takes no value"),
        (["lang", "in", "lv"], "needs a list"),
        (["lang", "in", 5], "needs a list"),
        (["lang", "in", ["lv", None]], "null compares with nothing"),
        (["row", "=", "1"], "does not fit the column's type int64"),
        (["row", "=", True], "does not fit"),
        (["row", "=", 1.5], "does not fit"),
        (["row", "=", 1 << 70], "'row': 1180591620717411303424 is no int64"),
        (["good", "=", 1], "does not fit"),
        (["when", "=", "yesterday"], "'yesterday' is no date32"),
        (["when", "=", "1.5.2024"], 'is no date32.*; write a day, as in "2024-05-01"'),
        (
            ["time", "=", "2024-01-01T10:00:00Z"],
            'write a time without an offset, as in "2024-05-01T09:30:00"',
        ),
        (["zoned", "=", "2024-01-01"], 'with Z or an offset such as .02:00, as in "2024-05-01T09:30:00Z"'),
        (["zoned", "=", 2024], "does not fit .* write a time with Z or an offset"),
        (["hour", "=", "noon"], 'is no time64.*; write a time, as in "09:30:00"'),
        (["cost", "=", 3.5], 'does not fit the column.s type decimal.*; write it in quotes, as in "3.5"'),
        (["list", "=", [1]], "cannot be filtered by value"),
        (["doc", "=", "en"], "cannot be filtered by value"),
    ],
    ids=str,
)
def test_a_condition_that_makes_no_sense_is_refused_by_name(
    folder: Path, condition: Any, message: str
) -> None:
    """When the source is opened, before a row is read."""
    with pytest.raises(SourceError, match=message):
        open_source(SourceSpec(path=folder, filter=[condition]))


def test_an_empty_filter_is_refused(folder: Path) -> None:
    """It would mean all rows, and is more likely a slip."""
    with pytest.raises(SourceError, match="the filter is empty"):
        open_source(SourceSpec(path=folder, filter=[]))


def test_a_value_is_never_evaluated(folder: Path) -> None:
    """Code in a value is text."""
    assert rows(folder, ["lang", "=", "__import__('os').abort()"]) == []


@given(
    values=st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=30),
    bound=st.integers(-5, 5),
    group=st.integers(1, 7),
)
def test_a_filter_means_what_python_means(
    tmp_path_factory: pytest.TempPathFactory, values: list[int | None], bound: int, group: int
) -> None:
    """Whatever row groups the statistics exclude."""
    path = tmp_path_factory.mktemp("filter") / "a.parquet"
    table = pa.table({"row": range(len(values)), "value": pa.array(values, pa.int64())})
    pq.write_table(table, path, row_group_size=group)
    expected = [row for row, value in enumerate(values) if value is not None and value < bound]
    assert rows(path, ["value", "<", bound]) == expected
