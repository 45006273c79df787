"""What the steps of `transform_assets` do: submit and tell of it, or collect and write, or tell what is awaited still.

A job that follows another one is told of as a materialisation of the asset that submits, so that the sensor finds it
where it finds the first one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from corpusmill.dagster.execution import Finished, event_of, latest_of
from corpusmill.dagster.metadata import escaped
from corpusmill.dagster.transform_sensor import JOBS, jobs_in, transform_of
from corpusmill.errors import JobsAtWorkError, UsageError
from corpusmill.fingerprint import canonical, digest
from corpusmill.tables import open_sink
from corpusmill.transform.steps import states, submit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corpusmill.dagster.execution import Enrichment
    from corpusmill.endpoints.sagemaker import SageMakerTransform
    from corpusmill.job import Job
    from corpusmill.transform.steps import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The work of the asset that submits; `enrichment` is that of the asset which is written in the end."""

    enrichment: Enrichment

    def one(self, partition: str | None) -> Finished:
        """Send the rows of a partition, or of the whole asset, that have no answer and are in no job.

        What somebody has stopped before is sent anew: to submit is to ask for that.
        """
        job = self.enrichment.job(partition)
        endpoint = _endpoint(job)
        jobs = submit(job, endpoint, overwrite=self.enrichment.overwrites(open_sink(job.sink), partition))
        told = "; ".join(each.told() for each in jobs)
        log = self.enrichment.context.log
        log.info("%s", told or "nothing to send: every row is answered or refused")
        for each in jobs:
            if each.stopped:
                log.warning(
                    "still stopping, so that the rows are not sent anew yet: %s; materialise this again when it has "
                    "stopped",
                    each.name,
                )
        return _finished(jobs, endpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """The work of the asset that collects: that of an enriched asset, once no job is at work."""

    enrichment: Enrichment
    submitted: dg.AssetSpec

    def one(self, partition: str | None) -> Finished | None:
        """Take in what is there; write the output, or send what is left over and give None."""
        job = self.enrichment.job(partition)
        endpoint = replace(_endpoint(job), wait=False)
        job = replace(job, endpoint=endpoint)
        try:
            return self.enrichment.made(job, partition)
        except JobsAtWorkError as error:
            at_work = [state for state in states(job, endpoint) if state.name in error.jobs]
        self._tell(partition, at_work, endpoint)
        return None

    def _tell(self, partition: str | None, at_work: Sequence[JobState], endpoint: SageMakerTransform) -> None:
        context = self.enrichment.context
        context.log.info("not all is answered yet: %s", "; ".join(state.told() for state in at_work))
        before = latest_of(context.instance, self.submitted.key, partition)
        # What is told again is waited for again, so that only what is new is told.
        if before is None or sorted(jobs_in(before)) != sorted(_names(at_work)):
            context.log_event(event_of(self.submitted, partition, _finished(at_work, endpoint)))


def _endpoint(job: Job) -> SageMakerTransform:
    if job.mode != "read-write":
        raise UsageError(
            f"the store's mode is {job.mode!r}; it must be read-write, since answers lie in the store between the "
            "step that collects them and the one that writes them"
        )
    return transform_of(job.endpoint)


def _names(jobs: Sequence[JobState]) -> list[str]:
    return [job.name for job in jobs]


def _finished(jobs: Sequence[JobState], endpoint: SageMakerTransform) -> Finished:
    lines = ["| job | state | shards done | shards | rows |", "|---|---|---|---|---|"]
    for job in jobs:
        cells = (job.name, job.status, str(job.shards_done), str(job.shards), str(job.rows))
        lines.append(f"| {' | '.join(map(escaped, cells))} |")
    metadata: dict[str, Any] = {
        JOBS: dg.MetadataValue.json(_names(jobs)),
        "corpusmill/transform/jobs": len(jobs),
        "corpusmill/transform/shards": sum(job.shards for job in jobs),
        "corpusmill/transform/rows": sum(job.rows for job in jobs),
        "corpusmill/model": endpoint.model,
        "corpusmill/endpoint": endpoint.identity,
        "dagster/uri": endpoint.s3,
    }
    if jobs:
        metadata["corpusmill/transform/states"] = dg.MetadataValue.md("\n".join(lines))
    return Finished(metadata=metadata, version=dg.DataVersion(digest(canonical(_names(jobs))).hex()))
