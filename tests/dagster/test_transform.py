"""Transform jobs between two assets: submitted, looked at by the sensor, collected; and taken up after every kill."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill import read
from corpusmill.dagster import Dimension, enriched_asset, transform_assets
from corpusmill.dagster.assets import step_of
from corpusmill.dagster.blueprint import Blueprint
from corpusmill.dagster.execution import Execution, Finished
from corpusmill.dagster.transform_sensor import JOBS, Awaited, jobs_in, judge
from corpusmill.errors import UsageError
from corpusmill.testing import expected_answer
from corpusmill.testing.sagemaker import FakeSageMaker
from corpusmill.testing.sagemaker.server import KEY, REGION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dagster.conftest import Runs

ROWS = 10
TEMPLATE = "Name the topic of: {text}"
WORKER = Path(__file__).with_name("transform_worker.py")


@pytest.fixture
def fake(s3_url: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSageMaker]:
    """A fake SageMaker over the test's bucket, whose credentials are in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY.secret)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    s3 = boto3.client("s3", endpoint_url=s3_url, region_name=REGION)
    with FakeSageMaker(s3=s3) as running:
        yield running
    s3.close()


@pytest.fixture
def job(fake: FakeSageMaker, s3_url: str, bucket: str, tmp_path: Path) -> dict[str, Any]:
    """The content of a job file over ten rows in two languages, in shards of four."""
    rows = [{"text": f"row {row}: of the corpus", "lang": ("en", "de")[row % 2]} for row in range(ROWS)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "corpus.parquet")
    transform = {
        "model_name": "tildeopen-30b-64k",
        "model": "tildeopen-30b-64k",
        "region": fake.region,
        "instance_type": "ml.g6.48xlarge",
        "s3": f"{bucket}/nightly",
        "endpoint_url": fake.url,
        "s3_endpoint_url": s3_url,
        "shard_rows": 4,
        "patience_seconds": 5,
    }
    return {
        "source": str(tmp_path / "corpus.parquet"),
        "sink": str(tmp_path / "translated"),
        "prompts": [{"ask": {"template": TEMPLATE, "into": "topic"}}],
        "endpoint": {"sagemaker_transform": transform},
        "store": f"sqlite:///{tmp_path / 'store.db'}",
        "failures": {"max_failed": 1.0},
    }


class Night:
    """The assets of a job, and a daemon's part: the sensor is evaluated, and what it requests is run."""

    def __init__(self, runs: Runs, fake: FakeSageMaker, definitions: dg.Definitions) -> None:
        self.runs, self.fake, self.definitions = runs, fake, definitions
        self.cursor: str | None = None
        self.run_keys: list[str] = []

    def submit(self, partition: str | None = None) -> dict[str, Any]:
        """Materialise the asset that submits, and give the metadata that it tells."""
        result = self.runs.materialise(self.definitions, assets=["translated_jobs"], partition=partition)
        assert result.success
        event = self.runs.events(result, "translated_jobs")[partition]
        return {name: value.value for name, value in event.metadata.items()}

    def evaluate(self) -> Any:
        """Evaluate the sensor as the daemon does, and keep its cursor."""
        (sensor,) = self.definitions.sensors or ()
        assert isinstance(sensor, dg.SensorDefinition)
        assert sensor.name == "collect_translated"
        with dg.build_sensor_context(
            instance=self.runs.instance, cursor=self.cursor, definitions=self.definitions
        ) as context:
            found = sensor.evaluate_tick(context)
        self.cursor = found.cursor
        return found

    def end(self) -> None:
        """Let the jobs that are there end, and hold those that will come."""
        self.fake.pace.set(None)
        for made in list(self.fake.jobs.jobs.values()):
            assert made.over.wait(30)
        self.fake.pace.set(0)

    def collect(self) -> dg.ExecuteInProcessResult:
        """Run what the sensor requests."""
        (request,) = self.evaluate().run_requests
        assert request.run_key not in self.run_keys
        self.run_keys.append(request.run_key)
        assert list(request.asset_selection) == [dg.AssetKey("translated")]
        return self.runs.materialise(self.definitions, assets=["translated"], partition=request.partition_key)

    def told(self, result: dg.ExecuteInProcessResult) -> dict[str, Any]:
        """Give what the collected asset tells of itself."""
        return self.runs.told(result, "translated")


