"""Shards: planned once, asked by many, committed as one dataset."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corpusmill
from corpusmill.errors import (
    AuthenticationError,
    ShardChangedError,
    SinkError,
    SourceError,
    TooManyFailuresError,
    UsageError,
)
from corpusmill.job import job_of
from corpusmill.report import RunReport, merged, report_of
from corpusmill.shards import (
    Shard,
    commit_shards,
    enrich_shard,
    plan_shards,
    shard_of,
    shard_rows,
)
from corpusmill.tables.reports import read_report
from corpusmill.testing.faults import Fault

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.job import Job
    from corpusmill.testing import FakeEndpoint

ROWS = 100


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Write two files; the second is one row group."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    table = pa.table({"id": range(ROWS), "text": [f"Row {row % 60} says this." for row in range(ROWS)]})
    pq.write_table(table.slice(0, 30), folder / "a.parquet", row_group_size=10)
    pq.write_table(table.slice(30), folder / "b.parquet", row_group_size=ROWS)
    return folder


def make_job(corpus: Path, endpoint: FakeEndpoint, name: str = "out", **changes: Any) -> Job:
    """Write a job in the words of a job file."""
    return job_of(
        {
            "source": str(corpus),
            "sink": {"path": str(corpus.parent / name), "rows_per_part": 16},
            "prompts": [{"translate": {"column": "text", "into": "lv", "from": "en", "to": "lv"}}],
            "endpoint": {"openai_compatible": {"base_url": endpoint.base_url, "model": "any"}},
            "store": f"sqlite:///{corpus.parent}/store.db",
            **changes,
        }
    )


def carried(shard: Shard) -> Shard:
    """Send a shard through JSON, as an orchestrator does."""
    return shard_of(json.loads(json.dumps(shard.as_dict())))


def parts(folder: Path) -> dict[str, bytes]:
    """Give the bytes of a dataset's parts."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


def as_json(report: RunReport) -> Any:
    """Give a report as whoever reads the file has it."""
    return json.loads(json.dumps(report.as_dict()))


def test_shards_make_the_dataset_of_a_single_run_byte_for_byte(
    corpus: Path, fake_endpoint: FakeEndpoint
) -> None:
    """In whatever order they are asked; no request is sent twice, and nothing is left beside the sink."""
    job = make_job(corpus, fake_endpoint)
    plan = plan_shards(job, rows_per_shard=20)
    assert [(shard.start, shard.stop) for shard in plan.shards] == [(0, 32), (32, 64), (64, 96), (96, 100)]
    for shard in reversed(plan.shards):
        enrich_shard(job, carried(shard))
        with pytest.raises(SourceError):
            corpusmill.read(corpus.parent / "out")
    report = commit_shards(job, [carried(shard) for shard in plan.shards])
    assert (report.rows, report.live + report.cached + report.deduplicated) == (ROWS, ROWS)
    assert fake_endpoint.stats().computed == 60
    whole = make_job(corpus, fake_endpoint, name="whole")
    corpusmill.enrich(whole.source, whole.sink, *whole.prompts, endpoint=whole.endpoint, store=whole.store)
    assert parts(corpus.parent / "out") == parts(corpus.parent / "whole")
    assert sorted(path.name for path in corpus.parent.iterdir()) == ["corpus", "out", "store.db", "whole"]
    written = json.loads((corpus.parent / "out" / "_corpusmill" / "report.json").read_text("utf-8"))
    assert (written["rows"], written["outcomes"]) == (ROWS, {"completed": ROWS})


def test_a_run_over_a_committed_sink_finds_nothing_to_do(corpus: Path, fake_endpoint: FakeEndpoint) -> None:
    """Neither a plan nor a single run asks anything: the run key is that of the whole."""
    job = make_job(corpus, fake_endpoint)
    shards = plan_shards(job).shards
    for shard in shards:
        enrich_shard(job, shard)
    commit_shards(job, shards)
    again = plan_shards(job)
    assert (again.done, again.shards) == (True, ())
    assert commit_shards(job, ()).skipped_run
    single = corpusmill.enrich(job.source, job.sink, *job.prompts, endpoint=job.endpoint, store=job.store)
    assert single.skipped_run


