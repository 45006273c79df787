"""Runs that do not wait for their jobs, and looking at jobs until they have ended."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import corpusmill
from corpusmill.endpoints.sagemaker import SageMakerTransform
from corpusmill.errors import AuthenticationError, EndpointError, JobsAtWorkError
from corpusmill.policy import FailurePolicy
from corpusmill.prompts.ask import Ask
from corpusmill.run import enrich
from corpusmill.transform.aws import ControlPlane, PassingError, Patience
from corpusmill.transform.watching import LONGEST_WAIT, Watcher, stop_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from corpusmill.report import RunReport
    from corpusmill.testing.sagemaker import FakeSageMaker

    Run = Callable[..., RunReport]

ROWS = 10


@pytest.fixture
def run(fake: FakeSageMaker, s3_url: str, bucket: str, tmp_path: Path) -> Run:
    """A function that runs a job of ten rows in shards of four, whose transform jobs are held."""
    fake.pace.set(0)
    settings: dict[str, Any] = {
        "model_name": "tildeopen-30b-64k",
        "region": fake.region,
        "model": "tildeopen-30b-64k",
        "instance_type": "ml.g6.48xlarge",
        "s3": f"s3://{bucket}/corpus",
        "endpoint_url": fake.url,
        "s3_endpoint_url": s3_url,
        "shard_rows": 4,
        "poll_seconds": 0.05,
    }

    def go(**changes: Any) -> RunReport:
        return enrich(
            pa.table({"text": [f"row {row}: of the corpus" for row in range(ROWS)]}),
            str(tmp_path / "out"),
            Ask("Name the topic of: {text}", into="topic"),
            endpoint=SageMakerTransform(**settings, **changes),
            store=f"sqlite:///{tmp_path}/store.db",
            failures=FailurePolicy(max_failed=1.0),
        )

    return go


def end(fake: FakeSageMaker) -> None:
    """Let all jobs that there are go to their ends, and hold what comes."""
    fake.pace.set(None)
    for job in list(fake.jobs.jobs.values()):
        assert job.over.wait(30)
    fake.pace.set(0)


def test_a_run_that_does_not_wait_names_its_jobs_and_goes_on_when_it_is_run_again(
    run: Run, fake: FakeSageMaker, s3: Any, bucket: str
) -> None:
    """Each call takes one step; in the end no job is kept open, through however many of them a row has gone."""
    fake.container.poison = "row 5:"
    named: list[str] = []
    report = None
    while report is None:
        try:
            report = run(wait=False)
        except JobsAtWorkError as error:
            named.extend(error.jobs)
            end(fake)
    assert sorted(named) == sorted(fake.jobs.jobs)
    assert len(named) == 4
    assert report.outcomes == {"completed": ROWS - 1, "failed": 1}
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket, Prefix="corpus/open/")


def test_a_run_that_may_create_nothing_writes_its_job_down(
    run: Run, fake: FakeSageMaker, tmp_path: Path
) -> None:
    """Whoever may create it then does."""
    with pytest.raises(JobsAtWorkError) as caught:
        run(wait=False, create=False)
    assert fake.jobs.jobs == {}
    fake.pace.set(None)
    assert run().outcomes == {"completed": ROWS}
    assert tuple(fake.jobs.jobs) == caught.value.jobs
    assert corpusmill.read(tmp_path / "out").count_rows() == ROWS


def test_jobs_are_stopped_one_by_one_and_each_says_what_came_of_it(run: Run, fake: FakeSageMaker) -> None:
    """Throttling is waited for; one that does not exist is not at work; a right that is missing is no success."""
    with pytest.raises(JobsAtWorkError) as caught:
        run(wait=False)
    (name,) = caught.value.jobs
    fake.control_script = lambda operation, number: (
        "throttled" if operation == "StopTransformJob" and number == 1 else None
    )
    plane = ControlPlane(region=fake.region, endpoint_url=fake.url)
    with contextlib.closing(plane):
        told = stop_all(plane, ["corpusmill-none", name])
        assert told == {"corpusmill-none": "is not at work", name: "is told to stop"}
        assert fake.jobs.jobs[name].over.wait(30)
        assert stop_all(plane, [name]) == {name: "is not at work"}
        fake.control_script = lambda *_: "access_denied"
        (refused,) = stop_all(plane, [name]).values()
    assert refused.startswith("could not be stopped; stop it by hand")
    assert "not authorized" in refused


def test_a_job_that_could_not_be_stopped_is_not_taken_for_one_that_has_ended(
    run: Run, fake: FakeSageMaker
) -> None:
    """Whatever the service says against stopping it: it goes on, and costs."""
    with pytest.raises(JobsAtWorkError) as caught:
        run(wait=False)
    (name,) = caught.value.jobs
    fake.control_script = lambda operation, _: "no_endpoint" if operation == "StopTransformJob" else None
    with contextlib.closing(ControlPlane(region=fake.region, endpoint_url=fake.url)) as plane:
        (refused,) = stop_all(plane, [name]).values()
    assert refused.startswith("could not be stopped; stop it by hand")
    assert fake.jobs.jobs[name].status == "InProgress"


class Plane:
    """A control plane that says what it is told to."""

    def __init__(self, **statuses: Any) -> None:
        self.statuses = statuses
        self.asked: list[str] = []

    def describe(self, name: str) -> dict[str, Any] | None:
        self.asked.append(name)
        status = self.statuses[name]
        if isinstance(status, Exception):
            raise status
        return None if status is None else {"TransformJobStatus": status}


def watcher(plane: Any, clock: list[float], **options: Any) -> Watcher:
    """Watch all jobs of a control plane, by a clock that a test sets."""
    settings = {"poll_seconds": 30.0, "patience_seconds": 1_800.0, **options}
    return Watcher(plane, plane.statuses, wall=lambda: clock[0], **settings)


def test_all_jobs_are_waited_for_and_one_that_has_ended_is_asked_about_no_more() -> None:
    """Completed, Failed and Stopped are ends; what the service does not know is nothing to wait for."""
    plane = Plane(a="Completed", b="InProgress", c=None)
    watching = watcher(plane, [0.0])
    seen = watching.look()
    assert (seen.ending, seen.wait, seen.trouble) == (None, 30.0, "")
    assert seen.statuses == {"a": "Completed", "b": "InProgress", "c": ""}
    for status in ("Stopping", "Stopped"):
        plane.statuses["b"] = status
        seen = watching.look()
    assert seen.ending == "ended"
    assert plane.asked.count("a") == 1
    assert str(seen) == "a: Completed, b: Stopped, c: not known to the service"


@pytest.mark.parametrize("failures", [1, 2])
def test_patience_begins_with_the_first_failure(failures: int) -> None:
    """A call that took its time, and failed in the end, is called again."""
    now = 0.0
    calls: list[float] = []

    def call() -> str:
        nonlocal now
        calls.append(now)
        now += 100.0 if len(calls) == 1 else 50.0
        if len(calls) <= failures:
            raise PassingError("the connection was reset")
        return "done"

    def sleep(seconds: float) -> bool:
        nonlocal now
        now += seconds
        return True

    assert Patience(60.0, sleep=sleep, clock=lambda: now).call(call) == "done"
    assert len(calls) == failures + 1


@pytest.mark.parametrize("error", [PassingError("throttled"), AuthenticationError("expired")])
def test_looks_that_fail_are_further_apart_until_the_patience_ends(error: Exception) -> None:
    """A failed look says nothing of a job, and one that works begins anew."""
    clock = [0.0]
    plane = Plane(a=error)
    watching = watcher(plane, clock)
    waits = [watching.look().wait for _ in range(6)]
    assert waits == [60.0, 120.0, 240.0, LONGEST_WAIT, LONGEST_WAIT, LONGEST_WAIT]
    clock[0] = 1_799.0
    assert watching.look().ending is None
    plane.statuses["a"] = "InProgress"
    assert watching.look().wait == 30.0
    plane.statuses["a"] = error
    clock[0] = 3_000.0
    assert watching.look().ending is None
    clock[0] = 4_800.0
    seen = watching.look()
    assert (seen.ending, seen.trouble) == ("unreachable", str(error))


def test_what_is_said_against_one_job_hides_no_other() -> None:
    """All are looked at, and there is no end as long as one could not be read."""
    error = EndpointError("this job is not to be described")
    plane = Plane(a=error, b="Completed", c="InProgress")
    watching = watcher(plane, [0.0])
    seen = watching.look()
    assert (seen.statuses, seen.troubles) == ({"b": "Completed", "c": "InProgress"}, {"a": str(error)})
    assert (seen.ending, seen.wait) == (None, 60.0)
    plane.statuses.update(a="Failed", c="Completed")
    assert watching.look().ending == "ended"


def test_a_look_that_breaks_off_goes_on_behind_the_job_that_broke_it() -> None:
    """A service that does not answer is asked once a look, and the same job never stands before the others."""
    plane = Plane(a=PassingError("500"), b="InProgress", c="InProgress")
    watching = watcher(plane, [0.0])
    seen = watching.look()
    assert (seen.statuses, seen.trouble, plane.asked) == ({}, "500", ["a"])
    plane.asked.clear()
    seen = watching.look()
    assert (plane.asked, seen.trouble) == (["b", "c", "a"], "500")
    assert seen.statuses == {"b": "InProgress", "c": "InProgress"}


def test_a_deadline_is_met_to_the_second_and_does_not_hide_an_end() -> None:
    """The wait before it is cut short; jobs that have ended by then have ended."""
    clock = [90.0]
    plane = Plane(a="InProgress")
    watching = watcher(plane, clock, deadline=100.0)
    assert watching.look().wait == 10.0
    clock[0] = 100.0
    seen = watching.look()
    assert (seen.ending, seen.wait) == ("late", 0.0)
    plane.statuses["a"] = "Failed"
    assert watching.look().ending == "ended"
