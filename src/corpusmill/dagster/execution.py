"""The run of an asset's step: partition by partition through its work, and what Dagster is told of it.

A partition that is done is told of at once, so that it stays done whatever becomes of those after it. An error that
concerns one partition's own rows lets the others go on; any other ends the step. A time-out or a termination goes
through `enrich`, which keeps what is paid for, and on upwards as it is.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import dagster as dg

from corpusmill.dagster.failures import (
    RESETS_AT,
    WAITS_FOR,
    as_failure,
    is_of_one_partition,
    page_of,
    verdict_on,
)
from corpusmill.dagster.metadata import data_version, materialisation_metadata
from corpusmill.dagster.partitions import keys_of
from corpusmill.dagster.quality import judged, schema_differences, tally
from corpusmill.enrich_job import enrich_job
from corpusmill.errors import CorpusmillError
from corpusmill.tables import open_sink, open_source, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from corpusmill.dagster.blueprint import Blueprint
    from corpusmill.dagster.partitions import Dimension
    from corpusmill.dagster.quality import Rule, Tally
    from corpusmill.engine.engine import Progress
    from corpusmill.job import Job
    from corpusmill.tables import Sink

PROGRESS_SECONDS = 30.0
"""How often a run says in its log how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One partition (or the whole asset) that is done."""

    metadata: Mapping[str, Any]
    version: dg.DataVersion
    tallies: Sequence[Tally] = ()
    differences: Sequence[str] = ()


def latest_of(
    instance: dg.DagsterInstance, key: dg.AssetKey, partition: str | None
) -> dg.AssetMaterialization | None:
    """Give what was told last of an asset's partition, or of the whole asset; None when nothing was."""
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=key, asset_partitions=None if partition is None else [partition]),
        limit=1,
    ).records
    return records[0].asset_materialization if records else None


