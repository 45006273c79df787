"""Transform jobs under `dag.test()`, against the fake SageMaker."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import airflow.sdk
import pyarrow.parquet as pq
import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred
from airflow.sdk.execution_time.context import OutletEventAccessors

import corpusmill
from corpusmill.airflow import TransformJobOperator
from corpusmill.airflow.transform_link import console_url
from corpusmill.airflow.transform_trigger import TransformJobsTrigger
from corpusmill.endpoints.sagemaker import AwsCredentials, SageMakerTransform
from corpusmill.endpoints.secret import Secret
from corpusmill.errors import EndpointError, InterruptedRunError, JobStoppedError, UsageError
from corpusmill.testing import expected_answer
from corpusmill.transform.watching import Seen, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from tests.airflow.conftest import Amazon, Ran

    LoadDag = Callable[..., ModuleType]
    RunDag = Callable[..., Ran]

TEMPLATE = "Name the topic of: {text}"

NIGHTLY = """
from airflow.sdk import DAG
from corpusmill.airflow import TransformJobOperator

with DAG(dag_id, schedule=None) as dag:
    TransformJobOperator(
        task_id="transform",
        source=folder + "/corpus.parquet",
        sink=folder + "/out",
        prompts=[{"ask": {"template": "Name the topic of: {text}", "into": "topic"}}],
        endpoint=endpoint,
        aws_conn_id="aws_for_tests",
        store="sqlite:///" + folder + "/store.db",
        failures={"max_failed": 1.0},
        **options,
    )