def test_a_shard_that_is_staged_is_left_as_it_is(corpus: Path, fake_endpoint: FakeEndpoint) -> None:
    """A retry of a finished shard opens no store and asks nobody."""
    job = make_job(corpus, fake_endpoint)
    shard = plan_shards(job).shards[0]
    enrich_shard(job, shard)
    before = fake_endpoint.stats().requests
    gone = replace(job, store="sqlite:////dev/null/nowhere.db")
    assert enrich_shard(gone, shard).skipped_run
    assert fake_endpoint.stats().requests == before


@pytest.mark.parametrize("change", ["source", "prompt"])
def test_what_changed_since_the_plan_fails_the_shard(
    corpus: Path, fake_endpoint: FakeEndpoint, change: str
) -> None:
    """The message names the file; a shard whose own files are untouched fails too, for the whole has changed."""
    job = make_job(corpus, fake_endpoint)
    first, *_, last = plan_shards(job, rows_per_shard=16).shards
    assert [len(shard.files) for shard in (first, last)] == [1, 1]
    expected = {first: "source or the job changed", last: "source or the job changed"}
    if change == "source":
        pq.write_table(pq.read_table(corpus / "b.parquet").slice(0, 69), corpus / "b.parquet")
        expected[last] = r"b\.parquet changed since shard"
    else:
        prompts = [{"translate": {"column": "text", "into": "lv", "from": "en", "to": "et"}}]
        job = make_job(corpus, fake_endpoint, prompts=prompts)
    for shard, message in expected.items():
        with pytest.raises(ShardChangedError, match=message):
            enrich_shard(job, shard)
    assert fake_endpoint.stats().requests == 0
    with pytest.raises(ShardChangedError):
        commit_shards(job, [first, last])


def test_a_missing_shard_is_named_and_nothing_is_committed(corpus: Path, fake_endpoint: FakeEndpoint) -> None:
    """All or nothing."""
    job = make_job(corpus, fake_endpoint)
    shards = plan_shards(job, rows_per_shard=64).shards
    enrich_shard(job, shards[0])
    with pytest.raises(SinkError, match=r"shard 1 of 2 is not staged"):
        commit_shards(job, shards)
    assert not (corpus.parent / "out").exists()


def test_a_shard_whose_conduct_cannot_work_leaves_nothing(corpus: Path, fake_endpoint: FakeEndpoint) -> None:
    """It is refused before a place to stage its parts is made."""
    job = make_job(corpus, fake_endpoint, budget={"usd": 1.0})
    (shard,) = plan_shards(job, shards=1).shards
    with pytest.raises(UsageError, match="what a token costs is not known"):
        enrich_shard(job, shard)
    assert [path.name for path in corpus.parent.iterdir()] == ["corpus"]


