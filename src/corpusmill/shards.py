"""A table enriched by many processes: planned once, asked shard by shard, committed as one dataset.

A shard is a range of the source's rows that begins where a part begins, so that the parts, and with them the whole
dataset, are byte for byte those of a single run. All shards share the run key of the whole: one account, one budget,
one allowance. A shard is pinned to the files that hold its rows, and fails when one of them has changed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from corpusmill.allocator import spare_memory
from corpusmill.ending import commit, failed_rows, keep_report, refuse_failures, skipped_report
from corpusmill.endpoints.prices import prices_of
from corpusmill.engine.outputs import FailureLog, PartsOutput
from corpusmill.errors import CountsError, ShardChangedError, SinkError, UsageError
from corpusmill.killpoints import reach
from corpusmill.plan import plan_run
from corpusmill.report import RunReport, merged, report_of
from corpusmill.running import Conduct, Running, opened_store
from corpusmill.tables.shards import (
    ShardWriting,
    Staged,
    drop_abandoned,
    drop_shards,
    staged_shard,
)
from corpusmill.transform.beside import held_beside
from corpusmill.transform.running import check_shardable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import httpx

    from corpusmill.engine.engine import Engine, Progress
    from corpusmill.job import Job
    from corpusmill.plan import Plan
    from corpusmill.tables import Chunk, Sink, Source

DEFAULT_SHARDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A file as it was when the shards were planned: size in bytes, and modification time (ns) or ETag."""

    path: str
    size: int
    mtime_ns: int | None
    etag: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The rows [start, stop) of a source, and the files that hold them; number `index` of `count`."""

    index: int
    count: int
    start: int
    stop: int
    run_key: str
    files: tuple[Pin, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON-ready values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """The shards of one run. `done`: the sink is up to date already, and there is nothing to ask."""

    shards: tuple[Shard, ...]
    rows: int
    done: bool


def shard_of(values: Mapping[str, Any]) -> Shard:
    """Undo `Shard.as_dict`, after whatever has carried the values."""
    return Shard(**{**values, "files": tuple(Pin(**pin) for pin in values["files"])})


def plan_shards(
    job: Job,
    *,
    rows_per_shard: int | None = None,
    shards: int | None = None,
    overwrite: bool = False,
) -> ShardPlan:
    """Cut the rows of a job's source into shards of `rows_per_shard` rows, or into about `shards` of them.

    The rows of a shard are rounded up to whole parts of the sink, so that there may be fewer. A source without rows has
    one shard without rows. Raises a `UsageError` for a job that cannot work, before anything is sent.
    """
    opened, target, plan = _prepared(job)
    assert plan.run_key is not None  # a job's source is made of files
    drop_abandoned(target)
    decision = target.decide(plan.run_key, plan.job_key, overwrite=overwrite)
    if decision == "skip" and job.mode != "refresh":
        target.tidy()
        return ShardPlan(shards=(), rows=opened.rows or 0, done=True)
    rows = opened.rows
    if rows is None:
        rows = sum(chunk.batch.num_rows for chunk in opened.chunks())
    width = shard_rows(
        rows, rows_per_part=target.spec.rows_per_part, rows_per_shard=rows_per_shard, shards=shards
    )
    starts = range(0, max(rows, 1), width)
    made = [
        Shard(
            index=index,
            count=len(starts),
            start=start,
            stop=min(start + width, rows),
            run_key=plan.run_key,
            files=pins_of(opened, start, min(start + width, rows)),
        )
        for index, start in enumerate(starts)
    ]
    return ShardPlan(shards=tuple(made), rows=rows, done=False)


def shard_rows(
    rows: int, *, rows_per_part: int, rows_per_shard: int | None = None, shards: int | None = None
) -> int:
    """Give the rows of a shard: what is wanted, in whole parts. Raises `UsageError` for wishes that contradict."""
    if rows_per_shard is not None and shards is not None:
        raise UsageError("give rows_per_shard or shards, not both")
    for name, value in (("rows_per_shard", rows_per_shard), ("shards", shards)):
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}; it must be at least 1")
    wanted = rows_per_shard or -(-rows // (shards or DEFAULT_SHARDS))
    return max(1, -(-wanted // rows_per_part)) * rows_per_part


def pins_of(opened: Source, start: int, stop: int) -> tuple[Pin, ...]:
    """Pin the files that hold these rows."""
    return tuple(
        Pin(
            path=state.shown,
            size=state.size,
            mtime_ns=None if state.etag else state.mtime_ns,
            etag=state.etag,
        )
        for state in opened.files_of(start, stop)
    )


def enrich_shard(
    job: Job,
    shard: Shard,
    *,
    progress: Callable[[Progress], None] | None = None,
    on_start: Callable[[Engine], None] | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> RunReport:
    """Ask the rows of one shard and stage its parts; one that is staged already, and whole, is left as it is.

    Raises `ShardChangedError` when the source or the job is not the planned one, else what `enrich` raises, with the
    report of the shard; how many rows may fail is judged when all shards are committed. The whole process is set to
    spare memory, as by `enrich_job`.
    """
    spare_memory()
    opened, target, plan = _prepared(job)
    _check_pins(shard, opened, plan)
    staged = staged_shard(target, shard.run_key, shard.index)
    if staged is not None and not staged.record.failed and job.mode != "refresh":
        return _from_before(report_of(staged.record.report))
    conduct = _conduct(job, progress=progress, on_start=on_start, transport=transport)
    writing = ShardWriting(
        target, plan.schema, run_key=shard.run_key, job_key=plan.job_key, shard=shard.index
    )
    log = FailureLog()
    output = PartsOutput(writing, rows_per_part=target.spec.rows_per_part)
    try:
        with opened_store(job.store, job.mode) as stored:
            run = Running(
                plan,
                job.prompts,
                job.endpoint,
                conduct,
                stored,
                total=shard.stop - shard.start,
                telemetry=job.telemetry,
                log=log,
                refused=None if job.mode == "replay" else held_beside(job.endpoint),
            )
            report = run.go(_rows_of(opened, shard), output, shown=target.shown, job=job.written)
        opened.verify_unchanged()
        _check_rows(report, shard)
        reach("before record")
        failed = sum(failed_rows(prompt, job.failures.statuses) for prompt in report.prompts)
        writing.record(report=report.as_dict(), failed=failed, failures=log.content() if log.rows else b"")
        return report
    except BaseException as error:
        output.discard()
        writing.abort()
        keep_report(target.spec, error, shard=(shard.run_key, shard.index))
        raise
    finally:
        log.close()


def commit_shards(job: Job, shards: Sequence[Shard], *, overwrite: bool = False) -> RunReport:
    """Make the parts of all shards one dataset with one manifest and one report.

    Without shards the sink is up to date already, and this says so. Raises `SinkError` when a shard is not staged,
    `ShardChangedError` when the source changed since, `TooManyFailuresError` when too many rows failed over all.
    """
    opened, target, plan = _prepared(job)
    for shard in shards:
        _check_pins(shard, opened, plan)
    assert plan.run_key is not None
    with target.lock():
        decision = target.decide(plan.run_key, plan.job_key, overwrite=overwrite)
        if decision == "skip" and (not shards or staged_shard(target, plan.run_key, 0) is None):
            return skipped_report(target.manifest(), target.shown)
        staged = [_staged(target, shard) for shard in shards]
        report = merged([report_of(each.record.report) for each in staged], output=target.shown)
        report.check()
        log = FailureLog()
        writing = target.begin(plan.schema, run_key=plan.run_key, job_key=plan.job_key)
        try:
            for each in staged:
                log.absorb(each.failures)
                for part in each.parts:
                    writing.adopt(part)
            reach("before commit")
            refuse_failures(report, job.failures, target, log)
            failed = sum(each.record.failed for each in staged)
            commit(writing, report, log, failed=failed, identity=job.endpoint.identity)
            reach("committed")
        except BaseException as error:
            writing.abort()
            keep_report(target.spec, error)
            raise
        finally:
            log.close()
        with opened_store(job.store, job.mode) as stored:
            stored.finish(plan.run_key)
        drop_shards(target, plan.run_key)
    return report


def _prepared(job: Job) -> tuple[Source, Sink, Plan]:
    check_shardable(job.endpoint)
    store = None if job.mode == "off" else job.store
    return plan_run(job.source, job.sink, job.prompts, job.endpoint, telemetry=job.telemetry, store=store)


def _conduct(
    job: Job,
    *,
    progress: Callable[[Progress], None] | None,
    on_start: Callable[[Engine], None] | None,
    transport: httpx.AsyncBaseTransport | None,
) -> Conduct:
    return Conduct(
        store=job.store,
        mode=job.mode,
        refresh=job.refresh,
        limits=job.limits,
        retry=job.retry,
        failures=job.failures,
        budget=job.budget,
        prices=prices_of(job.prices, url=job.endpoint.url, model=job.endpoint.model),
        transport=transport,
        progress=progress,
        on_start=on_start,
    )


def _check_pins(shard: Shard, opened: Source, plan: Plan) -> None:
    """Compare with what was planned: first the files, which can be named, then everything together."""
    now = {pin.path: pin for pin in pins_of(opened, shard.start, shard.stop)}
    for pin in shard.files:
        found = now.get(pin.path)
        if found is None:
            raise ShardChangedError(f"{pin.path} holds no row of shard {shard.index} any more: plan again")
        if found != pin:
            raise ShardChangedError(
                f"{pin.path} changed since shard {shard.index} was planned ({pin.size:,} bytes then, "
                f"{found.size:,} now): plan again"
            )
    if plan.run_key != shard.run_key:
        raise ShardChangedError(
            f"the source or the job changed since shard {shard.index} was planned: plan again"
        )


def _rows_of(opened: Source, shard: Shard) -> Iterator[Chunk]:
    """Give the chunks of a shard, with the numbers that their rows have in the whole source."""
    if shard.start == shard.stop:
        return
    for chunk in opened.chunks(shard.start):
        left = shard.stop - chunk.first_row
        yield chunk if chunk.batch.num_rows <= left else replace(chunk, batch=chunk.batch.slice(0, left))
        if chunk.batch.num_rows >= left:
            return


def _check_rows(report: RunReport, shard: Shard) -> None:
    if report.rows != shard.stop - shard.start:
        raise CountsError(f"shard {shard.index} has {report.rows} rows, not {shard.stop - shard.start}")


def _staged(target: Sink, shard: Shard) -> Staged:
    found = staged_shard(target, shard.run_key, shard.index)
    if found is None:
        raise SinkError(
            f"shard {shard.index} of {shard.count} is not staged for {target.shown}: run it again"
        )
    return found


def _from_before(report: RunReport) -> RunReport:
    """Give the report of a shard that was staged by an earlier attempt: nothing was asked this time."""
    return replace(report, skipped_run=True)
