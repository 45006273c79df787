from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import fs as pafs
from pyarrow import parquet as pq

from corpusmill.errors import (
    CorpusmillError,
    SinkError,
    SourceChangedError,
    SourceError,
    SourceUnreachableError,
    UsageError,
)
from corpusmill.tables import SinkSpec, SourceSpec, open_sink, open_source, read
from corpusmill.tables.storage import failures_as, place_of

if TYPE_CHECKING:
    from pathlib import Path

TABLE = pa.table({"row": range(3_000), "text": [f"text {row}" for row in range(3_000)]})


@pytest.mark.parametrize("name", ["out", "out.parquet", "deep/er/out"])
def test_a_sink_on_s3_is_written_skipped_rebuilt_and_read(bucket: str, name: str, fill: Any) -> None:
    """As on a disk; parts of the old dataset are gone after the new manifest is there."""
    sink = open_sink(f"{bucket}/{name}")
    assert sink.decide("run", "job") == "write"
    fill(sink, TABLE, rows_per_part=1_000, sidecars={"report.json": b"{}"})
    assert sink.decide("run", "job") == "skip"
    assert read(sink.shown).to_table().equals(TABLE)
    assert sink.decide("run-2", "job") == "rebuild"
    manifest = fill(
        sink, TABLE.slice(5), rows_per_part=2_000, run_key="run-2", sidecars={"report.json": b"{}"}
    )
    assert read(sink.shown, columns=["row"]).to_table().equals(TABLE.slice(5).select(["row"]))
    with pytest.raises(SinkError, match="another job"):
        sink.decide("run", "job-2")
    files = [info for info in place_of(bucket).children(recursive=True) if info.is_file and info.size]
    names = sorted(info.base_name for info in files)
    assert names == sorted([*(part.name for part in manifest.parts), "manifest.json", "report.json"])


def test_a_table_on_s3_is_read_and_its_changes_are_noticed(bucket: str) -> None:
    """A folder with hive keys, a glob, one object; the ETag tells a change that size and time do not."""
    place = place_of(f"{bucket}/in/lang=lv/a.parquet")
    pq.write_table(TABLE, place.path, filesystem=place.filesystem)
    for path in ("in", "in/lang=*/*.parquet", "in/lang=*"):
        source = open_source(f"{bucket}/{path}")
        assert source.rows == 3_000
        assert source.schema.names == ["row", "text", "lang"]
        assert sum(chunk.batch.num_rows for chunk in source.chunks(1_000)) == 2_000
    source = open_source(SourceSpec(path=f"{bucket}/in/lang=lv/a.parquet", filter=[["row", "<", 7]]))
    assert [chunk.batch.num_rows for chunk in source.chunks()] == [7]
    source.verify_unchanged()
    state = source.files[0]
    assert state.etag
    pq.write_table(
        TABLE.set_column(0, "row", TABLE["row"].combine_chunks()[::-1]),
        place.path,
        filesystem=place.filesystem,
    )
    with pytest.raises(SourceChangedError, match=r"lang=lv/a.parquet changed"):
        source.verify_unchanged()
    assert open_source(f"{bucket}/in/lang=lv/a.parquet").identity() != source.identity()


def test_what_is_missing_on_s3_is_named_as_the_user_named_it(bucket: str) -> None:
    """A key, a prefix, a bucket."""
    for path in (f"{bucket}/gone.parquet", f"{bucket}/gone/*.parquet", f"{bucket}-gone/a.parquet"):
        with pytest.raises(SourceError) as refused:
            open_source(path)
        assert path in str(refused.value)
    with pytest.raises(SourceError, match="no finished output"):
        read(f"{bucket}/gone")


def test_a_sink_in_a_missing_bucket_is_refused_at_the_lock(bucket: str) -> None:
    """Before anything is spent."""
    name = bucket.removeprefix("s3://")
    with pytest.raises(
        SinkError, match=rf"cannot write {bucket}-gone/out: there is no bucket '{name}-gone'; create"
    ):
        open_sink(f"{bucket}-gone/out").lock().__enter__()


