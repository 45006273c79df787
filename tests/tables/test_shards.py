"""Parts that several processes stage and one commits, on a disk and in an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from corpusmill.errors import CountsError, SinkError
from corpusmill.tables import Sink, SinkSpec, open_sink, read
from corpusmill.tables.shards import (
    ABANDONED,
    ShardWriting,
    drop_abandoned,
    drop_shards,
    shard_folder,
    staged_shard,
)

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema([("id", pa.int64())])
KEY = "0123456789abcdef" * 4


@pytest.fixture(params=["disk", "s3"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    """Name a sink with parts of four rows."""
    folder = tmp_path if request.param == "disk" else request.getfixturevalue("bucket")
    return open_sink(SinkSpec(path=f"{folder}/out", rows_per_part=4))


def stage(sink: Sink, shard: int, *, key: str = KEY, failures: bytes = b"") -> None:
    """Stage one part of four rows."""
    writing = ShardWriting(sink, SCHEMA, run_key=key, job_key="job", shard=shard)
    part = writing.part(shard, shard * 4)
    part.write(pa.record_batch({"id": range(shard * 4, shard * 4 + 4)}, schema=SCHEMA))
    part.close()
    writing.record(report={"rows": 4}, failed=failures.count(b"\n"), failures=failures)


def test_parts_of_many_are_committed_by_one(sink: Sink) -> None:
    """Nothing is seen before; afterwards the dataset is whole, and what was staged can go."""
    for shard in (2, 0, 1):
        stage(sink, shard, failures=b'{"row": 5}\n' if shard == 1 else b"")
        assert sink.manifest() is None
    with sink.lock():
        writing = sink.begin(SCHEMA, run_key=KEY, job_key="job")
        for shard in range(3):
            staged = staged_shard(sink, KEY, shard)
            assert staged is not None
            assert staged.failures == (b'{"row": 5}\n' if shard == 1 else b"")
            for part in staged.parts:
                writing.adopt(part)
        writing.commit()
    assert read(sink.spec.path).to_table().column("id").to_pylist() == list(range(12))
    assert staged_shard(sink, KEY, 0) is not None
    drop_shards(sink, KEY)
    assert staged_shard(sink, KEY, 0) is None
    assert read(sink.spec.path).count_rows() == 12


def test_a_second_attempt_at_a_shard_takes_the_place_of_the_first(sink: Sink) -> None:
    """The record that is written last counts, and its files are its own."""
    stage(sink, 0, failures=b'{"row": 1}\n')
    first = staged_shard(sink, KEY, 0)
    stage(sink, 0)
    second = staged_shard(sink, KEY, 0)
    assert first is not None
    assert second is not None
    assert (first.record.failed, second.record.failed) == (1, 0)
    assert first.parts[0].place.path != second.parts[0].place.path


def test_whoever_locks_the_sink_leaves_staged_shards_alone(sink: Sink) -> None:
    """They are no leftovers of a dead run."""
    stage(sink, 0)
    with sink.lock():
        pass
    sink.tidy()
    assert staged_shard(sink, KEY, 0) is not None


def test_shards_of_another_plan_are_none_of_this_one(sink: Sink) -> None:
    """Not even where the beginnings of the keys are the same."""
    stage(sink, 0)
    assert staged_shard(sink, "f" * 64, 0) is None
    with pytest.raises(SinkError, match="another plan"):
        staged_shard(sink, KEY[:16] + "f" * 48, 0)


def test_a_damaged_record_is_not_taken_for_a_missing_one(sink: Sink) -> None:
    """Unreadable is not absent."""
    stage(sink, 0)
    (shard_folder(sink, KEY) / "shard-000000.json").write_bytes(b'{"run_key"')
    with pytest.raises(SinkError, match="damaged"):
        staged_shard(sink, KEY, 0)


def test_a_part_that_is_gone_or_comes_twice_is_refused(sink: Sink) -> None:
    """A dataset has each of its rows once."""
    stage(sink, 0)
    staged = staged_shard(sink, KEY, 0)
    assert staged is not None
    with sink.lock():
        writing = sink.begin(SCHEMA, run_key=KEY, job_key="job")
        writing.adopt(staged.parts[0])
        with pytest.raises(CountsError, match="twice"):
            writing.adopt(staged.parts[0])
        writing.abort()
        staged.parts[0].place.delete()
        again = sink.begin(SCHEMA, run_key=KEY, job_key="job")
        with pytest.raises(SinkError, match="run its shard again"):
            again.adopt(staged.parts[0])
        again.abort()


def test_what_nobody_touched_for_a_week_is_removed(sink: Sink) -> None:
    """What is younger may be somebody's who is still at it."""
    stage(sink, 0)
    info = (shard_folder(sink, KEY) / "shard-000000.json").info()
    assert info.mtime is not None
    written = info.mtime.timestamp()
    drop_abandoned(sink, clock=lambda: written + ABANDONED - 60)
    assert staged_shard(sink, KEY, 0) is not None
    drop_abandoned(sink, clock=lambda: written + ABANDONED + 60)
    assert staged_shard(sink, KEY, 0) is None
