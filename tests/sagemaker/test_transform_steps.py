"""A transform job as an orchestrator takes it: submitted, and run without waiting until all is there."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corpusmill
from corpusmill.endpoints.sagemaker import SageMakerTransform
from corpusmill.enrich_job import enrich_job
from corpusmill.errors import AuthenticationError, EndpointError, JobsAtWorkError, JobStoppedError, SinkError
from corpusmill.job import Job, job_of
from corpusmill.transform.steps import collect, states, submit

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.report import RunReport
    from corpusmill.testing.sagemaker import FakeSageMaker

ROWS = 10


@pytest.fixture
def job(fake: FakeSageMaker, s3_url: str, bucket: str, tmp_path: Path) -> Job:
    """A job of ten rows, in shards of four."""
    texts = [f"row {row}: of the corpus" for row in range(ROWS)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "in.parquet")
    transform: dict[str, Any] = {
        "model_name": "tildeopen-30b-64k",
        "model": "tildeopen-30b-64k",
        "region": fake.region,
        "instance_type": "ml.g6.48xlarge",
        "s3": f"s3://{bucket}/nightly",
        "endpoint_url": fake.url,
        "s3_endpoint_url": s3_url,
        "shard_rows": 4,
        "patience_seconds": 60.0,
    }
    return job_of(
        {
            "source": str(tmp_path / "in.parquet"),
            "sink": str(tmp_path / "out"),
            "prompts": [{"ask": {"template": "Name the topic of: {text}", "into": "topic"}}],
            "endpoint": {"sagemaker_transform": transform},
            "store": f"sqlite:///{tmp_path}/store.db",
            "failures": {"max_failed": 1.0},
        }
    )


def endpoint_of(job: Job) -> SageMakerTransform:
    """Give the endpoint, as what it is."""
    assert isinstance(job.endpoint, SageMakerTransform)
    return job.endpoint


def run(job: Job, fake: FakeSageMaker) -> RunReport | list[str]:
    """Let the jobs that are there end and those that come be held, and run: the report, or the jobs at work."""
    fake.pace.set(None)
    for made in list(fake.jobs.jobs.values()):
        assert made.over.wait(30)
    fake.pace.set(0)
    try:
        return enrich_job(replace(job, endpoint=replace(endpoint_of(job), wait=False)))
    except JobsAtWorkError as error:
        return list(error.jobs)


def run_to_the_end(job: Job, fake: FakeSageMaker) -> tuple[list[str], RunReport]:
    """Run until there is an output: the jobs that it took, and the report."""
    names: list[str] = []
    while isinstance(found := run(job, fake), list):
        (name,) = found
        assert name not in names
        names.append(name)
    return names, found


def test_a_run_that_waits_for_nothing_sends_what_is_left_over(job: Job, fake: FakeSageMaker) -> None:
    """A job at work is named; a shard that failed goes out in the next job; the last run finds all and writes."""
    fake.container.poison = "row 5:"
    fake.pace.set(0)
    (submitted,) = submit(job, endpoint_of(job))
    with pytest.raises(JobsAtWorkError, match=submitted.name):
        enrich_job(replace(job, endpoint=replace(endpoint_of(job), wait=False)))
    names, report = run_to_the_end(job, fake)
    assert submitted.name not in names
    assert len(fake.jobs.jobs) == 1 + len(names) == 4
    assert (report.attempts, report.outcomes) == (0, {"completed": ROWS - 1, "failed": 1})
    assert corpusmill.read(job.sink.path).count_rows() == ROWS


def test_a_run_alone_does_all_that_a_submission_before_it_would(job: Job, fake: FakeSageMaker) -> None:
    """What was not submitted is submitted, and rows that were cut go out under a higher ceiling."""
    prompt = {"ask": {"template": "Name: {text}", "into": "topic", "max_tokens": 4, "escalate_to": 4_096}}
    job = job_of({**job.written, "prompts": [prompt]})
    names, report = run_to_the_end(job, fake)
    assert len(names) == len(fake.jobs.jobs) == 2
    assert report.outcomes == {"completed": ROWS}


def test_a_submission_rides_out_throttling(job: Job, fake: FakeSageMaker) -> None:
    """Calls that fail in passing are made again, and there is one job."""
    fake.control_script = lambda _, number: "throttled" if number in {1, 2, 3, 4} else None
    (submitted,) = submit(job, endpoint_of(job))
    (state,) = states(job, endpoint_of(job))
    assert state.name == submitted.name
    assert len(fake.jobs.jobs) == 1


def test_what_the_run_would_refuse_is_refused_before_it_is_paid_for(job: Job, tmp_path: Path) -> None:
    """A sink that holds something else, unless it is to be removed; and a sink that would become its own source."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine", "utf-8")
    with pytest.raises(SinkError, match="files or folders that no run of corpusmill wrote"):
        submit(job, endpoint_of(job))
    inside = job_of({**job.written, "source": str(tmp_path), "sink": str(tmp_path / "inside")})
    with pytest.raises(SinkError, match="lies inside the source"):
        submit(inside, endpoint_of(inside))
    assert states(job, endpoint_of(job)) == []
    assert len(submit(job, endpoint_of(job), overwrite=True)) == 1


def test_nothing_is_sent_for_an_output_that_is_there(job: Job, fake: FakeSageMaker, tmp_path: Path) -> None:
    """The run that follows would do nothing, whatever answers a store has."""
    run_to_the_end(job, fake)
    assert submit(replace(job, store=f"sqlite:///{tmp_path}/another.db"), endpoint_of(job)) == []
    assert len(fake.jobs.jobs) == 1


def test_collecting_leaves_the_store_also_when_it_fails(
    job: Job, fake: FakeSageMaker, tmp_path: Path
) -> None:
    """Nobody is left in it who would be taken for one at work."""
    submit(job, endpoint_of(job))
    fake.control_script = lambda *_: "access_denied"
    with pytest.raises(AuthenticationError):
        collect(job, endpoint_of(job))
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("SELECT COUNT(*) FROM owners").fetchone() == (0,)


def test_a_run_says_what_ends_it(job: Job, fake: FakeSageMaker) -> None:
    """A job that failed for a lasting reason, and one that was stopped; the run after it starts anew."""
    fake.fail_next_job("ClientError: Access denied to model data")
    submit(job, endpoint_of(job))
    with pytest.raises(EndpointError, match="not by its lines"):
        run(job, fake)
    second = run(job, fake)
    assert isinstance(second, list)
    fake.jobs.stop({"TransformJobName": second[0]})
    with pytest.raises(JobStoppedError, match="was stopped"):
        run(job, fake)
    third = run(job, fake)
    assert isinstance(third, list)
    assert third != second