def test_a_whole_bucket_is_never_overwritten(bucket: str) -> None:
    """Though something else may lie in it."""
    place = place_of(f"{bucket}/a.txt")
    place.write_bytes(b"x")
    with pytest.raises(SinkError, match="already holds"):
        open_sink(bucket).decide("run", "job")
    with pytest.raises(SinkError, match="whole bucket"):
        open_sink(bucket).decide("run", "job", overwrite=True)


def test_a_sink_on_s3_that_was_never_finished_is_no_source(bucket: str) -> None:
    """Parts that are staged, or moved without a manifest, are not read."""
    sink = open_sink(f"{bucket}/out")
    with sink.lock():
        writing = sink.begin(TABLE.schema, run_key="run", job_key="job")
        part = writing.part(0, 0)
        part.write(TABLE.to_batches()[0])
        part.close()
        with pytest.raises(SourceError, match="never finished"):
            open_source(f"{bucket}/out")
        with pytest.raises(SourceError, match="no finished output"):
            read(f"{bucket}/out")
        writing.abort()


def test_partitions_and_failures_on_s3(bucket: str, fill: Any) -> None:
    """Each partition is a sink of its own, and failures lie where readers pass over them."""
    for lang in ("lv", "a/b"):
        fill(open_sink(SinkSpec(path=f"{bucket}/out", partition={"lang": lang})), TABLE)
    open_sink(SinkSpec(path=f"{bucket}/out", partition={"lang": "et"})).write_failures([b"{}"])
    source = open_source(f"{bucket}/out")
    assert source.rows == 6_000
    langs = {lang for chunk in source.chunks() for lang in chunk.batch.column("lang").to_pylist()}
    assert langs == {"lv", "a/b"}


def test_credentials_never_show(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither in what the objects say of themselves nor in an error."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame")
    sink = open_sink(f"{bucket}-gone/out")
    with pytest.raises(SinkError) as refused:
        sink.lock().__enter__()
    shown = f"{sink!r} {sink.layout!r} {refused.value!r} {place_of(bucket)!r}"
    assert "sesame" not in shown


def test_an_object_store_that_is_away_is_not_the_jobs_fault(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task is worth another try when nobody listens; when there is no such bucket or file it is not."""
    for missing in (f"{bucket}/other.parquet", f"{bucket}-gone/in.parquet"):
        with pytest.raises(SourceError) as refused:
            open_source(missing)
        assert type(refused.value) is SourceError
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    with pytest.raises(SourceUnreachableError, match=r"cannot read s3://.*/in.parquet"):
        open_source(f"{bucket}/in.parquet")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EIO, "Input/output error"), SourceUnreachableError),
        (OSError("When reading: AWS Error SLOW_DOWN during GetObject operation"), SourceUnreachableError),
        (PermissionError(errno.EACCES, "Permission denied"), SourceError),
        (OSError("When reading: AWS Error ACCESS_DENIED during GetObject operation"), SourceError),
        (pa.ArrowInvalid("Parquet magic bytes not found in footer"), SourceError),
    ],
    ids=["a disk", "a busy service", "rights", "rights on S3", "what it holds"],
)
def test_a_source_is_unreachable_where_time_may_help(
    tmp_path: Path, error: Exception, kind: type[SourceError]
) -> None:
    """Rights and what a file holds are for somebody to mend, and end a task for good."""
    with pytest.raises(SourceError) as refused, failures_as(SourceError, "cannot read", place_of(tmp_path)):
        raise error
    assert type(refused.value) is kind


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Bucket 'nowhere' not found", UsageError),
        ("When resolving region for bucket 'nowhere': AWS Error NETWORK_CONNECTION", CorpusmillError),
    ],
)
def test_a_bucket_whose_region_cannot_be_told_is_named(
    monkeypatch: pytest.MonkeyPatch, said: str, kind: type[CorpusmillError]
) -> None:
    """It is one line and no traceback; that there is no such bucket is the job's fault, a network's silence is not."""

    def refuse(_bucket: str) -> str:
        raise OSError(said)

    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pafs, "resolve_s3_region", refuse)
    with pytest.raises(CorpusmillError, match=f"'nowhere' cannot be told: {said}; set AWS_REGION") as refused:
        place_of("s3://nowhere/a.parquet")
    assert type(refused.value) is kind
