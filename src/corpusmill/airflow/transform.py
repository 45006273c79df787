"""`TransformJobOperator`: a table enriched by SageMaker transform jobs, waited for without a worker.

What rows are in which job is written down in S3 before a job is created, so that a task that is tried again, cleared
or moved never starts a second job for the same rows. What Airflow's task state keeps beside it, the names of the jobs
and since when they are waited for, spares a task that is taken up again the reading of its source.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowFailException

from corpusmill.airflow.link import ReportLink
from corpusmill.airflow.operator import EnrichOperator
from corpusmill.airflow.transform_link import TransformJobLink, console_url
from corpusmill.errors import (
    CorpusmillError,
    InterruptedRunError,
    JobsAtWorkError,
    JobStoppedError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import BaseOperatorLink, Context

    from corpusmill.airflow.jobs import Assembled
    from corpusmill.airflow.transform_trigger import TransformJobsTrigger
    from corpusmill.endpoints.sagemaker import SageMakerTransform
    from corpusmill.transform.aws import ControlPlane
    from corpusmill.transform.filling import Filler
    from corpusmill.transform.watching import Watcher

STATE_KEY = "corpusmill_transform"
"""The key in Airflow's task state store."""

JOBS_KEY = "transform_jobs"
"""The XCom that names the jobs which hold rows of the output, the oldest first."""

_NAP = 1.0
"""Seconds after which a worker that waits looks whether its task was killed."""

_LAST_PATIENCE = 60.0
"""Seconds for which AWS may fail to answer when the task gives up anyway."""