"""
ROWS = 60
ASKED = 57
"""Rows that are not blank; no two of them are alike."""

OWN_KEYS = SageMakerTransform(
    model_name="m",
    model="m",
    region="eu-north-1",
    instance_type="ml.any",
    s3="s3://bucket/nightly",
    credentials=AwsCredentials(access_key="AKIDOWN0000000000000", secret_key=Secret("own")),
)


class Nightly:
    """A Dag of one task, and what it makes."""

    def __init__(self, amazon: Amazon, folder: Path, load_dag: LoadDag, run_dag: RunDag) -> None:
        self.amazon, self.folder = amazon, folder
        self._load, self._run = load_dag, run_dag
        self.endpoint: dict[str, Any] = {}

    def dag(self, dag_id: str = "nightly", **options: Any) -> Any:
        module = self._load(
            NIGHTLY,
            dag_id=dag_id,
            folder=str(self.folder),
            endpoint=self.amazon.transform(**self.endpoint),
            options=options,
        )
        return module.dag

    def run(self, **options: Any) -> Ran:
        return self._run(self.dag(**options))

    def check_complete(self) -> None:
        """Each row has its own answer, in the order of the source."""
        made = corpusmill.read(self.folder / "out").to_table().to_pylist()
        source = pq.read_table(self.folder / "corpus.parquet").to_pylist()
        assert [row["id"] for row in made] == [row["id"] for row in source]
        for row in made:
            content = TEMPLATE.replace("{text}", row["text"] or "")
            answer = expected_answer([{"role": "user", "content": content}]) if row["text"] else None
            assert row["topic"] == answer


@pytest.fixture
def nightly(amazon: Amazon, corpus: Path, load_dag: LoadDag, run_dag: RunDag) -> Nightly:
    """A task over sixty rows in shards of twenty."""
    return Nightly(amazon, corpus.parent, load_dag, run_dag)


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_task_fills_its_table_by_one_job(
    nightly: Nightly, monkeypatch: pytest.MonkeyPatch, *, deferrable: bool
) -> None:
    """Same columns, XCom and report as any other run; the link leads to the job; the secret is nowhere."""
    fired: list[Any] = []
    run = TransformJobsTrigger.run

    async def noted(self: TransformJobsTrigger) -> Any:
        fired.append(self.serialize()[1])
        nightly.amazon.fake.pace.set(None)
        async for event in run(self):
            fired.append(event.payload)
            yield event

    monkeypatch.setattr(TransformJobsTrigger, "run", noted)
    if deferrable:
        nightly.amazon.fake.pace.set(1)
    ran = nightly.run(deferrable=deferrable)
    assert ran.state == "success"
    nightly.check_complete()
    (job,) = nightly.amazon.jobs
    assert job.status == "Completed"
    assert len(fired) == (2 if deferrable else 0)
    made = ran.xcom("transform")
    assert (made["rows"], made["outcomes"]) == (ROWS, {"completed": ASKED, "skipped": 3})
    assert made["report"].endswith("/_corpusmill/report.json")
    assert ran.xcom("transform", "transform_jobs") == [job.name]
    assert ran.xcom("transform", "_link_TransformJobLink") == (
        "https://eu-north-1.console.aws.amazon.com/sagemaker/home?region=eu-north-1#/transform-jobs/"
        + job.name
    )
    shown = str(fired) + str(ran.xcoms) + (nightly.folder / "out/_corpusmill/report.json").read_text("utf-8")
    assert nightly.amazon.connection["password"] not in shown
    assert nightly.amazon.connection["login"] not in shown


def test_rows_left_over_go_out_in_further_jobs_and_the_task_waits_again(
    nightly: Nightly, asset_events: Callable[[str], list[Any]]
) -> None:
    """A bad line is driven into a corner over four deferrals, and an asset event tells what came of it."""
    nightly.amazon.fake.container.poison = "strikes 5."
    ran = nightly.run(dag_id="left_over")
    assert ran.state == "success"
    assert ran.xcom("transform")["outcomes"] == {"completed": ASKED - 1, "failed": 1, "skipped": 3}
    sizes = [len(job.written) + len(job.failed_objects) for job in nightly.amazon.jobs]
    assert sizes[:2] == [3, 1]
    assert len(sizes) >= 5
    assert ran.xcom("transform", "transform_jobs") == [job.name for job in nightly.amazon.jobs]
    assert ran.xcom("transform", "_link_TransformJobLink").endswith(nightly.amazon.jobs[-1].name)
    event = asset_events(f"file://{nightly.folder}/out")[-1]
    assert (event.extra["rows"], event.extra["run_key"]) == (ROWS, ran.xcom("transform")["run_key"])


def test_lineage_names_the_same_datasets_before_and_after_the_wait(
    nightly: Nightly, events: Callable[[], list[dict[str, Any]]]
) -> None:
    """No connection is looked up for it, and COMPLETE, which a deferral lies before, holds rows and columns."""
    assert nightly.run(dag_id="told").state == "success"
    told = [event for event in events() if event["job"]["name"] == "told.transform"]
    names = {
        (event["eventType"], event["inputs"][0]["name"], event["outputs"][0]["name"])
        for event in told
        if event["eventType"] in {"START", "COMPLETE"}
    }
    source, sink = str(nightly.folder / "corpus.parquet"), str(nightly.folder / "out")
    assert names == {("START", source, sink), ("COMPLETE", source, sink)}
    (complete,) = (event for event in told if event["eventType"] == "COMPLETE")
    assert complete["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == ROWS
    assert "topic" in complete["outputs"][0]["facets"]["columnLineage"]["fields"]


class TaskState:
    """Airflow's task state store, as a task sees it."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        return self.values.get(key)

    def set(self, key: str, value: Any) -> None:
        self.values[key] = json.loads(json.dumps(value))

    def delete(self, key: str) -> None:
        self.values.pop(key, None)


class Ti:
    """A task instance that keeps XComs."""

    def __init__(self) -> None:
        self.xcoms: dict[str, Any] = {}
        self.max_tries = 3

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value