@pytest.fixture
def night(runs: Runs, fake: FakeSageMaker, job: dict[str, Any]) -> Night:
    """The assets of the job, with jobs that are held until they are let go."""
    fake.pace.set(0)
    return Night(runs, fake, transform_assets("translated", job, most_polls=3))


def check_output(job: dict[str, Any], *, failed: int = 0) -> None:
    """Each row has its own answer, but for those that failed."""
    rows = read(job["sink"]).to_table().to_pylist()
    assert len(rows) == ROWS
    for row in rows:
        asked = [{"role": "user", "content": TEMPLATE.replace("{text}", row["text"])}]
        if row["topic_outcome"]["status"] == "completed":
            assert row["topic"] == expected_answer(asked)
    assert sum(row["topic_outcome"]["status"] == "failed" for row in rows) == failed


def test_it_takes_what_an_enriched_asset_takes_with_the_same_defaults() -> None:
    """What has the same name means the same, and nothing is left out; a component may choose between the two."""
    ours, theirs = (
        {
            name: (parameter.kind, parameter.default)
            for name, parameter in inspect.signature(make).parameters.items()
        }
        for make in (transform_assets, enriched_asset)
    )
    assert theirs == {name: ours[name] for name in theirs if name in ours}
    assert set(ours) - set(theirs) == {
        "submit_asset",
        "sensor",
        "minimum_interval_seconds",
        "most_polls",
        "default_status",
    }


def test_a_night_submits_waits_and_collects(night: Night, job: dict[str, Any]) -> None:
    """No run waits; the sensor requests one run when the job has ended; the asset says what every enriched one says."""
    told = night.submit()
    (name,) = told[JOBS]
    assert (told["corpusmill/transform/rows"], told["corpusmill/transform/shards"]) == (ROWS, 3)
    waiting = night.evaluate()
    assert waiting.run_requests == []
    assert f"{name} is InProgress; looked at 1 of at most 3 times" in waiting.skip_message
    assert night.submit()[JOBS] == [name]
    night.end()
    result = night.collect()
    told = night.told(result)
    assert told["dagster/row_count"] == ROWS
    assert told["corpusmill/answers/cached"] == ROWS
    assert told["corpusmill/attempts"] == 0
    assert [column.name for column in told["dagster/column_schema"].columns] == [
        *("text", "lang", "topic", "topic_outcome")
    ]
    lineage = told["dagster/column_lineage"].deps_by_column
    assert [dep.column_name for dep in lineage["topic"]] == ["text"]
    assert {check.check_name for check in result.get_asset_check_evaluations() if check.passed} == {
        *("failed_rows", "truncated_rows", "blank_outputs", "schema")
    }
    assert night.evaluate().skip_message == "No transform job is waited for."
    check_output(job)
    assert len(night.fake.jobs.jobs) == 1


def test_a_sensor_whose_cursor_was_reset_requests_the_same_run(night: Night) -> None:
    """Dagster starts no second run of a key, and the key is made of the names of the jobs."""
    night.submit()
    night.end()
    (first,) = night.evaluate().run_requests
    night.cursor = None
    (second,) = night.evaluate().run_requests
    assert first.run_key == second.run_key
    night.cursor = '{"awaited": 3}'
    with pytest.raises(Exception, match="cursor cannot be read") as raised:
        night.evaluate()
    assert isinstance(raised.value.__cause__ or raised.value, UsageError)


def test_a_submission_of_nothing_is_collected_at_once(night: Night, job: dict[str, Any]) -> None:
    """All answers lie in the store: no job is made, and the run that is requested finds that nothing has changed."""
    night.submit()
    night.end()
    night.collect()
    told = night.submit()
    assert (told[JOBS], told["corpusmill/transform/rows"]) == ([], 0)
    assert night.told(night.collect())["corpusmill/skipped_run"] is True
    assert night.submit()[JOBS] == []
    night.collect()
    assert len(set(night.run_keys)) == 3
    assert len(night.fake.jobs.jobs) == 1


