from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import dataset as pads
from pyarrow import ipc
from pyarrow import parquet as pq

from corpusmill.errors import SinkError, SourceChangedError, SourceError
from corpusmill.tables import Source, SourceSpec, open_sink, open_source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TABLE = pa.table({"id": range(3_000), "text": [f"text {row}" for row in range(3_000)]})
LONG = pa.table({"id": range(5_000), "text": [f"text {row}" for row in range(5_000)]})


def everything(source: Source, start_row: int = 0) -> pa.Table:
    """All rows from a number on."""
    chunks = [chunk.batch for chunk in source.chunks(start_row)]
    return pa.Table.from_batches(chunks, source.schema)


def bounds(source: Source, start_row: int = 0) -> list[tuple[int, int]]:
    """First row and length of each chunk."""
    return [(chunk.first_row, chunk.batch.num_rows) for chunk in source.chunks(start_row)]


def test_chunks_follow_row_groups_and_never_exceed_a_chunk_s_rows(tmp_path: Path) -> None:
    """A row group of 2,500 rows is two chunks, and row numbers run through."""
    pq.write_table(LONG, tmp_path / "a.parquet", row_group_size=2_500)
    source = open_source(tmp_path / "a.parquet")
    assert bounds(source) == [(0, 2_048), (2_048, 452), (2_500, 2_048), (4_548, 452)]
    assert source.rows == 5_000
    assert everything(source).equals(LONG)


def test_a_start_row_cuts_the_first_chunk_and_leaves_the_other_boundaries(tmp_path: Path) -> None:
    """A resumed run sees the same chunks from the next boundary on, whether in a table, a file or a dataset."""
    pq.write_table(LONG, tmp_path / "a.parquet", row_group_size=2_500)
    assert bounds(open_source(tmp_path), 2_600) == [(2_600, 1_948), (4_548, 452)]
    assert bounds(open_source(tmp_path), 5_000) == []
    assert bounds(open_source(LONG), 2_000) == [(2_000, 48), (2_048, 2_048), (4_096, 904)]
    assert everything(open_source(tmp_path), 2_499).equals(LONG.slice(2_499))
    assert everything(open_source(pads.dataset(tmp_path)), 2_499).equals(LONG.slice(2_499))


def test_large_rows_make_small_chunks(tmp_path: Path) -> None:
    """Rows of 1.5 MiB come two at a time, so that a chunk holds at most about 4 MiB."""
    table = pa.table({"text": [letter * (3 << 19) for letter in "abcdefgh"]})
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=False)
    source = open_source(tmp_path / "a.parquet")
    assert max(rows for _, rows in bounds(source)) == 2
    assert everything(source).equals(table)


def test_a_row_group_of_many_chunks_is_never_held_whole(tmp_path: Path) -> None:
    """While 200 MiB of text in one row group are read, Arrow holds a fraction of them."""
    batch = pa.table({"text": [f"{row:07}" * 15_000 for row in range(100)]})
    schema = pa.schema([("text", pa.string())])
    with pq.ParquetWriter(
        tmp_path / "a.parquet", schema, use_dictionary=False, write_batch_size=8, data_page_size=1 << 20
    ) as writer:
        writer.write_table(pa.concat_tables([batch] * 20), row_group_size=10_000)
    del batch
    before = pa.total_allocated_bytes()
    source = open_source(tmp_path / "a.parquet")
    held = [pa.total_allocated_bytes() - before for _ in source.chunks()]
    assert len(held) > 20
    assert max(held) < 80 << 20


def test_files_of_a_folder_come_in_sorted_order_and_hidden_ones_do_not_count(tmp_path: Path) -> None:
    """Names that begin with an underscore or a dot are passed over, at any depth."""
    for name in ("b.parquet", "a/x.parquet", "a.parquet", "_c.parquet", ".d.parquet", "_e/x.parquet"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"name": [name]}), path)
    (tmp_path / "README.md").write_text("not a table")
    names = everything(open_source(tmp_path)).column("name").to_pylist()
    assert names == ["a.parquet", "a/x.parquet", "b.parquet"]


