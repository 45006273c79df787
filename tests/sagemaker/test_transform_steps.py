"""The steps of a transform job as an orchestrator takes them: each by itself, and none of them waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corpusmill
from corpusmill.endpoints.sagemaker import SageMakerTransform
from corpusmill.enrich_job import enrich_job
from corpusmill.errors import EndpointError, InterruptedRunError
from corpusmill.job import Job, job_of
from corpusmill.transform.steps import advance, looks, submit

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.testing.sagemaker import FakeSageMaker
    from corpusmill.transform.steps import JobState

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
        "patience_seconds": 5.0,
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


def advanced(job: Job, fake: FakeSageMaker) -> list[JobState]:
    """Let the jobs that are there end and those that come be held, and take the next step."""
    fake.pace.set(None)
    for made in list(fake.jobs.jobs.values()):
        assert made.over.wait(30)
    fake.pace.set(0)
    return advance(job, endpoint_of(job))


def test_a_step_never_waits_and_sends_what_is_left_over(job: Job, fake: FakeSageMaker) -> None:
    """A job at work is given back as such; a shard that failed goes out in the next job, and the last step is none."""
    fake.container.poison = "row 5:"
    fake.pace.set(1)
    (submitted,) = submit(job, endpoint_of(job))
    (same,) = advance(job, endpoint_of(job))
    assert (same.name, same.status) == (submitted.name, "InProgress")
    names = {submitted.name}
    while found := advanced(job, fake):
        (state,) = found
        assert state.name not in names
        names.add(state.name)
    assert len(fake.jobs.jobs) == len(names) == 4
    report = enrich_job(job)
    assert (report.attempts, report.outcomes) == (0, {"completed": ROWS - 1, "failed": 1})
    assert len(fake.jobs.jobs) == 4
    assert corpusmill.read(job.sink.path).count_rows() == ROWS


def test_a_step_alone_does_all_that_the_steps_before_it_would(job: Job, fake: FakeSageMaker) -> None:
    """What was not submitted is submitted, and rows that were cut go out under a higher ceiling."""
    prompt = {"ask": {"template": "Name: {text}", "into": "topic", "max_tokens": 4, "escalate_to": 4_096}}
    job = job_of({**job.written, "prompts": [prompt]})
    steps = 0
    while advanced(job, fake):
        steps += 1
    assert steps == len(fake.jobs.jobs) == 2
    assert enrich_job(job).outcomes == {"completed": ROWS}


def test_a_step_says_what_ends_a_run(job: Job, fake: FakeSageMaker) -> None:
    """A job that failed for a lasting reason, and one that was stopped; the step after it starts anew."""
    fake.fail_next_job("ClientError: Access denied to model data")
    submit(job, endpoint_of(job))
    with pytest.raises(EndpointError, match="not by its lines"):
        advanced(job, fake)
    (second,) = advance(job, endpoint_of(job))
    fake.jobs.stop({"TransformJobName": second.name})
    with pytest.raises(InterruptedRunError, match="was stopped"):
        advanced(job, fake)
    (third,) = advance(job, endpoint_of(job))
    assert third.name != second.name


def test_a_look_tells_a_job_that_is_not_there_from_one_that_could_not_be_read(
    job: Job, fake: FakeSageMaker
) -> None:
    """Throttling says nothing of a job; no look changes anything."""
    fake.pace.set(0)
    (submitted,) = submit(job, endpoint_of(job))
    before = list(fake.operations)
    names = [submitted.name, "corpusmill-none"]
    seen = {look.name: (look.status, look.ended) for look in looks(endpoint_of(job), names)}
    assert seen == {submitted.name: ("InProgress", False), "corpusmill-none": ("", False)}
    fake.control_script = lambda *_: "throttled"
    (unread,) = looks(endpoint_of(job), names[:1])
    assert (unread.status, unread.ended) == (None, False)
    assert "hrottl" in unread.reason
    assert set(fake.operations[len(before) :]) == {"DescribeTransformJob"}
    fake.control_script = None
    fake.jobs.stop({"TransformJobName": submitted.name})
    assert fake.jobs.jobs[submitted.name].over.wait(30)
    (stopped,) = looks(endpoint_of(job), names[:1])
    assert (stopped.status, stopped.ended) == ("Stopped", True)