def test_rows_that_are_left_over_go_out_again_and_the_sensor_goes_on(
    night: Night, job: dict[str, Any]
) -> None:
    """A run that finds rows unanswered sends them, materialises nothing, and is followed by another run."""
    night.fake.container.poison = "row 5:"
    night.submit()
    collected: list[str | None] = []
    while not collected:
        night.end()
        result = night.collect()
        assert result.success
        collected = [*night.runs.events(result, "translated")]
        if not collected:
            assert result.get_asset_check_evaluations() == []
            assert list(night.runs.events(result, "translated_jobs")) == [None]
    assert len(night.run_keys) == len(night.fake.jobs.jobs) == 4
    check_output(job, failed=1)


def test_assets_downstream_wait_for_the_last_run(night: Night, runs: Runs) -> None:
    """While a job is at work the asset has no output, so what depends on it is not run; no job is told twice."""
    ran = []

    @dg.asset(deps=["translated"])
    def after() -> None:
        ran.append("after")

    definitions = dg.Definitions.merge(night.definitions, dg.Definitions(assets=[after]))
    result = runs.materialise(definitions, assets=["translated_jobs", "translated", "after"])
    assert result.success
    assert ran == []
    told = [event.asset_key for event in result.get_asset_materialization_events()]
    assert told == [dg.AssetKey("translated_jobs")]
    night.end()
    assert runs.materialise(definitions, assets=["translated", "after"]).success
    assert ran == ["after"]


def test_throttled_looks_are_tolerated_and_the_cap_is_a_clear_end(night: Night) -> None:
    """A job that could not be looked at is waited for; after the last look its asset says so, and nothing is asked."""
    (name,) = night.submit()[JOBS]
    night.fake.control_script = lambda *_: "throttled"
    for look in (1, 2):
        found = night.evaluate()
        assert f"{name} could not be looked at" in found.skip_message
        assert f"looked at {look} of at most 3 times" in found.skip_message
        assert not found.asset_events
    night.fake.control_script = None
    last = night.evaluate()
    assert f"Waits no longer for {name} is InProgress" in last.skip_message
    (event,) = last.asset_events
    assert isinstance(event, dg.AssetObservation)
    assert event.asset_key == dg.AssetKey("translated_jobs")
    assert "Materialise translated_jobs again" in (event.description or "")
    before = len(night.fake.operations)
    assert night.evaluate().skip_message == "No transform job is waited for."
    assert len(night.fake.operations) == before
    assert night.submit()[JOBS] == [name]
    night.end()
    assert night.told(night.collect())["dagster/row_count"] == ROWS
    assert len(night.fake.jobs.jobs) == 1


def test_a_job_that_failed_for_good_fails_the_run_and_says_why(night: Night, runs: Runs) -> None:
    """What is wrong with rights or quotas is not sent again."""
    night.fake.fail_next_job("ClientError: Access denied to model data")
    night.submit()
    night.end()
    description, _ = runs.failure(night.collect())
    assert "not by its lines: ClientError: Access denied" in description
    assert len(night.fake.jobs.jobs) == 1


@pytest.mark.parametrize("looked", [True, False])
def test_a_stopped_job_fails_the_run_and_only_a_submission_starts_another(
    runs: Runs, fake: FakeSageMaker, job: dict[str, Any], *, looked: bool
) -> None:
    """No retry policy starts anew what was stopped; whoever submits again does, whether it was collected or not."""
    fake.pace.set(0)
    night = Night(runs, fake, transform_assets("translated", job, retry_policy=dg.RetryPolicy(max_retries=2)))
    (stopped,) = night.submit()[JOBS]
    fake.jobs.stop({"TransformJobName": stopped})
    assert fake.jobs.jobs[stopped].over.wait(30)
    if looked:
        description, _ = runs.failure(night.collect())
        assert f"{stopped} was stopped" in description
    assert len(fake.jobs.jobs) == 1
    (again,) = night.submit()[JOBS]
    assert again != stopped
    night.end()
    assert night.told(night.collect())["dagster/row_count"] == ROWS