def test_a_glob_takes_what_it_matches(tmp_path: Path) -> None:
    """`*` stays within a folder, `**` does not, and a glob without a match is an error."""
    for name in ("a1.parquet", "a2.parquet", "b1.parquet", "deep/er/a3.parquet"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"name": [name]}), path)
    assert open_source(f"{tmp_path}/a*.parquet").rows == 2
    assert open_source(f"{tmp_path}/**/a*.parquet").rows == 3
    assert open_source(f"{tmp_path}/d*/[a-f]?/*").rows == 1
    with pytest.raises(SourceError, match=r"c\*.parquet matches no"):
        open_source(f"{tmp_path}/c*.parquet")


def test_hive_keys_are_text_unless_declared(tmp_path: Path) -> None:
    """`code=01001` keeps its zero, a date-like value stays as it is, escapes come back, hive's null is null."""
    for folder in ("code=01001/day=2024-01-01", "code=a%2Fb/day=__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), tmp_path / folder / "x.parquet")
    source = open_source(tmp_path)
    assert source.schema.names == ["id", "code", "day"]
    assert source.schema.types == [pa.int64(), pa.string(), pa.string()]
    assert everything(source).to_pylist() == [
        {"id": 1, "code": "01001", "day": "2024-01-01"},
        {"id": 1, "code": "a/b", "day": None},
    ]
    dated = open_source(SourceSpec(path=tmp_path, columns=["day"], partition_types={"day": "date32"}))
    assert dated.schema.field("day").type == pa.date32()
    assert str(everything(dated).to_pylist()[0]["day"]) == "2024-01-01"
    with pytest.raises(SourceError, match=r"code='a/b' is no int32"):
        everything(open_source(SourceSpec(path=tmp_path, partition_types={"code": "int32"})))
    with pytest.raises(SourceError, match=r"'month'.*no key"):
        open_source(SourceSpec(path=tmp_path, partition_types={"month": "int32"}))
    with pytest.raises(SourceError, match="which is no Arrow type"):
        open_source(SourceSpec(path=tmp_path, partition_types={"code": "integer"}))


def test_a_glob_over_hive_folders_gives_their_keys(tmp_path: Path) -> None:
    """The part of the path that the glob leaves open is where keys are looked for."""
    (tmp_path / "lang=lv").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "lang=lv" / "x.parquet")
    for pattern in ("lang=*", "lang=*/*.parquet"):
        assert everything(open_source(f"{tmp_path}/{pattern}")).to_pylist() == [{"id": 1, "lang": "lv"}]


def test_files_under_other_keys_are_refused(tmp_path: Path) -> None:
    """A file that lies beside the partitions is named."""
    (tmp_path / "lang=lv").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "lang=lv" / "x.parquet")
    pq.write_table(pa.table({"id": [1]}), tmp_path / "stray.parquet")
    with pytest.raises(SourceError, match=r"stray.parquet lies in folders of other keys"):
        open_source(tmp_path)


def test_a_file_that_is_no_table_is_called_that(tmp_path: Path) -> None:
    """One of another kind, an empty one, and Parquet under a name that says something else."""
    (tmp_path / "a.csv").write_text("id,text\n1,a\n", "utf-8")
    (tmp_path / "b.txt").touch()
    for name in ("a.csv", "b.txt"):
        with pytest.raises(
            SourceError, match=rf"{name} is neither a Parquet nor an Arrow file; make one of it"
        ):
            open_source(tmp_path / name)
    pq.write_table(TABLE, tmp_path / "c.data")
    with pytest.raises(
        SourceError, match=r"c.data is a Parquet file by another name; let its name end in .parquet"
    ):
        open_source(tmp_path / "c.data")