class Attempts:
    """Attempts at one task, each with an operator of its own, as Airflow makes them: one for each time it runs."""

    def __init__(self, nightly: Nightly) -> None:
        self.nightly = nightly
        self.amazon = nightly.amazon
        self.options: dict[str, Any] = {}
        self.state: TaskState | None = TaskState()
        self.ti = Ti()

    def operator(self) -> TransformJobOperator:
        return TransformJobOperator(
            task_id="transform",
            source=str(self.nightly.folder / "corpus.parquet"),
            sink=str(self.nightly.folder / "out"),
            prompts=[{"ask": {"template": TEMPLATE, "into": "topic"}}],
            **{
                "endpoint": self.amazon.transform(),
                "aws_conn_id": "aws_for_tests",
                "store": f"sqlite:///{self.nightly.folder}/store.db",
                **self.options,
            },
        )

    @property
    def context(self) -> Any:
        kept = {} if self.state is None else {"task_state_store": self.state}
        return {"ti": self.ti, "outlet_events": OutletEventAccessors(), **kept}

    def attempt(self) -> TransformJobsTrigger:
        """Run until the task is deferred; give the trigger, made anew from its arguments."""
        with pytest.raises(TaskDeferred) as deferred:
            self.operator().execute(self.context)
        assert deferred.value.method_name == "taken_up"
        return again(deferred.value.trigger)

    def finish(self, trigger: TransformJobsTrigger) -> dict[str, Any]:
        """Let the jobs go, wait for the trigger and run to the end."""
        self.amazon.fake.pace.set(None)
        made: dict[str, Any] = self.operator().taken_up(self.context, fire(trigger))
        return made

    @property
    def job(self) -> Any:
        (job,) = self.amazon.jobs
        return job

    def stop(self) -> None:
        """Stop the youngest job by hand."""
        job = self.amazon.jobs[-1]
        self.amazon.fake.jobs.stop({"TransformJobName": job.name})
        assert job.over.wait(30)


def again(trigger: TransformJobsTrigger) -> TransformJobsTrigger:
    """Make a trigger from what another one serialises, as another triggerer does."""
    path, arguments = trigger.serialize()
    assert path == f"{TransformJobsTrigger.__module__}.{TransformJobsTrigger.__qualname__}"
    return TransformJobsTrigger(**json.loads(json.dumps(arguments)))


def fire(trigger: TransformJobsTrigger) -> Any:
    """Run a trigger to its event; give what is in it, as it comes out of the database."""

    async def run() -> list[Any]:
        fired = [event.payload async for event in trigger.run()]
        await trigger.cleanup()
        return fired

    (payload,) = asyncio.run(run())
    return json.loads(json.dumps(payload))


@pytest.fixture
def attempts(nightly: Nightly) -> Attempts:
    """A task whose job is held."""
    nightly.amazon.fake.pace.set(0)
    return Attempts(nightly)


@pytest.mark.parametrize("kept", [True, False])
def test_an_attempt_after_another_one_takes_its_job_up(attempts: Attempts, *, kept: bool) -> None:
    """With Airflow's task state, and, as in 3.2, without: there is one job, whoever waits for it."""
    if not kept:
        attempts.state = None
    first = attempts.attempt()
    second = attempts.attempt()
    assert first.names == second.names == [attempts.job.name]
    assert attempts.finish(second)["outcomes"] == {"completed": ASKED, "skipped": 3}
    assert attempts.amazon.fake.operations.count("CreateTransformJob") == 1
    assert attempts.job.status == "Completed"
    attempts.nightly.check_complete()


def test_a_task_with_kept_names_asks_the_service_before_it_reads_a_row(attempts: Attempts) -> None:
    """The source may be out of reach meanwhile: what runs is waited for all the same."""
    attempts.attempt()
    source = attempts.nightly.folder / "corpus.parquet"
    source.rename(source.with_suffix(".away"))
    trigger = attempts.attempt()
    source.with_suffix(".away").rename(source)
    attempts.finish(trigger)
    attempts.nightly.check_complete()


