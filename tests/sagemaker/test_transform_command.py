"""Transform jobs from a job file: the steps apart, and all of them by `run`, also where it is killed between two."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.proof.warm import Ended, Warm

import corpusmill
from corpusmill.endpoints.sagemaker import SageMakerEndpoint, SageMakerTransform
from corpusmill.errors import JobError
from corpusmill.job.job import job_of, load_job
from corpusmill.testing import expected_answer
from corpusmill.testing.sagemaker.server import KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from corpusmill.testing.sagemaker import FakeSageMaker

ROWS = 10


@pytest.fixture
def job(fake: FakeSageMaker, s3_url: str, bucket: str, tmp_path: Path) -> Path:
    """A job file over ten rows, in shards of four."""
    pq.write_table(
        pa.table({"text": [f"row {row} of the corpus" for row in range(ROWS)]}), tmp_path / "in.parquet"
    )
    path = tmp_path / "job.json"
    path.write_text(
        json.dumps(
            {
                "source": str(tmp_path / "in.parquet"),
                "sink": str(tmp_path / "out"),
                "prompts": [{"translate": {"column": "text", "into": "lv", "from": "en", "to": "lv"}}],
                "endpoint": {
                    "sagemaker_transform": {
                        "model_name": "tildeopen-30b-64k",
                        "model": "tildeopen-30b-64k",
                        "region": fake.region,
                        "instance_type": "ml.g6.48xlarge",
                        "s3": f"s3://{bucket}/nightly",
                        "endpoint_url": fake.url,
                        "s3_endpoint_url": s3_url,
                        "shard_rows": 4,
                        "poll_seconds": 0.05,
                    }
                },
                "store": f"sqlite:///{tmp_path}/store.db",
            }
        )
    )
    return path


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    """A process that forks command lines, and has boto3 loaded."""
    with Warm(Path(__file__).with_name("warm_aws.py")) as warm:
        yield warm


CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": KEY.key,
    "AWS_SECRET_ACCESS_KEY": KEY.secret,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


def command(warm: Warm, *arguments: str, **environment: str) -> Ended:
    """Run the command line in a process of its own."""
    return warm.run(*arguments, environment={**CREDENTIALS, **environment})


def said(warm: Warm, *arguments: str) -> Any:
    """Run a command that prints JSON, and read it."""
    ended = command(warm, *arguments, "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def check_output(folder: Path) -> None:
    """Each row has its own translation, asked in TildeOpen's wording: one message of the user."""
    prompt = load_job(folder / "job.json").prompts[0]
    for row in corpusmill.read(folder / "out").to_table().to_pylist():
        rendered = prompt.render([row["text"]])
        assert rendered is not None
        messages = rendered.messages  # type: ignore[union-attr]
        assert [message["role"] for message in messages] == ["user"]
        assert row["lv"] == expected_answer(messages)


def test_the_steps_apart_come_to_what_a_run_comes_to(fake: FakeSageMaker, job: Path, warm: Warm) -> None:
    """Submitted twice it is one job; collected it is in the store; the run writes it and asks nothing."""
    fake.pace.set(1)
    (submitted,) = said(warm, "transform", "submit", str(job))
    assert (submitted["status"], submitted["rows"], submitted["shards"]) == ("InProgress", ROWS, 3)
    (again,) = said(warm, "transform", "submit", str(job))
    assert again["name"] == submitted["name"]
    while not fake.jobs.jobs[submitted["name"]].written:
        time.sleep(0.01)
    (early,) = said(warm, "transform", "collect", str(job))
    assert (early["shards_done"], early["answers"]) == (1, 4)
    fake.pace.set(None)
    assert fake.jobs.jobs[submitted["name"]].over.wait(30)
    (state,) = said(warm, "transform", "status", str(job))
    assert (state["status"], state["shards_done"]) == ("Completed", 3)
    (collected,) = said(warm, "transform", "collect", str(job))
    assert (collected["shards_done"], collected["answers"]) == (3, ROWS)
    report = said(warm, "run", str(job), "--quiet")
    assert (report["rows"], report["cached"], report["attempts"]) == (ROWS, ROWS, 0)
    assert said(warm, "transform", "status", str(job)) == []
    assert fake.container.computed.total() == ROWS
    check_output(job.parent)


@pytest.mark.parametrize("collected", [True, False])
def test_a_cancelled_job_is_started_anew(
    fake: FakeSageMaker, job: Path, warm: Warm, *, collected: bool
) -> None:
    """The next submit says so in words, and gives it another name, whether anybody has seen the first end or not."""
    fake.pace.set(0)
    (first,) = said(warm, "transform", "submit", str(job))
    said(warm, "transform", "cancel", str(job))
    assert fake.jobs.jobs[first["name"]].over.wait(30)
    if collected:
        said(warm, "transform", "collect", str(job))
    ended = command(warm, "transform", "submit", str(job))
    assert (ended.code, ended.err) == (0, "")
    assert "InProgress, 0 of 3 shards done, 10 rows" in ended.out
    assert first["name"] not in ended.out
    assert len(fake.jobs.jobs) == 2


def test_what_is_stopping_still_is_not_sent_and_standard_error_says_what_to_do(
    fake: FakeSageMaker, job: Path, warm: Warm
) -> None:
    """Its state goes to standard output as ever, the exit code says to come back; then the same command sends it."""
    fake.pace.set(0)
    (first,) = said(warm, "transform", "submit", str(job))
    made = fake.jobs.jobs[first["name"]]
    made.stop.set()
    assert made.over.wait(30)
    made.status = "Stopping"
    ended = command(warm, "transform", "submit", str(job), "--json")
    assert ended.code == 3
    assert [state["status"] for state in json.loads(ended.out)] == ["Stopping"]
    assert (
        f"still stopping, so that the rows are not sent anew yet: {first['name']}; run the same" in ended.err
    )
    assert len(fake.jobs.jobs) == 1
    made.status = "Stopped"
    (again,) = said(warm, "transform", "submit", str(job))
    assert (again["status"], again["rows"]) == ("InProgress", ROWS)
    assert again["name"] != first["name"]