def test_an_arrow_file_or_stream_may_have_any_name(tmp_path: Path) -> None:
    """The content tells what it is."""
    for name, kind in (("a.data", ipc.new_file), ("b.data", ipc.new_stream)):
        with kind(str(tmp_path / name), TABLE.schema) as writer:
            writer.write_table(TABLE)
        assert everything(open_source(tmp_path / name)).equals(TABLE)


@pytest.mark.parametrize("kind", ["arrow", "feather", "ipc"])
@pytest.mark.parametrize("stream", [False, True])
def test_arrow_files_and_streams_are_read(tmp_path: Path, kind: str, *, stream: bool) -> None:
    """The content tells a file from a stream, whatever the ending, and the rows of a stream are unknown."""
    path = tmp_path / f"a.{kind}"
    with (ipc.new_stream if stream else ipc.new_file)(str(path), TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=1_700)
    source = open_source(path)
    assert source.rows == (None if stream else 3_000)
    assert everything(source).equals(TABLE)
    assert everything(source, 2_000).equals(TABLE.slice(2_000))
    both = open_source(SourceSpec(path=path, columns=["text"], rows=(1_690, 1_710)))
    assert everything(both).equals(TABLE.select(["text"]).slice(1_690, 20))


def test_several_streams_are_one_source(tmp_path: Path) -> None:
    """A start row may lie beyond a file whose length is not known beforehand."""
    for name in "ab":
        with ipc.new_stream(str(tmp_path / f"{name}.arrow"), TABLE.schema) as writer:
            writer.write_table(TABLE)
    source = open_source(tmp_path)
    assert everything(source, 2_990).equals(pa.concat_tables([TABLE.slice(2_990), TABLE]))
    assert everything(source, 3_500).equals(TABLE.slice(500))


def test_limit_and_row_range_count_rows_after_the_filter(tmp_path: Path) -> None:
    """Row numbers start at 0 in whatever is left, and the range counts within the limit."""
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=700)
    some: Any = [["id", ">=", 1_000]]
    source = open_source(SourceSpec(path=tmp_path, filter=some, limit=20, rows=(15, 40), columns=["id"]))
    assert bounds(source) == [(0, 5)]
    assert everything(source).column("id").to_pylist() == [1_015, 1_016, 1_017, 1_018, 1_019]
    assert everything(source, 3).column("id").to_pylist() == [1_018, 1_019]
    assert source.rows is None
    assert open_source(SourceSpec(path=tmp_path, limit=20, rows=(15, 40))).rows == 5
    assert open_source(SourceSpec(path=tmp_path, limit=9_999)).rows == 3_000
    assert open_source(SourceSpec(path=tmp_path, limit=0)).rows == 0
    assert bounds(open_source(SourceSpec(path=tmp_path, limit=0))) == []
    assert bounds(open_source(SourceSpec(path=tmp_path, rows=(2_990, 9_000)))) == [(0, 10)]


def test_what_is_left_of_a_filter_is_gathered_into_whole_chunks(tmp_path: Path) -> None:
    """One row in a hundred makes one chunk of thirty, not thirty chunks."""
    table = TABLE.append_column("part", pa.array([row % 100 for row in range(3_000)]))
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    assert bounds(open_source(SourceSpec(path=tmp_path, filter=[["part", "=", 7]]))) == [(0, 30)]


@pytest.mark.parametrize(
    "spec",
    [{"limit": -1}, {"rows": (3, 2)}, {"rows": (-1, 2)}, {"columns": "text"}],
)
def test_a_request_that_makes_no_sense_is_refused(spec: dict[str, Any]) -> None:
    """Before anything is opened."""
    with pytest.raises(SourceError):
        SourceSpec(path="nowhere", **spec)


