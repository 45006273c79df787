from __future__ import annotations

import os
import resource
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import dataset as pads
from pyarrow import parquet as pq

from corpusmill.errors import CountsError, SinkError, SourceError, UsageError
from corpusmill.tables import SinkSpec, layout, open_sink, open_source, read
from corpusmill.tables.locate import hive_keys
from corpusmill.tables.parts import GROUP_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from corpusmill.tables import PartWriter

TABLE = pa.table({"row": range(3_000), "text": [f"text {row}" for row in range(3_000)]})

Fill = Any


@pytest.fixture(params=["out", "out.parquet", "mounted"])
def target(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A path for each way in which a local sink is committed."""
    if request.param == "mounted":
        monkeypatch.setattr(layout, "can_be_renamed", lambda _: False)
    return str(tmp_path / "sinks" / request.param)


def files_below(folder: Path) -> dict[str, bytes]:
    """All files and their bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_what_was_written_is_read_back(target: str, fill: Fill) -> None:
    """Rows in order, schema with its metadata, the manifest's counts; and nothing else is left lying there."""
    schema = TABLE.schema.with_metadata({"kept": "yes"}).set(
        0, pa.field("row", pa.int64(), nullable=False, metadata={"unit": "rows"})
    )
    manifest = fill(
        target,
        TABLE.cast(schema),
        rows_per_part=1_000,
        manifest_extra={"n": 1},
        sidecars={"report.json": b"{}"},
    )
    assert (manifest.rows, manifest.failed, manifest.extra) == (3_000, 0, {"n": 1})
    assert [part.first_row for part in manifest.parts] == (
        [0] if target.endswith("parquet") else [0, 1_000, 2_000]
    )
    assert read(target).to_table().equals(TABLE.cast(schema), check_metadata=True)
    assert read(target, columns=["text"]).to_table().equals(TABLE.select(["text"]))
    with pytest.raises(SourceError, match="no column 'txet'"):
        read(target, columns=["txet"])
    assert open_sink(target).manifest() == manifest
    names = {path.name for path in Path(target).parent.rglob("*") if path.is_file()}
    assert names == {*(part.name for part in manifest.parts), "manifest.json", "report.json"}


def test_a_plain_reader_of_the_folder_sees_the_rows_only(target: str, fill: Fill) -> None:
    """Sidecars bear names that dataset readers pass over, beside a single file too."""
    fill(target, TABLE, rows_per_part=1_000)
    folder = target if Path(target).is_dir() else str(Path(target).parent)
    assert pads.dataset(folder, format="parquet").to_table().equals(TABLE)


def test_an_empty_source_gives_one_empty_part_of_the_declared_schema(target: str, fill: Fill) -> None:
    """No rows is a dataset too."""
    manifest = fill(target, TABLE.slice(0, 0))
    assert [part.rows for part in manifest.parts] == [0]
    assert read(target).to_table().equals(TABLE.slice(0, 0))


def test_the_run_key_decides(target: str, fill: Fill) -> None:
    """Same key: skip. Same job: rebuild. Another job: refused, with what lies there, unless told to overwrite."""
    sink = open_sink(target)
    assert sink.decide("run", "job") == "write"
    fill(target, TABLE)
    assert sink.decide("run", "job") == "skip"
    assert sink.decide("run", "job", overwrite=True) == "skip"
    assert sink.decide("run-2", "job") == "rebuild"
    assert sink.decide(None, "job") == "rebuild"
    with pytest.raises(
        SinkError, match=r"another job \(run run, 3,000 rows\), or of this one.* nothing from the store"
    ):
        sink.decide("run-2", "job-2")
    assert sink.decide("run-2", "job-2", overwrite=True) == "rebuild"
    fill(target, TABLE, failed=1)
    assert sink.decide("run", "job") == "rebuild"
    fill(target, TABLE, run_key=None)
    assert sink.decide(None, "job") == "rebuild"


def test_a_part_that_is_missing_or_cut_is_written_again_and_not_read(tmp_path: Path, fill: Fill) -> None:
    """The manifest names it with its size."""
    manifest = fill(str(tmp_path / "out"), TABLE, rows_per_part=1_000)
    path = tmp_path / "out" / manifest.parts[1].name
    data = path.read_bytes()
    for damage in (lambda: path.write_bytes(data[:-1]), path.unlink):
        damage()
        assert open_sink(tmp_path / "out").decide("run", "job") == "rebuild"
        with pytest.raises(SourceError, match="a part is missing or has another size"):
            read(tmp_path / "out")


def test_a_single_file_that_somebody_replaced_is_not_ours(tmp_path: Path, fill: Fill) -> None:
    """The manifest beside it is that of another file, even when the size is the same."""
    fill(str(tmp_path / "out.parquet"), TABLE)
    data = bytearray((tmp_path / "out.parquet").read_bytes())
    data[-20] ^= 1
    (tmp_path / "out.parquet").write_bytes(data)
    with pytest.raises(SinkError, match="a file that no run of corpusmill wrote"):
        open_sink(tmp_path / "out.parquet").decide("run", "job")
    with pytest.raises(SourceError, match="no finished output"):
        read(tmp_path / "out.parquet")


def test_what_is_not_ours_is_refused_and_only_overwritten_on_request(tmp_path: Path, fill: Fill) -> None:
    """A folder with files, a file in place of a folder, a folder in place of a file."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        SinkError, match=r"already holds files .*\(1, 'thesis.txt' among them\).* removes all of that"
    ):
        open_sink(tmp_path / "full").decide("run", "job")
    with pytest.raises(SinkError, match="already holds a file that no run"):
        open_sink(tmp_path / "file").decide("run", "job")
    assert open_sink(tmp_path / "empty").decide("run", "job") == "write"
    for name in ("full", "file", "empty", "folder.parquet"):
        assert open_sink(tmp_path / name).decide("run", "job", overwrite=True) in {"write", "rebuild"}
        fill(str(tmp_path / name), TABLE)
        assert read(tmp_path / name).to_table().equals(TABLE)
    assert not (tmp_path / "full" / "thesis.txt").exists()


def test_what_somebody_put_beside_the_parts_is_not_removed_unasked(target: str, fill: Fill) -> None:
    """The dataset as it stands is left alone; one that is to be written anew is refused, and says why."""
    fill(target, TABLE)
    if target.endswith(".parquet"):
        assert open_sink(target).decide("run-2", "job") == "rebuild"
        return
    (Path(target) / "thesis.txt").write_text("years of work")
    sink = open_sink(target)
    assert sink.decide("run", "job") == "skip"
    (Path(target) / "_SUCCESS").touch()
    with pytest.raises(
        SinkError, match=r"to be written anew, and holds files .*\(1, 'thesis.txt' among them"
    ):
        sink.decide("run-2", "job")
    assert sink.decide("run-2", "job", overwrite=True) == "rebuild"
    (Path(target) / "thesis.txt").unlink()
    assert sink.decide("run-2", "job") == "rebuild"


def test_the_home_folder_is_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where `HOME` is a link to it; without a home nothing is in the way."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "precious").write_text("x")
    (tmp_path / "home").symlink_to("real")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for sink in ("real", "home"):
        with pytest.raises(SinkError, match="is not overwritten"):
            open_sink(tmp_path / sink).decide("run", "job", overwrite=True)
    monkeypatch.setattr(Path, "home", Path("~nobody-of-that-name/x").expanduser)
    assert open_sink(tmp_path / "real").decide("run", "job", overwrite=True) == "rebuild"


def test_the_working_folder_is_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor a folder that holds it."""
    (tmp_path / "in" / "side").mkdir(parents=True)
    (tmp_path / "in" / "precious").write_text("x")
    monkeypatch.chdir(tmp_path / "in" / "side")
    with pytest.raises(SinkError, match="is not overwritten"):
        open_sink(tmp_path / "in").decide("run", "job", overwrite=True)


@pytest.mark.parametrize("name", ["a.parquet", "", "out"])
def test_a_sink_that_would_replace_what_is_read_is_refused(tmp_path: Path, name: str) -> None:
    """The same file, or a folder that holds it; a place beside it is fine, also one whose name begins alike."""
    (tmp_path / "in" / "out").mkdir(parents=True)
    for path in ("in/a.parquet", "in/out/a.parquet"):
        pq.write_table(TABLE, tmp_path / path)
    source = open_source(tmp_path / "in")
    with pytest.raises(SinkError, match=r"a.parquet, which is read"):
        open_sink(tmp_path / "in" / name).refuse_source(source.files)
    for free in ("in/b.parquet", "in/ou", "elsewhere"):
        open_sink(tmp_path / free).refuse_source(source.files)


def test_a_damaged_or_newer_manifest_is_an_error_and_not_an_absent_one(tmp_path: Path, fill: Fill) -> None:
    """Unreadable is not absent: the message names the file."""
    fill(str(tmp_path / "out"), TABLE)
    path = tmp_path / "out" / "_corpusmill" / "manifest.json"
    whole = path.read_text()
    for text, message in (
        (whole[:-30], "is damaged"),
        ("[]", "is damaged"),
        (whole.replace('"version": 1', '"version": 2'), "has version 2"),
        (whole.replace('"rows"', '"lines"'), "is damaged"),
    ):
        path.write_text(text)
        with pytest.raises(SinkError, match=rf"manifest.json {message}"):
            open_sink(tmp_path / "out").decide("run", "job", overwrite=True)
        with pytest.raises(SourceError, match=rf"manifest.json {message}"):
            read(tmp_path / "out")


def batches_of(table: pa.Table, sizes: list[int]) -> Iterator[pa.RecordBatch]:
    """The rows cut as the sizes say, over and over."""
    start = turn = 0
    while start < table.num_rows:
        yield from table.slice(start, sizes[turn % len(sizes)]).combine_chunks().to_batches()
        start += sizes[turn % len(sizes)]
        turn += 1


@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_the_bytes_follow_from_the_rows_and_not_from_how_they_came(tmp_path: Path, name: str) -> None:
    """Other batches, other dictionaries, other bitmaps, parts closed in another order: the same files."""
    rows = 20_000
    words = [f"word {row % 50}" if row % 7 else None for row in range(rows)]
    table = pa.table(
        {
            "row": range(rows),
            "word": pa.array(words).dictionary_encode(),
            "doc": pa.StructArray.from_arrays([pa.array(words).dictionary_encode()], ["word"]),
            "text": [f"{row} " * (row % 20) for row in range(rows)],
        }
    )
    other_words = table.set_column(
        1,
        "word",
        pa.chunked_array(
            [pa.array(words[start : start + 999]).dictionary_encode() for start in range(0, rows, 999)]
        ),
    )
    written = []
    for turn, (source, sizes, order) in enumerate(
        [(table, [1_024], [0, 1]), (table, [1, 2_000, 77], [1, 0]), (other_words, [513], [1, 0])]
    ):
        sink = open_sink(tmp_path / str(turn) / name)
        with sink.lock():
            writing = sink.begin(table.schema, run_key="run", job_key="job")
            for index in order:
                part = writing.part(index, index * 18_000)
                for batch in batches_of(source.slice(index * 18_000, 18_000), sizes):
                    part.write(batch)
                part.close()
            writing.commit()
        written.append(files_below(tmp_path / str(turn)))
        assert read(sink.shown).to_table().to_pylist() == table.to_pylist()
    assert written[0] == written[1] == written[2]


def test_row_groups_end_by_rows_or_by_bytes(tmp_path: Path, fill: Fill) -> None:
    """At 16,384 rows, or after the row that fills 64 MiB of content."""
    fill(str(tmp_path / "many"), pa.table({"row": range(40_000)}))
    fill(str(tmp_path / "large"), pa.table({"text": ["x" * ((GROUP_BYTES >> 3) - 4)] * 20}))
    groups = {}
    for name in ("many", "large"):
        (path,) = (tmp_path / name).glob("*.parquet")
        metadata = pq.read_metadata(path)
        groups[name] = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert groups == {"many": [16_384, 16_384, 7_232], "large": [8, 8, 4]}


def test_several_parts_may_be_open_and_a_gap_is_an_error(tmp_path: Path) -> None:
    """A part that is still open, or rows that no part holds, stop the commit."""
    sink = open_sink(tmp_path / "out")
    (batch,) = TABLE.to_batches()
    with sink.lock():
        writing = sink.begin(TABLE.schema, run_key="run", job_key="job")
        second, first = writing.part(1, 3_000), writing.part(0, 0)
        first.write(batch)
        second.write(batch)
        second.close()
        with pytest.raises(CountsError, match="1 parts are still open"):
            writing.commit()
        first.close()
        first.close()
        writing.part(2, 6_001).close()
        with pytest.raises(CountsError, match="begins at row 6001, and row 6000 is due"):
            writing.commit()
        writing.abort()
    assert list(tmp_path.iterdir()) == []


def test_rows_of_another_schema_are_refused(tmp_path: Path) -> None:
    """Every part has the declared schema."""
    sink = open_sink(tmp_path / "out")
    with sink.lock():
        writing = sink.begin(TABLE.schema, run_key="run", job_key="job")
        with pytest.raises(SinkError, match="another schema"):
            writing.part(0, 0).write(pa.RecordBatch.from_pydict({"row": [1]}))
        writing.abort()
        with pytest.raises(UsageError, match="column 'odd'"):
            sink.begin(pa.schema([("odd", pa.month_day_nano_interval())]), run_key="run", job_key="job")


def test_an_aborted_run_leaves_what_was_there_and_its_failures_beside_it(target: str, fill: Fill) -> None:
    """The failures go when a later run commits."""
    fill(target, TABLE)
    before = files_below(Path(target).parent)
    sink = open_sink(target)
    with sink.lock():
        writing = sink.begin(TABLE.schema, run_key="run-2", job_key="job")
        writing.part(0, 0)
        part = writing.part(1, 0)
        part.write(TABLE.to_batches()[0])
        part.close()
        writing.abort()
        writing.abort()
        path = sink.write_failures(iter([b'{"row": 1}', b'{"row": 2}\n']))
    assert path == f"{target}.failed.jsonl"
    assert Path(path).read_bytes() == b'{"row": 1}\n{"row": 2}\n'
    Path(path).rename(f"{path}.seen")
    Path(f"{path}.seen").unlink()
    assert files_below(Path(target).parent) == before
    with sink.lock():
        sink.write_failures([b"{}"])
    fill(target, TABLE)
    assert not Path(path).exists()


def test_leftovers_of_a_dead_attempt_are_removed_and_never_taken_up(target: str, fill: Fill) -> None:
    """Even when they look complete."""
    sink = open_sink(target)
    with sink.lock():
        dead = sink.begin(TABLE.schema, run_key="run", job_key="job")
        part = dead.part(0, 0)
        part.write(TABLE.to_batches()[0])
        part.close()
    assert list(Path(target).parent.iterdir())
    with sink.lock():
        assert sink.decide("run", "job") == "write"
    assert [path for path in Path(target).parent.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "value", ["lv", "a/b", "..", ".", "", "a|b,c=d", "äöü", "100%", "__HIVE_DEFAULT_PARTITION__", None]
)
def test_any_value_makes_one_partition_folder_and_comes_back(
    tmp_path: Path, fill: Fill, value: str | None
) -> None:
    """Each partition has its own manifest, and the whole is read with the key as a column of text."""
    spec = SinkSpec(path=tmp_path / "out", partition={"k=/y": value})
    fill(open_sink(spec), TABLE)
    fill(open_sink(SinkSpec(path=tmp_path / "out", partition={"k=/y": "other"})), TABLE)
    (folder,) = (path for path in (tmp_path / "out").iterdir() if not path.name.endswith("=other"))
    assert hive_keys([folder.name]) == (("k=/y", value),)
    assert read(tmp_path / "out", partition={"k=/y": value}).count_rows() == 3_000
    source = open_source(tmp_path / "out")
    found = {row for chunk in source.chunks() for row in chunk.batch.column("k=/y").to_pylist()}
    assert found == {value, "other"}
    open_sink(spec).write_failures([b"{}"])
    assert open_source(tmp_path / "out").rows == 6_000


def test_a_shape_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    """Before anything is touched."""
    for wrong in ({"rows_per_part": 0}, {"columns": "text"}, {"compression": "rar"}):
        settings: Any = wrong
        with pytest.raises(SinkError):
            SinkSpec(path=tmp_path, **settings)
    with pytest.raises(SinkError, match="cannot be partitioned"):
        open_sink(SinkSpec(path=tmp_path / "a.parquet", partition={"lang": "lv"}))
    with pytest.raises(SinkError, match="has no name"):
        open_sink(SinkSpec(path=tmp_path, partition={"": "lv"}))
    with pytest.raises(SinkError, match="ftp:// is not a scheme"):
        open_sink("ftp://host/out")


def test_a_link_stays_a_link(tmp_path: Path, fill: Fill) -> None:
    """The dataset that it leads to is replaced, not the link."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "data").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "data")
    fill(str(tmp_path / "out"), TABLE)
    fill(str(tmp_path / "out"), TABLE, run_key="run-2")
    assert (tmp_path / "out").is_symlink()
    assert read(tmp_path / "out").count_rows() == 3_000
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["data"]


def test_a_full_disk_ends_the_run_with_the_old_dataset_whole(target: str, fill: Fill) -> None:
    """The error names the path and the free space, and the next run needs no help."""
    fill(target, TABLE)
    noise = pa.table({"row": range(64), "text": [os.urandom(20_000).hex() for _ in range(64)]})
    sink = open_sink(target)

    def spill(part: PartWriter) -> None:
        for batch in noise.to_batches():
            part.write(batch)
        part.close()

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with sink.lock():
        writing = sink.begin(TABLE.schema, run_key="run-2", job_key="job")
        part = writing.part(0, 0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            with pytest.raises(SinkError, match=r"cannot write .*part-000000.* bytes are free there"):
                spill(part)
            writing.abort()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read(target).to_table().equals(TABLE)
    fill(target, noise, run_key="run-2")
    assert read(target).count_rows() == 64


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """At the lock, before anything is spent."""
    (tmp_path / "closed").mkdir(mode=0o555)
    with pytest.raises(SinkError, match="cannot write"), open_sink(tmp_path / "closed" / "out").lock():
        pass


def test_a_place_below_a_file_is_refused(tmp_path: Path) -> None:
    """As unwritable as can be, for root too."""
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(SinkError, match=r"cannot write .*file/out"),
        open_sink(tmp_path / "file" / "out").lock(),
    ):
        pass


def test_a_reader_never_sees_parts_of_two_generations(target: str, fill: Fill) -> None:
    """While one dataset replaces another over and over, each reading is all of one, or an error."""
    generations = [pa.table({"row": range(3_000), "of": [turn] * 3_000}) for turn in range(2)]
    fill(target, generations[0], rows_per_part=1_000)
    ended = threading.Event()
    broken: list[BaseException] = []

    def replace() -> None:
        try:
            for turn in range(20):
                fill(target, generations[turn % 2], rows_per_part=1_000, run_key=f"run-{turn}")
        except BaseException as error:  # noqa: BLE001 - shown by the test
            broken.append(error)
        finally:
            ended.set()

    writer = threading.Thread(target=replace)
    writer.start()
    whole = 0
    while not ended.is_set() or not whole:
        try:
            table = read(target).to_table()
        except (SourceError, OSError):
            continue
        assert table.equals(generations[table.column("of")[0].as_py()])
        whole += 1
    writer.join()
    assert broken == []