def test_what_is_still_stopping_is_told_and_sent_by_a_later_submission(night: Night, runs: Runs) -> None:
    """It may yet complete; whoever submits hears that there is something left to submit."""
    (first,) = night.submit()[JOBS]
    made = night.fake.jobs.jobs[first]
    made.stop.set()
    assert made.over.wait(30)
    made.status = "Stopping"
    result = runs.materialise(night.definitions, assets=["translated_jobs"])
    assert len(night.fake.jobs.jobs) == 1
    logged = "".join(entry.user_message for entry in runs.instance.all_logs(result.run_id))
    assert f"still stopping, so that the rows are not sent anew yet: {first}" in logged
    made.status = "Stopped"
    (again,) = night.submit()[JOBS]
    assert again != first


def test_what_lies_in_the_sink_is_judged_before_anything_is_submitted(
    night: Night, runs: Runs, job: dict[str, Any]
) -> None:
    """Something else is refused and no job is paid for; the asset's own output makes way for new prompts."""
    sink = Path(job["sink"])
    sink.mkdir()
    (sink / "notes.txt").write_text("mine", "utf-8")
    description, _ = runs.failure(runs.materialise(night.definitions, assets=["translated_jobs"]))
    assert "files or folders that no run of corpusmill wrote" in description
    assert not night.fake.jobs.jobs
    (sink / "notes.txt").unlink()
    night.submit()
    night.end()
    night.told(night.collect())
    other = [{"ask": {"template": "Name the language of: {text}", "into": "topic"}}]
    changed = Night(runs, night.fake, transform_assets("translated", {**job, "prompts": other}))
    assert changed.submit()["corpusmill/transform/rows"] == ROWS
    changed.end()
    assert changed.told(changed.collect())["dagster/row_count"] == ROWS


def test_partitions_have_jobs_and_runs_of_their_own(
    runs: Runs, fake: FakeSageMaker, job: dict[str, Any]
) -> None:
    """Several are submitted in one run; each is collected when its own job has ended."""
    fake.pace.set(0)
    languages = Dimension(definition=dg.StaticPartitionsDefinition(["en", "de"]), column="lang")
    job["sink"] = {"path": job["sink"], "columns": ["text"]}
    night = Night(runs, fake, transform_assets("translated", job, partitions={"lang": languages}))
    result = runs.materialise(night.definitions, assets=["translated_jobs"], span=("en", "de"))
    names = {key: jobs_in(event) for key, event in runs.events(result, "translated_jobs").items()}
    assert len(fake.jobs.jobs) == 2
    waiting = night.evaluate().skip_message
    assert all(f"{key}: {jobs[0]} is InProgress" in waiting for key, jobs in names.items())
    night.end()
    requests = {request.partition_key: request for request in night.evaluate().run_requests}
    assert set(requests) == {"en", "de"}
    for key in requests:
        result = runs.materialise(night.definitions, assets=["translated"], partition=key)
        assert (
            runs.events(result, "translated")[key].metadata["dagster/partition_row_count"].value == ROWS // 2
        )
    assert len(fake.jobs.jobs) == 2


def test_a_partition_that_is_not_collected_yet_is_not_told_of_as_made(runs: Runs) -> None:
    """Steps that follow wait for all partitions of the run; those that are made are told of as ever."""
    languages = Dimension(definition=dg.StaticPartitionsDefinition(["en", "de"]))
    partitions = languages.definition
    spec = dg.AssetSpec("translated", partitions_def=partitions, skippable=True)
    followed: list[str] = []

    def events(context: dg.AssetExecutionContext) -> Iterator[Any]:
        def work(partition: str | None) -> Finished | None:
            return None if partition == "de" else Finished(metadata={}, version=dg.DataVersion("1"))

        execution = Execution(context=context, dimensions={"lang": languages}, spec=spec, rules={}, work=work)
        yield from execution.events()

    def follow(context: dg.AssetExecutionContext) -> Iterator[Any]:
        followed.extend(context.partition_keys)
        yield from ()

    collecting = step_of(
        spec,
        Blueprint(job={}, dimensions={"lang": languages}),
        events,
        rules={},
        backfill_policy=None,
        pool=None,
        op_tags=None,
        retry_policy=None,
    )
    following = step_of(
        dg.AssetSpec("following", deps=["translated"], partitions_def=partitions, skippable=True),
        Blueprint(job={}, dimensions={"lang": languages}),
        follow,
        rules={},
        backfill_policy=None,
        pool=None,
        op_tags=None,
        retry_policy=None,
    )
    definitions = dg.Definitions(assets=[collecting, following])
    result = runs.materialise(definitions, assets=["translated", "following"], span=("en", "de"))
    assert result.success
    assert set(runs.events(result, "translated")) == {"en"}
    assert followed == []