def test_a_sink_that_holds_something_else_is_refused_before_a_job_is_paid_for(
    fake: FakeSageMaker, job: Path, warm: Warm
) -> None:
    """The error says what to pass, and passing it is all that is needed."""
    (job.parent / "out").mkdir()
    (job.parent / "out" / "notes.txt").write_text("mine", "utf-8")
    ended = command(warm, "transform", "submit", str(job))
    assert ended.code == 2
    assert "pass --overwrite" in ended.err
    assert fake.jobs.jobs == {}
    assert len(said(warm, "transform", "submit", str(job), "--overwrite")) == 1


def test_an_interrupted_run_leaves_its_job_running(fake: FakeSageMaker, job: Path, warm: Warm) -> None:
    """SIGINT ends the process within moments and says how to take the job up; the same command does."""
    fake.pace.set(0)
    child = warm.start("run", str(job), environment=CREDENTIALS)
    while not fake.jobs.jobs:
        time.sleep(0.01)
    child.signal(signal.SIGINT)
    ended = child.wait()
    assert ended.code == 130
    assert "goes on. The same command takes it up" in ended.err
    fake.pace.set(None)
    report = said(warm, "run", str(job), "--quiet")
    assert report["rows"] == ROWS
    assert len(fake.jobs.jobs) == 1
    check_output(job.parent)


POINTS = (
    (
        "transform.planned",
        "transform.uploaded",
        "transform.written",
        "transform.creating",
        "transform.created",
        "transform.collecting",
        "transform.collected",
        "transform.ended",
        "before commit",
        "committed",
    ),
    ("transform.settled",),
)


@pytest.mark.parametrize("points", POINTS)
def test_a_run_that_is_killed_anywhere_is_resumed_with_one_job(
    fake: FakeSageMaker, job: Path, warm: Warm, points: tuple[str, ...]
) -> None:
    """Killed at one point after the other, then run to its end: one job, each row computed and paid once."""
    for point in points:
        ended = command(warm, "run", str(job), "--quiet", CORPUSMILL_KILL_AT=point)
        assert ended.code == -signal.SIGKILL, f"{point}: {ended.err}"
        assert (job.parent / "out").exists() == (point == "committed")
    report = said(warm, "run", str(job), "--quiet")
    assert (report["rows"], report["outcomes"]) == (ROWS, {"completed": ROWS})
    assert len(fake.jobs.jobs) == 1
    assert fake.container.computed.total() == ROWS
    check_output(job.parent)


def test_a_job_file_describes_both_ways(job: Path) -> None:
    """With every setting under its name; an unknown one is refused with the nearest."""
    values = json.loads(job.read_text())
    transform = values["endpoint"]["sagemaker_transform"]
    sagemaker = {
        "endpoint_name": "tilde",
        "region": "eu-north-1",
        "model": "tildeopen-30b-64k",
        "stream": True,
    }
    values["endpoint"] = {"sagemaker_transform": {**transform, "real_time": sagemaker}}
    endpoint = job_of(values).endpoint
    assert isinstance(endpoint, SageMakerTransform)
    assert isinstance(endpoint.real_time, SageMakerEndpoint)
    values["endpoint"] = {"sagemaker": sagemaker}
    real_time = job_of(values).endpoint
    assert real_time == endpoint.real_time
    assert real_time.identity == endpoint.identity
    values["endpoint"] = {"sagemaker": {**sagemaker, "endpoint_nam": "x"}}
    with pytest.raises(JobError, match="endpoint_name"):
        job_of(values)
    values["endpoint"] = {"sagemaker": {**sagemaker, "capabilities": {"n": 4}}}
    assert job_of(values).endpoint.capabilities.n == 4


def test_a_language_that_the_model_does_not_know_is_refused(job: Path, warm: Warm) -> None:
    """With the list of those that it knows."""
    values = json.loads(job.read_text())
    values["prompts"][0]["translate"]["to"] = "el"
    job.write_text(json.dumps(values))
    ended = command(warm, "run", str(job), "--quiet")
    assert ended.code == 2
    assert "'el'" in ended.err
    assert "lv" in ended.err


def test_an_endpoint_of_another_kind_has_no_transform_jobs(job: Path, warm: Warm) -> None:
    """The command says so."""
    values = json.loads(job.read_text())
    values["endpoint"] = {"openai_compatible": {"base_url": "http://127.0.0.1:9/v1", "model": "m"}}
    job.write_text(json.dumps(values))
    ended = command(warm, "transform", "status", str(job))
    assert ended.code == 2
    assert "no sagemaker_transform" in ended.err


def test_a_plan_tells_shards_hours_and_cost(job: Path, warm: Warm) -> None:
    """From a stated rate and price; nothing is sent."""
    values = json.loads(job.read_text())
    values["endpoint"]["sagemaker_transform"] |= {
        "tokens_per_second": 1,
        "price_per_hour": 3_600,
        "instance_count": 2,
    }
    job.write_text(json.dumps(values))
    ended = command(warm, "plan", str(job), "--json")
    assert ended.code == 0, ended.err
    plan = ended.report
    (note,) = (note for note in plan["notes"] if note.startswith("transform job"))
    assert "3 shards" in note
    tokens = plan["prompt_tokens"]["expected"] + plan["completion_tokens"]["expected"]
    assert f"${tokens:,.2f}" in note
