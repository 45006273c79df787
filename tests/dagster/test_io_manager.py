"""The IO manager: what goes in comes out, whole or not at all, on disk and in an object store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import dagster as dg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import dataset as pads

from corpusmill.dagster import ArrowParquetIOManager
from corpusmill.dagster.io_manager import file_name, write_whole
from corpusmill.tables.storage import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dagster.conftest import Runs

TABLE = pa.table({"id": [1, 2, 3], "text": ["a", None, "c"]})
KINDS = (pa.Table, pa.RecordBatchReader, pads.Dataset)


def definitions_of(obj: object, base: str, seen: list[object]) -> dg.Definitions:
    """Make an asset that gives an object, and three that take it as each kind."""

    @dg.asset
    def given_() -> object:
        return obj

    def taker(kind: type) -> dg.AssetsDefinition:
        def take(given_: object) -> None:
            seen.append(given_.to_table() if isinstance(given_, pads.Dataset) else given_)
            if isinstance(given_, pa.RecordBatchReader):
                seen[-1] = given_.read_all()

        take.__annotations__ = {"given_": kind, "return": None}
        name = f"take_{kind.__name__.lower()}"
        return dg.asset(name=name, ins={"given_": dg.AssetIn(metadata={"columns": ["text"]})})(take)

    return dg.Definitions(
        assets=[given_, *(taker(kind) for kind in KINDS)],
        resources={"io_manager": ArrowParquetIOManager(base=base)},
    )


@pytest.mark.parametrize("kind", ["table", "reader", "batch", "dataset"])
def test_every_kind_goes_in_and_comes_out(kind: str, runs: Runs, tmp_path: Path) -> None:
    """Each of the kinds is written, and read as each of the kinds, narrowed to the columns that are asked for."""
    obj = {
        "table": TABLE,
        "reader": TABLE.to_reader(),
        "batch": TABLE.to_batches()[0],
        "dataset": pads.dataset(TABLE),
    }[kind]
    seen: list[object] = []
    result = runs.materialise(definitions_of(obj, str(tmp_path), seen))
    assert result.success
    assert seen == [TABLE.select(["text"])] * 3
    told = runs.told(result, "given_")
    assert told["dagster/row_count"] == 3
    assert Path(told["dagster/uri"]) == tmp_path / "given_.parquet"


def test_an_object_store_holds_assets_too(runs: Runs, bucket: str) -> None:
    """The base is a URL; nothing but the file itself stays behind."""
    seen: list[object] = []
    assert runs.materialise(definitions_of(TABLE, f"{bucket}/assets", seen)).success
    assert seen == [TABLE.select(["text"])] * 3
    assert [info.base_name for info in place_of(f"{bucket}/assets").children()] == ["given_.parquet"]


def test_partitions_are_loaded_as_one_table_or_by_key(runs: Runs, tmp_path: Path) -> None:
    """Keys that would be other folders or hidden files have files of their own, and come back in order."""
    keys = ["a/b", "..", "_x", "ü|,"]
    partitions = dg.StaticPartitionsDefinition(keys)

    @dg.asset(partitions_def=partitions)
    def part(context) -> pa.Table:  # type: ignore[no-untyped-def] # noqa: ANN001 - Dagster knows no annotation as text
        return pa.table({"key": [context.partition_key]})

    part_fn = part
    seen: list[object] = []

    @dg.asset
    def whole(part: pa.Table) -> None:
        seen.append(part.column("key").to_pylist())

    @dg.asset
    def by_key(part: dict[str, pa.Table]) -> None:
        seen.append({key: table.num_rows for key, table in part.items()})

    definitions = dg.Definitions(
        assets=[part_fn, whole, by_key], resources={"io_manager": ArrowParquetIOManager(base=str(tmp_path))}
    )
    for key in keys:
        assert runs.materialise(definitions, partition=key, assets=["part"]).success
    assert runs.materialise(definitions, assets=["whole", "by_key"]).success
    assert keys in seen
    assert dict.fromkeys(keys, 1) in seen
    assert {unquote(path.stem) for path in (tmp_path / "part").iterdir()} == set(keys)


def test_a_stream_that_breaks_off_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    """What was there before stays readable, and the half-written file is gone."""
    place = place_of(tmp_path / "table.parquet")
    write_whole(place, TABLE, compression="zstd")
    before = (tmp_path / "table.parquet").read_bytes()

    def broken() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise RuntimeError("broken off")

    with pytest.raises(RuntimeError, match="broken off"):
        write_whole(place, pa.RecordBatchReader.from_batches(TABLE.schema, broken()), compression="zstd")
    assert [path.name for path in tmp_path.iterdir()] == ["table.parquet"]
    assert (tmp_path / "table.parquet").read_bytes() == before


def test_what_is_no_table_and_what_is_not_there_are_named(runs: Runs, tmp_path: Path) -> None:
    """An output of another kind, a column that does not exist and a missing file each fail by name."""
    result = runs.materialise(definitions_of({"rows": 3}, str(tmp_path), []))
    assert "it must be a pyarrow Table" in runs.failure(result)[0]
    result = runs.materialise(definitions_of(pa.table({"id": [1]}), str(tmp_path), []))
    assert not result.success
    assert "has no column 'text'" in str(
        [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    )


@given(st.text(), st.text())
def test_two_keys_never_share_a_file(one: str, other: str) -> None:
    """The name of a file can be read back as the key, so that it is that of no other key."""
    if one:
        assert unquote(file_name(one)) == one
    assert (file_name(one) == file_name(other)) == (one == other)
    assert "/" not in file_name(one)
    assert file_name(one)[0] not in "._"