def test_the_names_of_another_job_are_not_waited_for(attempts: Attempts) -> None:
    """What the task asks was changed between two attempts: its new rows are sent at once, beside the old job."""
    (old,) = attempts.attempt().names
    attempts.options = {
        "overrides": {"prompts": [{"ask": {"template": "In a word: {text}", "into": "topic"}}]}
    }
    (new,) = attempts.attempt().names
    assert new != old
    assert len(attempts.amazon.jobs) == 2


def test_a_task_that_is_cleared_after_its_success_starts_nothing(attempts: Attempts) -> None:
    """The sink is up to date; nothing of the first time is held against it."""
    attempts.finish(attempts.attempt())
    assert attempts.state is not None
    assert attempts.state.values == {}
    assert attempts.operator().execute(attempts.context)["skipped_run"]
    assert len(attempts.amazon.jobs) == 1


@pytest.mark.parametrize("stop_on_kill", [True, False])
def test_a_job_that_somebody_stops_is_no_success(attempts: Attempts, *, stop_on_kill: bool) -> None:
    """It is not started again unasked, unless a kill stops jobs; a cleared task starts another one."""
    attempts.options = {"stop_on_kill": stop_on_kill}
    trigger = attempts.attempt()
    attempts.stop()
    event = fire(trigger)
    assert event["statuses"] == {attempts.job.name: "Stopped"}
    with pytest.raises(JobStoppedError if stop_on_kill else AirflowFailException, match="was stopped"):
        attempts.operator().taken_up(attempts.context, event)
    trigger = attempts.attempt()
    assert len(attempts.amazon.jobs) == 2
    attempts.finish(trigger)
    attempts.nightly.check_complete()


def test_a_job_that_was_stopped_before_the_attempt_does_not_end_it(attempts: Attempts) -> None:
    """Stopped, or stopping yet: the rows go out in another job."""
    attempts.attempt()
    attempts.stop()
    second = attempts.attempt()
    assert len(attempts.amazon.jobs) == 2
    attempts.amazon.jobs[-1].status = "Stopping"
    third = attempts.attempt()
    assert third.names == second.names
    assert third.forget
    attempts.amazon.jobs[-1].stop.set()
    assert attempts.amazon.jobs[-1].over.wait(30)
    with pytest.raises(TaskDeferred):
        attempts.operator().taken_up(attempts.context, fire(third))
    assert [job.status for job in attempts.amazon.jobs] == ["Stopped", "Stopped", "InProgress"]


@pytest.mark.skipif(
    not hasattr(airflow.sdk, "RetryPolicy"), reason="Airflow before 3.3 has no retry policies"
)
def test_a_job_that_failed_and_not_by_its_lines_is_not_tried_again(attempts: Attempts) -> None:
    """The policy reads the type of the error; the message says what to do."""
    attempts.amazon.fake.fail_next_job("ClientError: Access denied to model data", after_objects=1)
    trigger = attempts.attempt()
    with pytest.raises(EndpointError, match="not by its lines") as caught:
        attempts.finish(trigger)
    policy: Any = attempts.operator().retry_policy
    assert policy.evaluate(caught.value, 1, 3).action is airflow.sdk.RetryAction.FAIL