def test_columns_are_projected_in_the_order_asked_for(tmp_path: Path) -> None:
    """Metadata stays, an unknown column is named, and names with dots are names."""
    table = pa.table({"a": [1], "a.b": ["dot"], "c": [{"b": 2}]}).replace_schema_metadata({"kept": "yes"})
    pq.write_table(table, tmp_path / "a.parquet")
    source = open_source(SourceSpec(path=tmp_path, columns=["c", "a.b"]))
    assert source.schema.metadata == {b"kept": b"yes"}
    assert everything(source).to_pylist() == [{"c": {"b": 2}, "a.b": "dot"}]
    assert everything(open_source(SourceSpec(path=tmp_path, columns=["a"]))).to_pylist() == [{"a": 1}]
    with pytest.raises(SourceError, match="'b', which is no top-level column"):
        open_source(SourceSpec(path=tmp_path, columns=["b"]))
    with pytest.raises(SourceError, match="twice"):
        open_source(SourceSpec(path=tmp_path, columns=["a", "a"]))


def test_only_a_hive_key_may_be_asked_for(tmp_path: Path) -> None:
    """Rows count although none of the file's own columns is read."""
    (tmp_path / "lang=lv").mkdir()
    pq.write_table(TABLE, tmp_path / "lang=lv" / "x.parquet")
    source = open_source(SourceSpec(path=tmp_path, columns=["lang"]))
    assert everything(source).column("lang").to_pylist() == ["lv"] * 3_000
    assert everything(source, 2_999).num_rows == 1


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Missing, empty, damaged, of another kind: each is an error that names the place."""
    with pytest.raises(SourceError, match=r"gone.parquet does not exist"):
        open_source(tmp_path / "gone.parquet")
    with pytest.raises(SourceError, match="holds no Parquet or Arrow file"):
        open_source(tmp_path)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 this is no table PAR1")
    with pytest.raises(SourceError, match=r"cannot read .*bad.parquet"):
        open_source(tmp_path)
    (tmp_path / "bad.parquet").unlink()
    (tmp_path / "bad.arrow").write_bytes(b"nothing of the kind")
    with pytest.raises(SourceError, match=r"cannot read .*bad.arrow"):
        open_source(tmp_path)
    (tmp_path / "bad.arrow").unlink()
    (tmp_path / "rows.csv").write_text("a,b\n")
    with pytest.raises(SourceError, match=r"also holds rows.csv"):
        open_source(tmp_path)
    with pytest.raises(SourceError, match=r"ftp:// is not a scheme"):
        open_source("ftp://host/a.parquet")
    with pytest.raises(SourceError, match="put them in the environment") as refused:
        open_source("s3://key:secret@bucket/a.parquet")
    assert "secret" not in str(refused.value)


def test_the_report_of_a_run_that_ended_early_is_no_table_of_the_folder_in_which_it_lies(
    tmp_path: Path,
) -> None:
    """Outputs that lie side by side are read as one table, also while a run of one of them waits to go on."""
    pq.write_table(TABLE, tmp_path / "a.parquet")
    for kind in ("json", "html"):
        (tmp_path / f"b.failed.report.{kind}").write_text("{}", "utf-8")
    assert open_source(tmp_path).rows == TABLE.num_rows
    (tmp_path / "b.report.json").write_text("{}", "utf-8")
    with pytest.raises(SourceError, match=r"also holds b.report.json"):
        open_source(tmp_path)


def test_a_file_that_is_damaged_half_way_is_named(tmp_path: Path) -> None:
    """A footer may be whole where the pages are not; the error comes with the file's name when they are read."""
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path, compression="zstd")
    data = bytearray(path.read_bytes())
    data[40:4_000] = os.urandom(3_960)
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"cannot read .*a.parquet"):
        everything(open_source(path))


