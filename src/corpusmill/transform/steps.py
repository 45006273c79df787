"""The steps of a transform job one by one, for the command line and for orchestrators.

Each is a whole of its own and may run in another process or on another machine than the one before it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from corpusmill.plan import plan_run, throwaway_key
from corpusmill.store import open_store
from corpusmill.transform.aws import Aws, Patience
from corpusmill.transform.collecting import Collected, Collector
from corpusmill.transform.filling import Filler
from corpusmill.transform.records import Records
from corpusmill.transform.running import Filling, open_filler
from corpusmill.transform.settling import TERMINAL, settlement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from corpusmill.endpoints.sagemaker import SageMakerTransform
    from corpusmill.prompts.prompt import Prompt
    from corpusmill.tables import SinkSpec, SourceSpec
    from corpusmill.transform.records import JobPlan


class Steps(Protocol):
    """What a step needs of a job: its rows, its prompts, and its store."""

    @property
    def source(self) -> SourceSpec: ...  # noqa: D102
    @property
    def sink(self) -> SinkSpec: ...  # noqa: D102
    @property
    def prompts(self) -> Sequence[Prompt]: ...  # noqa: D102
    @property
    def store(self) -> str: ...  # noqa: D102
    @property
    def telemetry(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """How a transform job stands: `status` is the service's word, "" before it is created; `answers` were taken in."""

    name: str
    status: str
    reason: str
    shards: int
    shards_done: int
    rows: int
    answers: int = 0

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.status in TERMINAL

    @property
    def stopped(self) -> bool:
        """Whether it was told to stop: unless it completes before, nothing comes of it, and no job has its rows."""
        return self.status in {"Stopping", "Stopped"}

    def told(self) -> str:
        """Say it in one line."""
        answers = f", {self.answers:,} answers taken in" if self.answers else ""
        reason = f" ({self.reason})" if self.reason else ""
        status = self.status or "written down, not created"
        shards = f"{self.shards_done:,} of {self.shards:,} shards done"
        return f"{self.name}: {status}{reason}, {shards}, {self.rows:,} rows{answers}"


def submit(job: Steps, endpoint: SageMakerTransform, *, overwrite: bool = False) -> list[JobState]:
    """Send the rows that have no answer and are in no job; give the jobs that hold rows of this one, created.

    What somebody has stopped before is sent anew: to submit is to ask for that. The rows of a job that is still
    stopping are not, since it may yet complete: it is given as `stopped`, and a later submission sends them.

    What the run that writes them would refuse is refused before anything is paid for: `overwrite` is as in `enrich`.
    Nothing is sent where the sink holds the output already.
    """
    source, sink, plan = plan_run(
        job.source, job.sink, job.prompts, endpoint, telemetry=job.telemetry, store=job.store
    )
    if sink.decide(plan.run_key, plan.job_key, overwrite=overwrite) == "skip":
        return []
    forget_stopped(endpoint)
    call = Patience(endpoint.patience_seconds).call
    with contextlib.closing(open_store(job.store)) as store:
        filling = Filling(chunks=source.chunks, prompts=job.prompts, store=store, run_key=plan.run_key)
        with open_filler(endpoint, filling) as filler:
            found = []
            for name in filler.prepare():
                written = call(filler.records.plan, name)
                if written is None:
                    continue
                if call(filler.records.settled, name) is None:
                    filler.create(written)
                found.append(call(_state, filler.aws, filler.records, written))
    return found


def states(job: Steps, endpoint: SageMakerTransform) -> list[JobState]:  # noqa: ARG001 - steps are called alike
    """Say how the open jobs of this model under the prefix stand."""
    call = Patience(endpoint.patience_seconds).call
    with _records(endpoint) as (aws, records):
        return [
            call(_state, aws, records, found.plan) for found in call(records.open_jobs, endpoint.identity)
        ]


def cancel(job: Steps, endpoint: SageMakerTransform) -> list[JobState]:  # noqa: ARG001 - steps are called alike
    """Stop the open jobs that are not settled, and give how they stand; what was never created is taken back."""
    call = Patience(endpoint.patience_seconds).call
    with _records(endpoint) as (aws, records):
        found = []
        for opened in call(records.open_jobs, endpoint.identity):
            if opened.settled is not None:
                continue
            if call(aws.describe, opened.plan.name) is None:
                call(records.close, opened.plan.name)
            else:
                call(aws.stop, opened.plan.name)
            found.append(call(_state, aws, records, opened.plan))
        return found


def forget_stopped(endpoint: SageMakerTransform) -> list[str]:
    """Close the open jobs that were stopped, so that their rows are sent anew; give those that are stopping yet.

    A run that sees a job stop ends by it. One that begins knows that this was before its time.
    """
    call = Patience(endpoint.patience_seconds).call
    with _records(endpoint) as (aws, records):
        stopping = []
        for opened in call(records.open_jobs, endpoint.identity):
            if opened.settled is not None:
                continue
            plan = opened.plan
            described = call(aws.describe, plan.name) or {}
            status = described.get("TransformJobStatus")
            if status == "Stopped":
                # A job that is settled leaves its name behind, so that the same rows get another one.
                call(records.settle, plan.name, settlement(plan, described, Collected()))
                call(records.close, plan.name)
            elif status == "Stopping":
                stopping.append(plan.name)
        return stopping


def collect(job: Steps, endpoint: SageMakerTransform) -> list[JobState]:
    """Take what the open jobs have written into the store; give how they stand."""
    call = Patience(endpoint.patience_seconds).call
    with contextlib.closing(open_store(job.store)) as store:
        member = store.join(throwaway_key(), label=endpoint.identity)
        filler = Filler(endpoint, None, member, collector=lambda aws: Collector(endpoint, aws, store, member))
        with contextlib.closing(filler):
            found = []
            for opened in call(filler.records.open_jobs, endpoint.identity):
                status, sofar = filler.look(opened.plan)
                found.append(_told(opened.plan, status, filler.reason(opened.plan), sofar))
                if status == "Stopped":
                    call(filler.records.close, opened.plan.name)
    return found


@contextlib.contextmanager
def _records(endpoint: SageMakerTransform) -> Iterator[tuple[Aws, Records]]:
    with contextlib.closing(Aws(endpoint)) as aws:
        yield aws, Records(aws)


def _state(aws: Aws, records: Records, plan: JobPlan) -> JobState:
    described = aws.describe(plan.name) or {}
    settled = records.settled(plan.name)
    wanted = {f"{shard.name}.jsonl.out" for shard in plan.shards}
    written = {name.rpartition("/")[2] for name, _ in aws.list(f"jobs/{plan.name}/output/")}
    reason = settled.reason if settled is not None and settled.missing else described.get("FailureReason")
    return JobState(
        name=plan.name,
        status=str(described.get("TransformJobStatus") or ""),
        reason=str(reason or ""),
        shards=len(plan.shards),
        shards_done=len(wanted & written),
        rows=plan.rows,
    )


def _told(plan: JobPlan, status: str, reason: str, sofar: Collected) -> JobState:
    return JobState(
        name=plan.name,
        status=status,
        reason=reason,
        shards=len(plan.shards),
        shards_done=len(sofar.missing),
        rows=plan.rows,
        answers=sofar.answers,
    )