class TransformJobOperator(EnrichOperator):
    """Enrich a table by SageMaker transform jobs.

    The arguments are those of `EnrichOperator`; the endpoint is a `sagemaker_transform`. Rows left over by a job go out
    in the next one, and the task waits again; then the output is written as by any other run, the rows that no job can
    answer being asked of `real_time`, where the endpoint has it.

    Args:
        deferrable: wait in the triggerer. Off: the worker waits.
        deadline_hours: how long jobs are waited for, from the first look on, over retries and deferrals; then the task
            fails and is not retried, the jobs go on, and a cleared task takes them up. None: for as long as they take.
        stop_on_kill: stop the jobs when a user ends or clears the task, or its process is told to end. The service
            stores nothing of a stopped job.
        stop_at_deadline: stop the jobs when the deadline has passed, after what they have written was taken in.
    """

    operator_extra_links: Sequence[BaseOperatorLink] = (ReportLink(), TransformJobLink())
    ui_color: str = "#f6dfb6"

    def __init__(
        self,
        *,
        deferrable: bool = True,
        deadline_hours: float | None = 24.0,
        stop_on_kill: bool = False,
        stop_at_deadline: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if deadline_hours is not None and not deadline_hours > 0:
            raise UsageError(f"deadline_hours is {deadline_hours}; it must be more than 0, or None")
        self.deferrable = deferrable
        self.deadline_hours = deadline_hours
        self.stop_on_kill = stop_on_kill
        self.stop_at_deadline = stop_at_deadline
        self.console_url = ""
        self._jobs: tuple[str, ...] = ()
        self._since: float | None = None
        self._killed = False
        self._filler: Filler | None = None

    def execute(self, context: Context) -> Any:
        """Take up jobs that an earlier attempt has left, or plan and send; wait; write the output."""
        self._transform()
        self._recall(context)
        # A job that was stopped before this attempt is not what ends it.
        stopping = self._forget_stopped()
        self._jobs = tuple(dict.fromkeys((*self._jobs, *stopping)))
        if self._jobs:
            self.log.info("there are jobs from before: %s", ", ".join(self._jobs))
            self._wait(context, forget=bool(stopping))
        return self._go_on(context)

    def taken_up(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:
        """Go on when the trigger has fired: take in what the jobs have written, and send what is left over."""
        event = event or {}
        self.log.info("the wait is over (%s): %s", event.get("ending"), event.get("told"))
        self._recall(context)
        self._since = event.get("since", self._since)
        if event.get("forget"):
            self._forget_stopped()
        return self._go_on(context)

    def on_kill(self) -> None:
        """Wait no longer and start nothing new; stop the jobs, if that was asked for."""
        self._killed = True
        names = tuple(dict.fromkeys((*self._jobs, *self._used())))
        super().on_kill()
        if self.stop_on_kill and names:
            self._stop(names)

    def take_engine(self, engine: Any) -> None:
        """Hear what runs: first what fills the store, which knows the jobs, then the engine."""
        super().take_engine(engine)
        if hasattr(engine, "filled"):
            self._filler = engine

    def _used(self) -> tuple[str, ...]:
        return tuple(self._filler.filled.jobs) if self._filler is not None else ()

    def assembled(self) -> Assembled:
        """Make the job; its run is not to wait for transform jobs, and starts none after the deadline."""
        from corpusmill.endpoints.sagemaker import SageMakerTransform

        made = super().assembled()
        endpoint = made.job.endpoint
        if not isinstance(endpoint, SageMakerTransform):
            raise UsageError(
                f"the endpoint is a {type(endpoint).__name__}; TransformJobOperator wants a sagemaker_transform, and "
                "EnrichOperator asks any other"
            )
        if self.deferrable and endpoint.credentials is not None and self.aws_conn_id is None:
            raise UsageError(
                "the endpoint holds credentials, which a trigger is not given; put them into a connection of type aws "
                "and name that as aws_conn_id, or set deferrable to False"
            )
        endpoint = replace(endpoint, wait=False, create=not self._is_late())
        self._assembled = replace(made, job=replace(made.job, endpoint=endpoint))
        return self._assembled

    def _transform(self) -> SageMakerTransform:
        assembled = self._assembled or self.assembled()
        endpoint: Any = assembled.job.endpoint  # `assembled` has seen to it
        transform: SageMakerTransform = endpoint
        return transform

    def _go_on(self, context: Context) -> dict[str, Any]:
        """Do all that can be done without waiting, wait, and again; give the XCom of the run that wrote the output."""
        while True:
            try:
                made = self.enriched(context)
            except JobsAtWorkError as error:
                self._jobs = error.jobs
            except JobStoppedError as error:
                self._forget(context)
                if self.stop_on_kill:
                    raise
                # Somebody else has stopped it, and would not want it started again unasked.
                raise AirflowFailException(str(error)) from error
            else:
                self._show(context, self._used())
                self._forget(context)
                return made
            self._check_killed()
            self._keep(context)
            if self._is_late():
                self._give_up(context)
            self._wait(context)

    def _wait(self, context: Context, *, forget: bool = False) -> None:
        """Wait until the jobs have ended: by deferring, which does not return, or here.

        With `forget` one that is seen to stop was stopped before this attempt.
        """
        transform = self._transform()
        with contextlib.closing(self._plane(transform)) as plane:
            watcher = self._watcher(plane, transform)
            seen = watcher.look()
            self.log.info("%s", seen)
            if seen.ending is None and self.deferrable:
                self._check_killed()
                self.defer(trigger=self._trigger(transform, forget=forget), method_name="taken_up")
            told = seen.statuses
            while seen.ending is None:
                self._nap(seen.wait)
                seen = watcher.look()
                if seen.statuses != told:
                    told = seen.statuses
                    self.log.info("%s", seen)
                if seen.trouble:
                    self.log.warning("%s; looking again in %.0f s", seen.trouble, seen.wait)
        if seen.ending == "late":
            self._give_up(context)
        if forget:
            self._forget_stopped()

    def _forget_stopped(self) -> list[str]:
        from corpusmill.transform.steps import forget_stopped

        return forget_stopped(self._transform())

    def _nap(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._killed and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _NAP))
        self._check_killed()

    def _check_killed(self) -> None:
        if self._killed:
            end = (
                "told to stop" if self.stop_on_kill else "at work; the task takes them up when it runs again"
            )
            raise InterruptedRunError(f"the task was killed; its transform jobs are {end}")

    def _give_up(self, context: Context) -> NoReturn:
        """Fail for good: keep what was written, and stop the jobs if that was asked for."""
        from corpusmill.transform.steps import collect

        assert self._assembled is not None
        # What AWS does not give within a minute can be had later.
        transform = replace(self._transform(), patience_seconds=_LAST_PATIENCE)
        try:
            found = collect(self._assembled.job, transform)
            self.log.info("%s answers were taken in", f"{sum(state.answers for state in found):,}")
        except CorpusmillError as error:
            self.log.warning("what the jobs have written could not be taken in now: %s", error)
        goes_on = "they go on: clear the task to take them up"
        if self.stop_at_deadline:
            self._stop(self._jobs)
            goes_on = "they are told to stop"
        self._forget(context)
        raise AirflowFailException(
            f"the deadline of {self.deadline_hours:g} hours has passed, and transform jobs have not ended "
            f"({', '.join(self._jobs)}); {goes_on}"
        )

    def _stop(self, names: Sequence[str]) -> None:
        from corpusmill.transform.watching import stop_all

        with contextlib.closing(self._plane(self._transform())) as plane:
            for name, done in stop_all(plane, names).items():
                self.log.info("%s %s", name, done)

    # where jobs are looked at

    @staticmethod
    def _plane(transform: SageMakerTransform) -> ControlPlane:
        from corpusmill.transform.aws import ControlPlane

        return ControlPlane(
            region=transform.region,
            endpoint_url=transform.endpoint_url,
            profile=transform.profile,
            credentials=transform.credentials,
        )

    def _watcher(self, plane: ControlPlane, transform: SageMakerTransform) -> Watcher:
        from corpusmill.transform.watching import Watcher

        return Watcher(
            plane,
            self._jobs,
            poll_seconds=transform.poll_seconds,
            patience_seconds=transform.patience_seconds,
            deadline=self._deadline(),
        )

    def _trigger(self, transform: SageMakerTransform, *, forget: bool) -> TransformJobsTrigger:
        from corpusmill.airflow.transform_trigger import TransformJobsTrigger

        return TransformJobsTrigger(
            names=list(self._jobs),
            region=transform.region,
            endpoint_url=transform.endpoint_url,
            profile=transform.profile,
            aws_conn_id=self.aws_conn_id,
            poll_seconds=transform.poll_seconds,
            patience_seconds=transform.patience_seconds,
            since=self._since,
            deadline=self._deadline(),
            stop_on_kill=self.stop_on_kill,
            forget=forget,
        )

    # since when, and for which jobs, the task waits

    def _deadline(self) -> float | None:
        if self.deadline_hours is None or self._since is None:
            return None
        return self._since + self.deadline_hours * 3_600

    def _is_late(self) -> bool:
        deadline = self._deadline()
        return deadline is not None and time.time() >= deadline

    def _recall(self, context: Context) -> None:
        """Read what an earlier attempt of this very job has kept; before Airflow 3.3 there is nothing to read."""
        self._since = time.time()
        store = context.get("task_state_store")
        kept: Any = None if store is None else store.get(STATE_KEY)
        if isinstance(kept, dict) and kept.get("of") == self._digest():
            self._jobs = tuple(kept["jobs"])
            self._show(context, tuple(kept["used"]))
            # Clearing a task gives it more tries, and so more time; a retry has what the attempts before it have left.
            if kept["max_tries"] == context["ti"].max_tries:
                self._since = kept["since"]

    def _keep(self, context: Context) -> None:
        self._show(context, self._used())
        store = context.get("task_state_store")
        if store is not None:
            kept: Any = {
                "jobs": list(self._jobs),
                "used": list(self._used()),
                "since": self._since,
                "max_tries": context["ti"].max_tries,
                "of": self._digest(),
            }
            store.set(STATE_KEY, kept)

    @staticmethod
    def _forget(context: Context) -> None:
        """The next attempt waits anew; the jobs that it may need are found in S3."""
        store = context.get("task_state_store")
        if store is not None:
            store.delete(STATE_KEY)

    def _show(self, context: Context, jobs: tuple[str, ...]) -> None:
        """Make the link, which is there while the task waits, and name the jobs in an XCom."""
        if jobs:
            self.console_url = console_url(self._transform().region, jobs[-1])
            context["ti"].xcom_push(TransformJobLink().xcom_key, self.console_url)
            context["ti"].xcom_push(JOBS_KEY, list(jobs))

    def _digest(self) -> str:
        """Tell this job from another one that the task may have been when it waited last."""
        self._transform()
        assert self._assembled is not None
        written = json.dumps(self._assembled.job.written, sort_keys=True, default=str)
        return hashlib.sha256(written.encode()).hexdigest()