def event_of(spec: dg.AssetSpec, partition: str | None, finished: Finished) -> dg.AssetMaterialization:
    """Give the event that tells of a partition, or of the whole asset, outside of a step's own result."""
    dimensions = partition.keys_by_dimension if isinstance(partition, dg.MultiPartitionKey) else {}
    return dg.AssetMaterialization(
        spec.key,
        partition=partition,
        metadata=finished.metadata,
        tags={
            "dagster/data_version": finished.version.value,
            "dagster/data_version_is_user_provided": "true",
            "dagster/code_version": spec.code_version or "",
            # By these the event is found by either of its dimensions.
            **{f"dagster/partition/{name}": key for name, key in dimensions.items()},
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One step of one asset.

    `work` makes one partition (None: the whole asset), and gives None where there is nothing to tell of yet.
    """

    context: dg.AssetExecutionContext
    dimensions: Mapping[str, Dimension]
    spec: dg.AssetSpec
    rules: Mapping[str, Rule]
    work: Callable[[str | None], Finished | None]

    def events(self) -> Iterator[Any]:
        """Do the work, and yield what the step yields; raise what it raises."""
        partitions: Sequence[str | None] = list(self.context.partition_keys) if self.dimensions else [None]
        if len(partitions) == 1:
            yield from self._single(partitions[0])
        else:
            yield from self._several([partition for partition in partitions if partition is not None])

    def _single(self, partition: str | None) -> Iterator[Any]:
        finished = self._attempt(partition)
        if finished is None:
            yield from self._unjudged()
            return
        yield dg.MaterializeResult(
            asset_key=self.spec.key,
            metadata=finished.metadata,
            data_version=finished.version,
            check_results=judged(self.rules, finished.tallies, finished.differences, self.spec.key),
        )

    def _unjudged(self) -> Iterator[Any]:
        """Yield what Dagster wants of each check, which is a verdict only where one comes with it."""
        for name in self.rules:
            check = dg.AssetCheckSpec(name, asset=self.spec.key)
            yield dg.Output(None, output_name=check.get_python_identifier())

    def _several(self, partitions: Sequence[str]) -> Iterator[Any]:
        done: dict[str, Finished] = {}
        failed: dict[str, CorpusmillError] = {}
        for partition in partitions:
            try:
                finished = self.work(partition)
            except CorpusmillError as error:
                if not is_of_one_partition(error):
                    self.give_up(error)
                failed[partition] = error
                self.context.log.error("%s: %s", partition, error)  # noqa: TRY400 - it says what to do
                continue
            if finished is not None:
                done[partition] = finished
                yield event_of(self.spec, partition, finished)
        if failed:
            raise self._failure(failed, len(partitions))
        if not done:
            yield from self._unjudged()
            return
        if len(done) == len(partitions) and self._others_follow():
            # Steps that follow run only when this one has an output, and with it comes an event of each partition,
            # untrue where one is not made yet; what is told after them counts.
            yield dg.MaterializeResult(asset_key=self.spec.key)
            for partition, finished in done.items():
                yield event_of(self.spec, partition, finished)
        yield from judged(
            self.rules,
            [each for finished in done.values() for each in finished.tallies],
            [f"{key}: {line}" for key, finished in done.items() for line in finished.differences],
            self.spec.key,
        )

    def _others_follow(self) -> bool:
        chosen = self.context.run.asset_selection
        return not chosen or bool(set(chosen) - {self.spec.key})

    def _failure(self, failed: Mapping[str, CorpusmillError], of: int) -> dg.Failure:
        now = dt.datetime.now(dt.UTC)
        lines = "\n".join(f"{partition}: {error}" for partition, error in failed.items())
        metadata = {"corpusmill/failed_partitions": dg.MetadataValue.json(list(failed))}
        pages = {partition: page for partition, error in failed.items() if (page := page_of(error))}
        if pages:
            metadata["corpusmill/reports"] = dg.MetadataValue.json(pages)
        return dg.Failure(
            description=f"{len(failed)} of {of} partitions failed; the others are done.\n{lines}",
            metadata=metadata,
            allow_retries=any(verdict_on(error, now=now, waits=0).again for error in failed.values()),
        )

    def _attempt(self, partition: str | None) -> Finished | None:
        try:
            return self.work(partition)
        except CorpusmillError as error:
            self.give_up(error)

    def give_up(self, error: CorpusmillError) -> NoReturn:
        """Raise what becomes of an error that ends the step."""
        verdict = verdict_on(error, now=dt.datetime.now(dt.UTC), waits=self.context.retry_number)
        if verdict.wait is not None:
            self.context.log.warning("%s; asking again in %.0f s", error, verdict.wait)
        if verdict.resets_at is not None:
            self.context.instance.add_run_tags(
                self.context.run.run_id, {WAITS_FOR: "quota", RESETS_AT: verdict.resets_at.isoformat()}
            )
        raise as_failure(error, verdict) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrichment:
    """The work of an enriched asset: a job through `enrich`."""

    context: dg.AssetExecutionContext
    blueprint: Blueprint
    spec: dg.AssetSpec
    source_key: dg.AssetKey
    rules: Mapping[str, Rule]
    preview_rows: int
    overwrite: bool

    def job(self, partition: str | None) -> Job:
        """Give the job of a partition, with what it takes from resources."""
        keys = {} if partition is None else keys_of(self.blueprint.dimensions, partition)
        return self.blueprint.job_for(keys, self.context.resources)

    def one(self, partition: str | None) -> Finished:
        """Make one partition, or the whole asset."""
        return self.made(self.job(partition), partition)

    def made(self, job: Job, partition: str | None) -> Finished:
        """Carry out the job of a partition, or of the whole asset."""
        sink = open_sink(job.sink)
        report = enrich_job(
            job,
            overwrite=self.overwrites(sink, partition),
            progress=self._progress(partition),
        )
        manifest = sink.manifest()
        assert manifest is not None
        self.context.log.info(
            "%s rows: %s answers asked for, %s from the store, %s shared with another row%s",
            f"{report.rows:,}",
            f"{report.live:,}",
            f"{report.cached:,}",
            f"{report.deduplicated:,}",
            "; nothing has changed, so nothing was done" if report.skipped_run else "",
        )
        dataset = read(job.sink.path, partition=job.sink.partition)
        source_columns = open_source(job.source).schema.names
        return Finished(
            metadata=materialisation_metadata(
                report,
                job=job,
                sink=sink,
                dataset=dataset,
                source_columns=source_columns,
                source_key=self.source_key,
                partitioned=partition is not None,
                preview_rows=self.preview_rows,
            ),
            version=data_version(manifest),
            tallies=tally(dataset, job.prompts) if self.rules else [],
            differences=schema_differences(job, source_columns, dataset.schema)
            if "schema" in self.rules
            else [],
        )

    def overwrites(self, sink: Sink, partition: str | None) -> bool:
        """Whether what lies in the sink may be replaced: by new code what this asset wrote last, or whatever it is."""
        manifest = sink.manifest()
        if self.overwrite or manifest is None:
            return self.overwrite
        latest = latest_of(self.context.instance, self.spec.key, partition)
        tags = latest.tags if latest is not None and latest.tags else {}
        return tags.get("dagster/data_version") == data_version(manifest).value

    def _progress(self, partition: str | None) -> Callable[[Progress], None]:
        where = "" if partition is None else f"{partition}: "
        told = time.monotonic()

        def tell(progress: Progress) -> None:
            nonlocal told
            if time.monotonic() - told < PROGRESS_SECONDS:
                return
            told = time.monotonic()
            of = "" if progress.total is None else f" of {progress.total:,}"
            waiting = f"; {progress.waiting}" if progress.waiting else ""
            self.context.log.info("%s%s%s rows answered%s", where, f"{progress.rows:,}", of, waiting)

        return tell