def test_an_encrypted_column_is_named_and_does_not_end_the_process(tmp_path: Path) -> None:
    """Arrow ends the process when it is asked for the sizes of such a column."""
    code = (
        "import base64, sys, pyarrow as pa, pyarrow.parquet as pq\n"
        "from pyarrow.parquet.encryption import *\n"
        "class Kms(KmsClient):\n"
        "    def __init__(self, _):\n        KmsClient.__init__(self)\n"
        "    def wrap_key(self, key, _):\n        return base64.b64encode(key)\n"
        "made = CryptoFactory(Kms).file_encryption_properties(KmsConnectionConfig(), EncryptionConfiguration(\n"
        "    footer_key='f', column_keys={'c': ['text']}, plaintext_footer=True))\n"
        "table = pa.table({'id': [1], 'text': ['a']})\n"
        "with pq.ParquetWriter(sys.argv[1], table.schema, encryption_properties=made) as file:\n"
        "    file.write_table(table)\n"
        "from corpusmill.errors import SourceError\n"
        "from corpusmill.tables import open_source\n"
        "try:\n    list(open_source(sys.argv[1]).chunks())\n"
        "except SourceError as error:\n    print(error)\n"
    )
    path = tmp_path / "secret.parquet"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"cannot read {path}: Cannot decrypt")


def test_a_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """In a file it is named with the file, in a table by its name."""
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"a.parquet: column 'a' appears twice"):
        open_source(tmp_path)
    with pytest.raises(SourceError, match="'a' appears twice"):
        open_source(table)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"id": [1]}, r"b.parquet has no column 'text'"),
        ({"id": [1], "text": ["x"], "more": [1]}, r"b.parquet has a column 'more'"),
        (
            {"id": ["x"], "text": ["x"]},
            r"column 'id' has type string in .*b.parquet and int64 in .*a.parquet",
        ),
        ({"id": [1.5], "text": ["x"]}, r"column 'id' has type double"),
    ],
)
def test_files_that_do_not_fit_together_are_refused(tmp_path: Path, other: Any, message: str) -> None:
    """With the file and the column; nothing is converted that might lose something."""
    pq.write_table(TABLE, tmp_path / "a.parquet")
    pq.write_table(pa.table(other), tmp_path / "b.parquet")
    with pytest.raises(SourceError, match=message):
        open_source(tmp_path)


def test_files_whose_types_widen_exactly_are_one_source(tmp_path: Path) -> None:
    """int32 with int64, string with large_string, all-null with anything, columns in another order."""
    first = pa.table(
        {"n": pa.array([1], pa.int32()), "s": pa.array(["a"], pa.large_string()), "v": pa.nulls(1)}
    )
    second = pa.table({"v": ["x"], "s": ["b"], "n": pa.array([1 << 40])})
    pq.write_table(first, tmp_path / "a.parquet")
    pq.write_table(second, tmp_path / "b.parquet")
    source = open_source(tmp_path)
    assert source.schema.types == [pa.int64(), pa.large_string(), pa.string()]
    assert everything(source).to_pylist() == [
        {"n": 1, "s": "a", "v": None},
        {"n": 1 << 40, "s": "b", "v": "x"},
    ]


def test_no_rows_are_no_error(tmp_path: Path) -> None:
    """Neither a file without row groups nor one whose row group is empty."""
    with pq.ParquetWriter(tmp_path / "a.parquet", TABLE.schema):
        pass
    pq.write_table(TABLE.slice(0, 0), tmp_path / "b.parquet")
    source = open_source(tmp_path)
    assert source.rows == 0
    assert bounds(source) == []
    assert bounds(open_source(TABLE.slice(0, 0))) == []
    assert source.schema == TABLE.schema


def test_a_reader_can_be_read_once_and_has_no_identity() -> None:
    """A second reading would silently be empty, so it is an error."""
    source = open_source(TABLE.to_reader(max_chunksize=999))
    assert source.rows is None
    assert source.identity() is None
    assert everything(source, 10).equals(TABLE.slice(10))
    with pytest.raises(SourceError, match="can be read once"):
        everything(source)


def test_a_dataset_is_read_fragment_by_fragment(tmp_path: Path) -> None:
    """With its own schema and partitioning, and the state of its files."""
    (tmp_path / "lang=lv").mkdir()
    pq.write_table(TABLE, tmp_path / "lang=lv" / "x.parquet")
    dataset = pads.dataset(tmp_path, partitioning="hive")
    source = open_source(dataset)
    assert everything(source).equals(dataset.to_table())
    assert source.rows == 3_000
    assert len(source.files) == 1
    os.utime(tmp_path / "lang=lv" / "x.parquet", (1, 1))
    with pytest.raises(SourceChangedError):
        source.verify_unchanged()
    assert everything(open_source(pads.dataset(TABLE))).equals(TABLE)