def test_failures_are_judged_over_all_shards(corpus: Path, fake_endpoint: FakeEndpoint) -> None:
    """One bad shard of many may pass, too many bad rows commit nothing and are listed beside the sink."""
    fake_endpoint.script(
        lambda request, attempt: Fault("400") if "Row 1" in str(request["messages"]) else None
    )
    job = make_job(corpus, fake_endpoint, failures={"max_failed": 0.2})
    shards = plan_shards(job, rows_per_shard=32).shards
    reports = [enrich_shard(job, shard) for shard in shards]
    failed = sum(report.outcomes.get("failed", 0) for report in reports)
    assert failed == 22
    with pytest.raises(TooManyFailuresError, match="22 of 100 rows failed"):
        commit_shards(job, shards)
    lines = (corpus.parent / "out.failed.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == failed
    generous = make_job(corpus, fake_endpoint, failures={"max_failed": 0.5})
    assert commit_shards(generous, shards).outcomes == {"completed": 78, "failed": 22}
    assert not (corpus.parent / "out.failed.jsonl").exists()


def test_what_ends_early_keeps_a_report_and_the_commit_takes_all_of_them_away(
    corpus: Path, fake_endpoint: FakeEndpoint
) -> None:
    """That of a shard lies where the shards are staged, each apart; that of the whole lies beside the sink."""
    job = make_job(corpus, fake_endpoint, failures={"max_failed": 0.0})
    shards = plan_shards(job, rows_per_shard=64).shards
    fake_endpoint.script(lambda request, attempt: "401")
    addresses = []
    for shard in shards:
        with pytest.raises(AuthenticationError) as ended:
            enrich_shard(job, shard)
        assert ended.value.report_address is not None
        addresses.append(ended.value.report_address)
        assert read_report(addresses[-1])[0]["ended"] == str(ended.value)
    assert len(set(addresses)) == len(shards) == 2
    assert not (corpus.parent / "out.failed.report.json").exists()
    fake_endpoint.script(lambda request, attempt: "400" if "Row 1 " in str(request["messages"]) else None)
    for shard in shards:
        enrich_shard(job, shard)
    with pytest.raises(TooManyFailuresError) as refused:
        commit_shards(job, shards)
    assert refused.value.report_address == str(corpus.parent / "out.failed.report.json")
    report, _ = read_report(refused.value.report_address)
    assert (report["rows"], report["outcomes"]) == (ROWS, {"completed": 98, "failed": 2})
    commit_shards(make_job(corpus, fake_endpoint, failures={"max_failed": 0.5}), shards)
    assert sorted(path.name for path in corpus.parent.iterdir()) == ["corpus", "out", "store.db"]


def test_another_run_on_the_sink_takes_nothing_from_the_shards(
    corpus: Path, fake_endpoint: FakeEndpoint
) -> None:
    """It clears what dead runs left, which shards that wait for their commit are not."""
    job = make_job(corpus, fake_endpoint)
    shards = plan_shards(job, rows_per_shard=64).shards
    for shard in shards:
        enrich_shard(job, shard)
    other = make_job(
        corpus,
        fake_endpoint,
        prompts=[{"summarise": {"column": "text", "into": "short", "length": "one sentence"}}],
    )
    corpusmill.enrich(other.source, other.sink, *other.prompts, endpoint=other.endpoint, store=other.store)
    with pytest.raises(SinkError, match="another job"):
        commit_shards(job, shards)
    assert commit_shards(job, shards, overwrite=True).rows == ROWS
    assert "lv" in corpusmill.read(corpus.parent / "out").schema.names


def test_a_single_file_is_committed_from_shards(corpus: Path, fake_endpoint: FakeEndpoint) -> None:
    """Its row groups come in order."""
    job = make_job(corpus, fake_endpoint)
    job = replace(job, sink=replace(job.sink, path=str(corpus.parent / "out.parquet")))
    shards = plan_shards(job, rows_per_shard=32).shards
    for shard in reversed(shards):
        enrich_shard(job, shard)
    commit_shards(job, shards)
    assert pq.read_table(corpus.parent / "out.parquet").column("id").to_pylist() == list(range(ROWS))


def test_a_source_without_rows_has_one_shard_without_rows(corpus: Path, fake_endpoint: FakeEndpoint) -> None:
    """There is a dataset in the end, with the declared columns."""
    for path in corpus.iterdir():
        pq.write_table(pq.read_table(path).slice(0, 0), path)
    job = make_job(corpus, fake_endpoint)
    (shard,) = plan_shards(job).shards
    assert enrich_shard(job, shard).rows == 0
    commit_shards(job, [shard])
    assert corpusmill.read(corpus.parent / "out").schema.names == ["id", "text", "lv", "lv_outcome"]


def test_filtered_rows_are_counted_before_they_are_cut(corpus: Path, fake_endpoint: FakeEndpoint) -> None:
    """What no footer tells is read; every row that is left is in one shard."""
    job = make_job(corpus, fake_endpoint, source={"path": str(corpus), "filter": [["id", ">=", 25]]})
    plan = plan_shards(job, rows_per_shard=32)
    assert (plan.rows, len(plan.shards)) == (75, 3)
    for shard in plan.shards:
        enrich_shard(job, shard)
    commit_shards(job, plan.shards)
    assert corpusmill.read(corpus.parent / "out").to_table().column("id").to_pylist() == list(range(25, ROWS))


@pytest.mark.parametrize(
    ("rows", "wishes", "expected"),
    [
        (100, {}, 16),
        (1_000, {}, 128),
        (1_000, {"shards": 3}, 336),
        (1_000, {"rows_per_shard": 1}, 16),
        (0, {}, 16),
    ],
)
def test_a_shard_holds_whole_parts(rows: int, wishes: dict[str, int], expected: int) -> None:
    """Its rows are rounded up, so that parts do not depend on how many tasks there are."""
    assert shard_rows(rows, rows_per_part=16, **wishes) == expected


def test_wishes_that_contradict_are_refused() -> None:
    """Either the size or the number."""
    with pytest.raises(UsageError, match="not both"):
        shard_rows(10, rows_per_part=1, rows_per_shard=3, shards=3)
    with pytest.raises(UsageError, match="at least 1"):
        shard_rows(10, rows_per_part=1, shards=0)


def test_a_report_of_shards_adds_up(corpus: Path, fake_endpoint: FakeEndpoint) -> None:
    """Counts of all of them are the counts of the whole, after a way through JSON too."""
    job = make_job(corpus, fake_endpoint)
    reports = [enrich_shard(job, shard) for shard in plan_shards(job, rows_per_shard=32).shards]
    carried_over = [report_of(as_json(report)) for report in reports]
    assert as_json(merged(carried_over, output="x")) == as_json(merged(reports, output="x"))
    whole = merged(reports, output="x")
    whole.check()
    assert whole.prompt_tokens == fake_endpoint.stats().prompt_tokens
    assert sum(whole.latency) == whole.live == whole.answers == 60
    counts = {field.name for field in fields(RunReport) if field.type == "int"} - {"possibly_paid_twice"}
    assert {name: getattr(whole, name) for name in counts} == {
        name: sum(getattr(report, name) for report in reports) for name in counts
    }


KILLED = """
import json, sys
from corpusmill.job import load_job
from corpusmill.shards import commit_shards, enrich_shard, shard_of
job = load_job(sys.argv[1])
shards = [shard_of(each) for each in json.load(open(sys.argv[2]))]
if sys.argv[3] == "shard":
    enrich_shard(job, shards[0])
else:
    commit_shards(job, shards)
"""


@pytest.mark.parametrize(
    ("step", "point"),
    [
        ("shard", "stored:9"),
        ("shard", "sink.part:1"),
        ("shard", "before record"),
        ("commit", "before commit"),
        ("commit", "sink.staged"),
        ("commit", "sink.renamed"),
        ("commit", "committed"),
    ],
)
def test_a_killed_step_is_done_again_and_pays_for_no_stored_answer_again(
    corpus: Path, fake_endpoint: FakeEndpoint, step: str, point: str
) -> None:
    """Killed anywhere, a second try of the same step leads to the dataset, whole, with nothing beside it."""
    job_file = corpus.parent / "job.json"
    job = make_job(corpus, fake_endpoint)
    job_file.write_text(json.dumps(dict(job.written)), "utf-8")
    shards = plan_shards(job, rows_per_shard=64).shards
    plan_file = corpus.parent / "plan.json"
    plan_file.write_text(json.dumps([shard.as_dict() for shard in shards]), "utf-8")
    enrich_shard(job, shards[1])
    if step == "commit":
        enrich_shard(job, shards[0])
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(job_file), str(plan_file), step],
        env={**os.environ, "CORPUSMILL_KILL_AT": point},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -9, killed.stderr
    report = enrich_shard(job, shards[0])
    assert commit_shards(job, shards).rows == ROWS
    assert fake_endpoint.stats().computed_again <= report.possibly_paid_twice
    assert corpusmill.read(corpus.parent / "out").to_table().column("id").to_pylist() == list(range(ROWS))
    left = sorted(path.name for path in corpus.parent.iterdir())
    assert [name for name in left if name not in {"job.json", "plan.json"}] == ["corpus", "out", "store.db"]
