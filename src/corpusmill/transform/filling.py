"""Transform jobs fill the store: plan, write down, create, watch, take in, and again until nothing is missing.

Each step finds what the one before it has left, whoever did it: a job that is written down is created, one that runs
is watched, one that has ended is taken in. So a run that was killed anywhere is taken up by running it again, on any
machine, and the rows of a job are never in a second one.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.errors import EndpointError, InterruptedRunError
from corpusmill.killpoints import reach
from corpusmill.transform.aws import Aws, Patience
from corpusmill.transform.collecting import Collected, Collector
from corpusmill.transform.planning import Plan, Rows, plan_rows
from corpusmill.transform.records import JobPlan, Records
from corpusmill.transform.requests import job_request
from corpusmill.transform.settling import TERMINAL, settlement, what_ends

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpusmill.endpoints.sagemaker import SageMakerTransform
    from corpusmill.store.protocol import Membership
    from corpusmill.transform.planning import Refusal
    from corpusmill.transform.records import Settled


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformProgress:
    """How far the filling is: `state_seconds` is how long the job has been in its state, `shards_done` counts outputs.

    `phase` is `planning`, `uploading`, or `transform`; outside of a job `name` and `state` are "".
    """

    phase: str
    name: str = ""
    state: str = ""
    state_seconds: float = 0.0
    shards_done: int = 0
    shards: int = 0
    rows_done: int = 0
    rows: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class Filled:
    """What filling came to: the jobs that were used, rows that no job can answer, and what was taken in."""

    jobs: list[str] = field(default_factory=list)
    refused: dict[bytes, Refusal] = field(default_factory=dict)
    answers: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Filler:
    """Fills a store by transform jobs. `stop` may be called from any thread, all else from one."""

    def __init__(
        self,
        endpoint: SageMakerTransform,
        rows: Rows | None,
        member: Membership,
        *,
        collector: Callable[[Aws], Collector],
        progress: Callable[[TransformProgress], None] | None = None,
        aws: Aws | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """Make the clients. `wait` sleeps, and gives False when it is time to stop."""
        self._stopped = threading.Event()
        self._wait = wait or (lambda seconds: not self._stopped.wait(seconds))
        self._endpoint = endpoint
        self._rows = rows
        self._member = member
        self.aws = aws or Aws(endpoint)
        self._call = Patience(endpoint.patience_seconds, sleep=self._wait, clock=clock).call
        self.records = Records(self.aws)
        self._collector = collector(self.aws)
        self._progress = progress or (lambda _: None)
        self._clock = clock
        self._begun = clock()
        self._collected: set[str] = set()
        self.filled = Filled()

    def stop(self, *, grace: float | None) -> None:  # noqa: ARG002 - nothing is in the air here
        """End at the next moment at which nothing is half done; the job that runs goes on."""
        self._stopped.set()

    def close(self) -> None:
        """Close the clients."""
        self.aws.close()

    def fill(self) -> Filled:
        """Work until every row is answered, or known not to be answerable by a job."""
        while True:
            jobs = self.prepare()
            if not jobs:
                return self.filled
            for name in jobs:
                self._see_to_its_end(name)

    def advance(self) -> list[str]:
        """Do all that can be done without waiting, and give the jobs that are at work.

        When there are none, every row is answered, or known not to be answerable by a job.
        """
        while True:
            jobs = self.prepare()
            at_work = [name for name in jobs if not self._see_to_its_end(name, wait=False)]
            if at_work or not jobs:
                return at_work

    def prepare(self) -> list[str]:
        """Write a job down for the rows that are in none, and give all jobs that hold rows of this run."""
        self._check_stopped()
        self._progress(TransformProgress(phase="planning", seconds=self._clock() - self._begun))
        with tempfile.TemporaryDirectory(prefix="corpusmill-transform-") as folder:
            plan = self._call(self._plan, Path(folder))
            self.filled.refused = plan.refused
            # The new job first: it is created before anybody waits for the others.
            jobs = [*([self._write_down(plan)] if plan.new else ()), *plan.awaited]
        for name in (*plan.touched, *jobs):
            if name not in self.filled.jobs:
                self.filled.jobs.append(name)
        return jobs

    def _plan(self, folder: Path) -> Plan:
        assert self._rows is not None
        for path in folder.iterdir():
            path.unlink()
        return plan_rows(self._rows, self._endpoint, self.records, collected=self._collected, folder=folder)

    def _write_down(self, plan: Plan) -> str:
        """Give a job its name, upload its shards, and write it down; it may then be created by anybody."""
        endpoint = self._endpoint
        jobs = self._call(self.records.open_jobs, endpoint.identity)
        name, taken = self._name(plan)
        if taken:
            return name
        last = jobs[-1] if jobs else None
        tries = last.plan.tries + 1 if last and last.settled and last.settled.ended == "passing" else 0
        for done, spooled in enumerate(plan.spool.shards, start=1):
            self._check_stopped()
            self._call(self.aws.upload, f"jobs/{name}/input/{spooled.shard.name}.jsonl", str(spooled.lines))
            self._progress(
                TransformProgress(
                    phase="uploading",
                    name=name,
                    shards_done=done,
                    shards=len(plan.spool.shards),
                    rows=plan.rows,
                    seconds=self._clock() - self._begun,
                )
            )
        self._call(self.aws.upload, f"jobs/{name}/keys", str(plan.spool.all_keys()))
        reach("transform.uploaded")
        job = JobPlan(
            name=name,
            identity=endpoint.identity,
            turn=1 + max((job.plan.turn for job in jobs), default=0),
            tries=tries,
            shards=[spooled.shard for spooled in plan.spool.shards],
            request=job_request(
                endpoint,
                name,
                source=self.aws.url(f"jobs/{name}/input/"),
                target=self.aws.url(f"jobs/{name}/output/"),
            ),
        )
        self._call(self.records.write_plan, job)
        reach("transform.written")
        return name

    def _name(self, plan: Plan) -> tuple[str, bool]:
        """Give the name of a job, and whether another run has written the very same one down just before."""
        base = f"corpusmill-{plan.spool.digest(self.aws.url(''))}"
        for generation in itertools.count():
            name = f"{base}-{generation}"
            written = self._call(self.records.plan, name)
            if written is None or self._call(self.records.settled, name) is None:
                return name, written is not None
        raise AssertionError("numbers do not end")

    def _see_to_its_end(self, name: str, *, wait: bool = True) -> bool:
        """Watch a job to its end, settle it, and say what follows; without `wait`, tell whether it has ended."""
        plan = self._call(self.records.plan, name)
        if plan is None:
            return True  # somebody has removed it meanwhile
        if self._call(self.records.settled, name) is not None:
            self.look(plan)  # its answers are missing here, and nowhere else
            self._collected.add(name)
            return True
        settled = self.watch(plan, wait=wait)
        if settled is None:
            return False
        self._collected.add(name)
        ending = what_ends(plan, settled)
        if ending is not None:
            self._call(self.records.close, name)
            raise ending
        return True

    def watch(self, plan: JobPlan, *, wait: bool = True) -> Settled | None:
        """Create a job unless it is there, take its outputs in as they come, and settle it when it has ended.

        Without `wait` it is looked at once, and None is given for one that goes on.
        """
        if not self._endpoint.create and self._call(self.aws.describe, plan.name) is None:
            return None
        sofar = Collected()
        state, since = "", self._clock()
        while True:
            described = self._call(self.ensure, plan)
            status = described["TransformJobStatus"]
            if status != state:
                state, since = status, self._clock()
            self._collect(plan, sofar, described)
            self._show(plan, sofar, state, since)
            if status in TERMINAL:
                reach("transform.ended")
                return self._settle(plan, described, sofar)
            if not wait:
                return None
            if not self._wait(self._endpoint.poll_seconds):
                self._leave(plan.name)

    def look(self, plan: JobPlan) -> tuple[str, Collected]:
        """Look at a job once, take its outputs in, settle it if it has ended; "" is the status of none."""
        described = self._call(self.aws.describe, plan.name)
        sofar = Collected()
        if described is None:
            return "", sofar
        self._collect(plan, sofar, described)
        status = str(described["TransformJobStatus"])
        if status in TERMINAL and self._call(self.records.settled, plan.name) is None:
            self._settle(plan, described, sofar)
        return status, sofar

    def _collect(self, plan: JobPlan, sofar: Collected, described: dict[str, Any]) -> None:
        before = sofar.answers, sofar.prompt_tokens, sofar.completion_tokens
        created = described["CreationTime"].timestamp()
        self._call(self._collector.collect, plan, sofar, created=created)
        self.filled.answers += sofar.answers - before[0]
        self.filled.prompt_tokens += sofar.prompt_tokens - before[1]
        self.filled.completion_tokens += sofar.completion_tokens - before[2]

    def create(self, plan: JobPlan) -> None:
        """Create a job unless it is there."""
        self._call(self.ensure, plan)

    def reason(self, plan: JobPlan) -> str:
        """Say why lines of a job have no answer, "" where all have or nobody knows yet."""
        settled = self._call(self.records.settled, plan.name)
        return settled.reason if settled is not None and settled.missing else ""

    def ensure(self, plan: JobPlan) -> dict[str, Any]:
        """Describe a job, and create it first if the service says that there is none of its name."""
        described = self.aws.describe(plan.name)
        if described is None:
            self._check_stopped()
            reach("transform.creating")
            self.aws.create(plan.request)
            reach("transform.created")
            described = self.aws.describe(plan.name)
            if described is None:
                raise EndpointError(f"the transform job {plan.name} was created and cannot be found")
        return described

    def _settle(self, plan: JobPlan, described: dict[str, Any], sofar: Collected) -> Settled:
        settled = settlement(plan, described, sofar)
        self._call(self.records.settle, plan.name, settled)
        reach("transform.settled")
        return settled

    def _show(self, plan: JobPlan, sofar: Collected, state: str, since: float) -> None:
        now = self._clock()
        self._progress(
            TransformProgress(
                phase="transform",
                name=plan.name,
                state=state,
                state_seconds=now - since,
                shards_done=len(sofar.missing),
                shards=len(plan.shards),
                rows_done=sofar.answers,
                rows=plan.rows,
                tokens=self.filled.prompt_tokens + self.filled.completion_tokens,
                seconds=now - self._begun,
            )
        )

    def _leave(self, name: str) -> None:
        if self._endpoint.stop_on_interrupt:
            if self._call(self.aws.stop, name):
                raise InterruptedRunError(
                    f"interrupted: the transform job {name} is told to stop; it stores nothing more"
                )
            raise InterruptedRunError(
                f"interrupted: the transform job {name} is not at work any more. The same command takes in what it has "
                "stored"
            )
        raise InterruptedRunError(
            f"interrupted: the transform job {name} goes on. The same command takes it up; "
            "`corpusmill transform cancel` stops it"
        )

    def _check_stopped(self) -> None:
        if self._stopped.is_set():
            raise InterruptedRunError(
                "interrupted before a transform job was started; run the same command to go on"
            )

    def finish(self) -> None:
        """Say that the output is committed: the jobs that it took are not needed any more."""
        for name in self.filled.jobs:
            self._call(self.records.close, name)