def test_anything_else_is_no_source() -> None:
    """A list of rows, say."""
    wrong: Any = [{"id": 1}]
    with pytest.raises(SourceError, match="a source is a path"):
        open_source(wrong)


def test_the_identity_of_files_changes_with_each_of_them_and_with_the_request(tmp_path: Path) -> None:
    """Size and time of a file count, columns and filter too, and the same asked twice is the same."""
    pq.write_table(TABLE, tmp_path / "a.parquet")
    first = open_source(tmp_path).identity()
    assert open_source(tmp_path).identity() == first
    assert open_source(SourceSpec(path=tmp_path, columns=["id"])).identity() != first
    assert open_source(SourceSpec(path=tmp_path, filter=[["id", "=", 1]])).identity() != first
    described = open_source(tmp_path).description()
    os.utime(tmp_path / "a.parquet", (1, 1))
    assert open_source(tmp_path).identity() != first
    assert open_source(tmp_path).description() == described


@pytest.mark.parametrize(
    "column",
    [
        pa.array([f"text {row}" for row in range(5_000)]),
        pa.array([f"text {row}, and more than a view holds" for row in range(5_000)]).cast(pa.string_view()),
        pa.array([b"bytes, and more than a view holds"] * 5_000).cast(pa.binary_view()),
        pa.array([None if row % 3 else row for row in range(5_000)]),
        pa.array([row % 2 == 0 for row in range(5_000)]),
        pa.array([[str(row)] if row % 5 else None for row in range(5_000)]),
        pa.array([{"a": str(row)} for row in range(5_000)]),
        pa.array([str(row % 7) for row in range(5_000)]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_the_identity_of_a_table_does_not_depend_on_its_chunks(column: pa.Array[Any]) -> None:
    """Of no type of column."""
    table = pa.table({"a": column})
    for cut in (1, 63, 2_047, 2_049, 3_777):
        chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
        assert open_source(chunked).identity() == open_source(table).identity(), cut


def test_the_identity_of_a_table_is_its_content(tmp_path: Path) -> None:
    """However it is chunked, and different as soon as one value or one name is."""
    chunked = pa.concat_tables([TABLE.slice(0, 1_234), TABLE.slice(1_234)])
    assert open_source(chunked).identity() == open_source(TABLE).identity()
    assert open_source(TABLE.slice(1)).identity() != open_source(TABLE).identity()
    assert open_source(TABLE.rename_columns(["id", "t"])).identity() != open_source(TABLE).identity()


def test_a_file_that_changes_is_noticed_at_the_end_and_during_the_reading(tmp_path: Path) -> None:
    """By time, by size, by its being gone; the error names the file."""
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path)
    source = open_source(path)
    source.verify_unchanged()
    os.utime(path, (1, 1))
    with pytest.raises(SourceChangedError, match=r"a.parquet changed"):
        source.verify_unchanged()
    with pytest.raises(SourceChangedError, match=r"a.parquet changed"):
        everything(source)
    path.unlink()
    with pytest.raises(SourceChangedError, match=r"a.parquet cannot be found"):
        source.verify_unchanged()


def test_a_file_that_is_replaced_while_it_is_read_is_no_damaged_file(tmp_path: Path) -> None:
    """What looks like a broken page is told to be a change."""
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path, row_group_size=100)
    chunks = open_source(path).chunks()
    next(chunks)
    path.write_bytes(b"something else")
    with pytest.raises(SourceChangedError):
        list(chunks)


def test_a_sink_is_read_by_its_manifest(tmp_path: Path, fill: Callable[..., Any]) -> None:
    """A stray file is no row of it, at the top or in a partition, and an unfinished sink is refused."""
    fill(str(tmp_path / "out"), TABLE, rows_per_part=1_000)
    pq.write_table(TABLE, tmp_path / "out" / "stray.parquet")
    source = open_source(tmp_path / "out")
    assert everything(source).equals(TABLE)
    (tmp_path / "hive").mkdir()
    (tmp_path / "out").rename(tmp_path / "hive" / "lang=lv")
    assert open_source(tmp_path / "hive").schema.names == ["id", "text", "lang"]
    assert open_source(tmp_path / "hive").rows == 3_000
    (tmp_path / "hive" / "lang=lv" / "_corpusmill" / "manifest.json").unlink()
    with pytest.raises(SourceError, match="was never finished"):
        open_source(tmp_path / "hive" / "lang=lv")


def test_a_path_may_be_text_or_a_file_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is made absolute at once, so that a later change of folder does no harm."""
    pq.write_table(TABLE, tmp_path / "a.parquet")
    monkeypatch.chdir(tmp_path)
    source = open_source("a.parquet")
    monkeypatch.chdir("/")
    assert everything(source).equals(TABLE)
    assert open_source(f"file://{tmp_path}/a.parquet").identity() == source.identity()
    odd = tmp_path / "100% of #1?.parquet"
    pq.write_table(TABLE, odd)
    assert open_source(odd.as_uri()).identity() == open_source(odd).identity()


@pytest.mark.parametrize(
    "path",
    [
        *("", "file://a.parquet", "file://data/a.parquet", "a\0.parquet", "x" * 5_000),
        *("s3://b//a", "s3://b/./a", "s3://b/a/../c"),
    ],
)
def test_a_path_that_names_nothing_is_refused(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above all it does not name the working folder, or a folder at the root."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(TABLE, tmp_path / "a.parquet")
    with pytest.raises(SourceError):
        open_source(path)
    with pytest.raises(SinkError):
        open_sink(path)


def test_a_working_folder_that_is_gone_is_in_the_way_of_relative_paths_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill: Callable[..., Any]
) -> None:
    """Whoever removed it is told so."""
    fill(str(tmp_path / "out"), TABLE)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SourceError, match="the working folder is gone"):
        open_source("a.parquet")
    assert open_sink(tmp_path / "out").decide("run-2", "job") == "rebuild"


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", None, "a"]).dictionary_encode(),
        pa.array(["a", None, "b"], pa.string_view()),
        pa.array(["a", None, "b"], pa.large_string()),
        pa.array([{"a": [1, None]}, None, {"a": []}]),
        pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None, b"1" * 16], pa.binary(16))),
    ],
    ids=lambda array: str(array.type),
)
def test_types_pass_unchanged(tmp_path: Path, array: pa.Array[Any]) -> None:
    """From a Parquet file and from an Arrow file, filtered or not."""
    table = pa.table({"id": [1, 2, 3], "value": array})
    pq.write_table(table, tmp_path / "a.parquet")
    with ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    for name in ("a.parquet", "a.arrow"):
        assert everything(open_source(tmp_path / name)).equals(table)
        kept = open_source(SourceSpec(path=tmp_path / name, filter=[["id", ">", 1]]))
        assert everything(kept).to_pylist() == table.slice(1).to_pylist()
        assert kept.schema.equals(table.schema)


def test_a_link_to_a_folder_above_does_not_multiply_rows(tmp_path: Path) -> None:
    """Each file is read once, by its shortest path."""
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "a.parquet")
    (tmp_path / "loop").symlink_to(tmp_path)
    source = open_source(tmp_path)
    assert source.rows == 3
    assert [file.place.name for file in source.files] == ["a.parquet"]


def test_what_lies_beside_a_relative_path_is_shown_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`out/` lies in the working folder and not below the root."""
    monkeypatch.chdir(tmp_path)
    assert open_sink("out/").layout.failures.shown == "out.failed.jsonl"
    assert open_sink("sub/out").layout.failures.shown == "sub/out.failed.jsonl"
    assert open_sink("/top").layout.failures.shown == "/top.failed.jsonl"