def test_looks_that_fail_are_tolerated(attempts: Attempts) -> None:
    """Throttled, broken, without a word: by the trigger as by the worker."""
    faults = ["throttled", "throttled_null", "internal", "unavailable"]
    attempts.amazon.fake.control_script = lambda operation, number: (
        faults[number // 2 % 4] if operation == "DescribeTransformJob" and number % 2 else None
    )
    attempts.finish(attempts.attempt())
    attempts.amazon.fake.control_script = None
    assert attempts.job.status == "Completed"
    attempts.nightly.check_complete()


def test_a_trigger_that_may_not_look_any_more_wakes_the_worker(attempts: Attempts) -> None:
    """After the patience; the event says why."""
    attempts.options = {"endpoint": attempts.amazon.transform(patience_seconds=0.1)}
    trigger = attempts.attempt()
    attempts.amazon.fake.control_script = lambda *_: "access_denied"
    event = fire(trigger)
    assert event["ending"] == "unreachable"
    assert "not authorized" in event["told"]


@pytest.mark.parametrize("stop", [True, False])
def test_after_the_deadline_what_was_written_is_kept_and_the_task_is_not_tried_again(
    attempts: Attempts, *, stop: bool
) -> None:
    """The job goes on, and a cleared task takes it up, or it is stopped, if that was asked for."""
    attempts.options = {"deadline_hours": 1, "stop_at_deadline": stop}
    attempts.amazon.fake.pace.set(1)
    trigger = attempts.attempt()
    assert trigger.since is not None
    assert trigger.deadline == trigger.since + 3_600
    trigger.since -= 3_601
    trigger.deadline -= 3_601
    event = fire(trigger)
    assert event["ending"] == "late"
    with pytest.raises(AirflowFailException, match="deadline of 1 hours has passed"):
        attempts.operator().taken_up(attempts.context, event)
    with closing(sqlite3.connect(attempts.nightly.folder / "store.db")) as store:
        assert store.execute("SELECT count(*) FROM completions").fetchone() == (20,)
    if stop:
        assert attempts.job.over.wait(30)
        assert attempts.job.status == "Stopped"
        attempts.attempt()
        assert len(attempts.amazon.jobs) == 2
        return
    attempts.finish(attempts.attempt())
    assert attempts.job.status == "Completed"
    attempts.nightly.check_complete()


@pytest.mark.parametrize("cleared", [True, False])
def test_a_retry_after_the_deadline_gives_up_and_a_cleared_task_has_its_time_anew(
    attempts: Attempts, *, cleared: bool
) -> None:
    """The worker was killed meanwhile, so that nobody has given up yet; clearing is what gives a task more tries."""
    attempts.options = {"deadline_hours": 1}
    attempts.attempt()
    assert attempts.state is not None
    attempts.state.values["corpusmill_transform"]["since"] -= 3_601
    if cleared:
        attempts.ti.max_tries += 4
        assert attempts.attempt().names == [attempts.job.name]
        return
    with pytest.raises(AirflowFailException, match="deadline of 1 hours has passed"):
        attempts.operator().execute(attempts.context)
    assert attempts.state.values == {}


def test_a_retry_names_all_jobs_of_the_output_the_oldest_first(attempts: Attempts) -> None:
    """Also while it waits for some of them only; the link leads to the youngest."""
    attempts.amazon.fake.container.poison = "strikes 5."
    trigger = attempts.attempt()
    attempts.amazon.fake.pace.set(3)
    event = fire(trigger)
    with pytest.raises(TaskDeferred):
        attempts.operator().taken_up(attempts.context, event)
    names = [job.name for job in attempts.amazon.jobs]
    assert len(names) == 2
    attempts.ti.xcoms.clear()
    assert attempts.attempt().names == names[1:]
    assert attempts.ti.xcoms["transform_jobs"] == names
    assert attempts.ti.xcoms["_link_TransformJobLink"].endswith(names[-1])


def test_a_task_that_gives_up_names_every_job_that_it_waited_for(attempts: Attempts) -> None:
    """One that was told to stop before the attempt, too, of which nothing but S3 knows."""
    attempts.state = None
    attempts.attempt()
    attempts.job.status = "Stopping"
    attempts.options = {"deadline_hours": 1e-7}
    with pytest.raises(AirflowFailException, match=attempts.job.name):
        attempts.operator().execute(attempts.context)


def test_nothing_is_started_after_the_deadline(attempts: Attempts) -> None:
    """The rows that are left over are written down, and go out when the task is cleared."""
    attempts.amazon.fake.container.poison = "strikes 5."
    trigger = attempts.attempt()
    attempts.amazon.fake.pace.set(None)
    event = fire(trigger)
    event["since"] -= 25 * 3_600
    with pytest.raises(AirflowFailException, match="deadline of 24 hours"):
        attempts.operator().taken_up(attempts.context, event)
    assert len(attempts.amazon.jobs) == 1
    attempts.amazon.fake.container.poison = None
    attempts.amazon.fake.pace.set(0)
    assert attempts.finish(attempts.attempt())["outcomes"] == {"completed": ASKED, "skipped": 3}
    assert len(attempts.amazon.jobs) == 2


@pytest.mark.parametrize("stop_on_kill", [True, False])
def test_a_user_who_ends_a_deferred_task_stops_its_job_only_if_that_was_asked_for(
    attempts: Attempts, *, stop_on_kill: bool
) -> None:
    """A trigger that is moved to another triggerer, and so cleaned up, stops nothing either way."""
    attempts.options = {"stop_on_kill": stop_on_kill}
    trigger = attempts.attempt()
    asyncio.run(trigger.cleanup())
    moved = again(trigger)
    assert attempts.job.status == "InProgress"
    asyncio.run(moved.on_kill())
    if stop_on_kill:
        assert attempts.job.over.wait(30)
    assert attempts.job.status == ("Stopped" if stop_on_kill else "InProgress")


@pytest.mark.parametrize("stop_on_kill", [True, False])
def test_a_worker_that_is_told_to_end_waits_no_longer(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch, *, stop_on_kill: bool
) -> None:
    """It stops its job only if that was asked for; otherwise the next attempt takes it up."""
    attempts.options = {"stop_on_kill": stop_on_kill, "deferrable": False}
    operator = attempts.operator()
    look = Watcher.look

    def killed(self: Watcher) -> Seen:
        seen = look(self)
        operator.on_kill()
        return seen

    monkeypatch.setattr(Watcher, "look", killed)
    with pytest.raises(InterruptedRunError, match="told to stop" if stop_on_kill else "takes them up"):
        operator.execute(attempts.context)
    if stop_on_kill:
        assert attempts.job.over.wait(30)
    assert attempts.job.status == ("Stopped" if stop_on_kill else "InProgress")


def test_a_worker_that_is_killed_while_it_plans_creates_no_job(attempts: Attempts) -> None:
    """And is not deferred: it ends."""
    operator = attempts.operator()
    take = operator.take_engine

    def killed(engine: Any) -> None:
        take(engine)
        operator.on_kill()

    operator.take_engine = killed  # type: ignore[method-assign] # what runs is heard of here
    with pytest.raises(InterruptedRunError):
        operator.execute(attempts.context)
    assert attempts.amazon.jobs == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deadline_hours": 0}, "deadline_hours"),
        (
            {
                "endpoint": {"openai_compatible": {"base_url": "http://127.0.0.1:1/v1", "model": "m"}},
                "aws_conn_id": None,
            },
            "EnrichOperator",
        ),
        ({"endpoint": OWN_KEYS, "aws_conn_id": None}, "aws_conn_id"),
    ],
)
def test_what_cannot_work_is_refused(attempts: Attempts, options: dict[str, Any], message: str) -> None:
    """Another endpoint, no time at all, keys that the trigger would not have."""
    attempts.options = options
    with pytest.raises(UsageError, match=message):
        attempts.operator().execute(attempts.context)


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("eu-north-1", "eu-north-1.console.aws.amazon.com"),
        ("cn-north-1", "console.amazonaws.cn"),
        ("us-gov-west-1", "console.amazonaws-us-gov.com"),
    ],
)
def test_each_partition_of_aws_has_its_console(region: str, host: str) -> None:
    """The page is that of the region."""
    address = f"https://{host}/sagemaker/home?region={region}#/transform-jobs/corpusmill-1"
    assert console_url(region, "corpusmill-1") == address