def test_an_endpoint_that_cannot_be_looked_at_does_not_hide_the_others() -> None:
    """What comes after it is not tried in the same look, and comes before it in the next one."""
    awaited = {key: Awaited(jobs=[f"job-{key}"], event=number) for number, key in enumerate("ab")}
    verdict = judge(awaited, {}, {"job-a": "not authorized"}, most_polls=9)
    assert [(key, each.polls) for key, each in verdict.awaited.items()] == [("b", 0), ("a", 1)]
    assert "could not be looked at (not authorized)" in verdict.waits["a"]


def test_submissions_beyond_those_that_one_evaluation_looks_at_come_first_in_the_next() -> None:
    """What was not looked at is not counted; trouble counts, and says nothing of a job."""
    awaited = {key: Awaited(jobs=[f"job-{key}"], event=number) for number, key in enumerate("abc")}
    verdict = judge(awaited, {"job-a": "InProgress", "job-b": "Failed"}, {}, most_polls=9)
    assert list(verdict.ended) == ["b"]
    assert [(key, each.polls) for key, each in verdict.awaited.items()] == [("c", 0), ("a", 1)]
    troubled = judge(awaited, {"job-a": "Completed"}, {"job-b": "Rate exceeded"}, most_polls=1)
    assert list(troubled.ended) == ["a"]
    assert set(troubled.given_up) == {"b"}
    assert list(troubled.awaited) == ["c"]
    unknown = judge(awaited, dict.fromkeys(["job-a", "job-b", "job-c"], ""), {}, most_polls=9)
    assert "not known to the service" in unknown.waits["a"]


def test_what_no_transform_job_can_serve_is_refused(
    runs: Runs, fake: FakeSageMaker, job: dict[str, Any]
) -> None:
    """Another endpoint, and no look at all, when the assets are made; a store that keeps nothing, when they run."""
    other = {"openai_compatible": {"base_url": "http://127.0.0.1:9/v1", "model": "m"}}
    with pytest.raises(UsageError, match="the endpoint is OpenAICompatible, which has no transform jobs"):
        transform_assets("translated", {**job, "endpoint": other})
    with pytest.raises(UsageError, match="most_polls is 0"):
        transform_assets("translated", job, most_polls=0)
    off = transform_assets("translated", {**job, "store": {"url": job["store"], "mode": "refresh"}})
    description, _ = runs.failure(runs.materialise(off, assets=["translated_jobs"]))
    assert "must be read-write" in description
    assert not fake.jobs.jobs


SUBMIT = "translated_jobs@transform."
KILLS = (
    *(f"{SUBMIT}{point}" for point in ("planned", "uploaded", "written", "creating", "created")),
    *("translated@transform.collecting", "translated@transform.collected", "translated@transform.ended"),
    *("translated@before commit", "translated@committed"),
)


@pytest.mark.parametrize(
    "kills",
    [
        [*KILLS[:5], "translated_jobs", *KILLS[5:], "translated"],
        # A job whose answers are all in the store is not settled any more, so this one has a job of its own.
        ["translated_jobs", "translated@transform.settled", "translated"],
    ],
)
def test_workers_that_are_killed_anywhere_are_taken_up_with_one_job(
    fake: FakeSageMaker, job: dict[str, Any], tmp_path: Path, kills: list[str]
) -> None:
    """SIGKILL at each step of submitting and of collecting, then each to its end: every row is computed once."""
    (tmp_path / "job.json").write_text(json.dumps(job), "utf-8")
    (tmp_path / "instance").mkdir()
    command = [sys.executable, str(WORKER), str(tmp_path / "job.json"), str(tmp_path / "instance"), *kills]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    ends = json.loads(ran.stdout.splitlines()[-1])
    wanted = {step: -signal.SIGKILL if "@" in step else 0 for step in kills}
    assert dict(zip(kills, ends, strict=True)) == wanted, ran.stderr[-3000:]
    assert len(fake.jobs.jobs) == 1
    assert fake.container.computed.total() == ROWS
    check_output(job)
