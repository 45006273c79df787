"""`enrich`: the flow from a source to a sink; and `enrich_batches`, its streaming sister."""

from __future__ import annotations

import atexit
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corpusmill.arguments import check_arguments
from corpusmill.ending import commit, failed_rows, keep_report, refuse_failures, skipped_report
from corpusmill.endpoints.prices import prices_of
from corpusmill.engine.outputs import FailureLog, OrderedOutput, PartsOutput
from corpusmill.errors import UsageError
from corpusmill.killpoints import reach
from corpusmill.plan import make_plan, plan_run
from corpusmill.policy import DEFAULT_STORE, Budget, FailurePolicy, Limits, RetryPolicy
from corpusmill.prompts.columns import find_column
from corpusmill.running import Conduct, Running, opened_store, price_of
from corpusmill.tables import open_source
from corpusmill.tables.streams import like_first
from corpusmill.transform.beside import held_beside
from corpusmill.transform.running import Filling, check_streamable, filled_by_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import httpx

    from corpusmill.endpoints import Endpoint
    from corpusmill.engine.door import EngineThread
    from corpusmill.engine.engine import Engine, Progress
    from corpusmill.outcome import Status
    from corpusmill.plan import Plan
    from corpusmill.prompts.prompt import Prompt
    from corpusmill.report import RunReport
    from corpusmill.store import Store
    from corpusmill.tables import SinkLike, Source, SourceLike


def enrich(
    source: SourceLike,
    sink: SinkLike,
    *prompts: Prompt,
    endpoint: Endpoint,
    store: str | Store = DEFAULT_STORE,
    mode: str = "read-write",
    refresh: Sequence[Status] | None = None,
    limits: Limits | None = None,
    retry: RetryPolicy | None = None,
    failures: FailurePolicy | None = None,
    budget: Budget | None = None,
    prices: tuple[float, float] | None = None,
    telemetry: bool = False,
    overwrite: bool = False,
    transport: httpx.AsyncBaseTransport | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_start: Callable[[Engine], None] | None = None,
    written_job: Mapping[str, Any] | None = None,
) -> RunReport:
    """Ask the prompts of every row of `source`, and write the table with their columns to `sink`.

    `source` is a path or URL of Parquet or Arrow IPC files, or a `SourceSpec`, `Table`, `RecordBatchReader` or
    `Dataset`; `sink` is a folder, a `.parquet` file or a `SinkSpec`. `store` is the URL of the store or an open one.
    `prices` are US dollars for a million prompt and completion tokens; without them the list prices of a public service
    are taken, where the extra `prices` is installed. `progress` is called about four times a
    second, from another thread. `on_start` is handed the engine, whose `stop` ends the run from any thread.

    Raises a `UsageError` before anything is sent when the job cannot work, and a `RunEndedError` when it had to
    stop: everything paid for is then in the store, and the same call goes on from there. What was done until then lies
    beside the sink, where the error's `report_address` says.
    """
    check_arguments(prompts, endpoint, limits=limits, retry=retry, failures=failures, budget=budget)
    conduct = Conduct(
        store=store,
        mode=mode,
        refresh=refresh,
        limits=limits or Limits(),
        retry=retry or RetryPolicy(),
        failures=failures or FailurePolicy(),
        budget=budget,
        prices=prices_of(prices, url=endpoint.url, model=endpoint.model),
        transport=transport,
        progress=progress,
        on_start=on_start,
    )
    opened, target, plan = plan_run(
        source, sink, prompts, endpoint, telemetry=telemetry, store=None if mode == "off" else store
    )

    def is_done() -> bool:
        decision = target.decide(plan.run_key, plan.job_key, overwrite=overwrite)
        return decision == "skip" and mode != "refresh"

    if is_done():
        target.tidy()
        return skipped_report(target.manifest(), target.shown)
    with target.lock():
        if is_done():
            return skipped_report(target.manifest(), target.shown)
        writing = target.begin(plan.schema, run_key=plan.run_key, job_key=plan.job_key)
        log = FailureLog()
        output = PartsOutput(writing, rows_per_part=target.spec.rows_per_part)
        try:
            with (
                opened_store(store, mode) as stored,
                filled_by_jobs(endpoint, _filling(conduct, opened, plan, prompts, stored)) as asking,
            ):
                run = Running(
                    plan,
                    prompts,
                    asking.endpoint,
                    conduct,
                    stored,
                    total=opened.rows,
                    telemetry=telemetry,
                    log=log,
                    refused=asking.refused,
                )
                report = run.go(opened.chunks(), output, shown=target.shown, job=written_job or {})
                opened.verify_unchanged()
                reach("before commit")
                refuse_failures(report, conduct.failures, target, log)
                failed = sum(failed_rows(prompt, conduct.failures.statuses) for prompt in report.prompts)
                commit(writing, report, log, failed=failed, identity=endpoint.identity)
                reach("committed")
                run.finish()
                asking.finish()
            return report
        except BaseException as error:
            output.discard()
            writing.abort()
            keep_report(target.spec, error)
            raise
        finally:
            log.close()


def enrich_batches(
    batches: Iterable[pa.RecordBatch] | pa.RecordBatchReader | pa.Table,
    *prompts: Prompt,
    endpoint: Endpoint,
    store: str | Store = DEFAULT_STORE,
    mode: str = "read-write",
    refresh: Sequence[Status] | None = None,
    limits: Limits | None = None,
    retry: RetryPolicy | None = None,
    failures: FailurePolicy | None = None,
    budget: Budget | None = None,
    prices: tuple[float, float] | None = None,
    columns: Sequence[str] | None = None,
    telemetry: bool = False,
    transport: httpx.AsyncBaseTransport | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_report: Callable[[RunReport], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Ask the prompts of every row of a stream, and yield the rows in order with the new columns.

    Batches may come out smaller than they went in. The first one says which columns there are, and of which types: a
    later one in which a needed column is missing, or has values of another kind, ends the stream with a `SourceError`
    that names it, before any of its rows is asked. `columns` names the columns to keep (None: all). `on_report` is
    handed the report at the end. Leaving the iteration early stops the asking; what was paid is in the store.
    """
    check_arguments(prompts, endpoint, limits=limits, retry=retry, failures=failures, budget=budget)
    conduct = Conduct(
        store=store,
        mode=mode,
        refresh=refresh,
        limits=limits or Limits(),
        retry=retry or RetryPolicy(),
        failures=failures or FailurePolicy(),
        budget=budget,
        prices=prices_of(prices, url=endpoint.url, model=endpoint.model),
        transport=transport,
        progress=progress,
    )
    check_streamable(endpoint)
    reader = _reader(batches)
    schema = open_source(reader).schema
    plan = make_plan(
        schema=schema,
        prompts=prompts,
        endpoint=endpoint,
        kept=columns,
        telemetry=telemetry,
    )
    asked = (find_column(schema, wanted.path)[0][0] for prompt in prompts for wanted in prompt.inputs)
    alike = like_first(reader, schema, needed={*plan.kept, *asked})
    opened = open_source(pa.RecordBatchReader.from_batches(schema, alike))
    return _stream(opened, plan, prompts, endpoint, conduct, telemetry=telemetry, on_report=on_report)


def _stream(
    opened: Source,
    plan: Plan,
    prompts: Sequence[Prompt],
    endpoint: Endpoint,
    conduct: Conduct,
    *,
    telemetry: bool,
    on_report: Callable[[RunReport], None] | None,
) -> Iterator[pa.RecordBatch]:
    output = OrderedOutput()
    log = FailureLog()
    with contextlib.closing(log), opened_store(conduct.store, conduct.mode) as stored:
        run = Running(
            plan,
            prompts,
            endpoint,
            conduct,
            stored,
            total=opened.rows,
            telemetry=telemetry,
            log=log,
            refused=None if conduct.mode == "replay" else held_beside(endpoint),
        )
        thread = run.start(opened.chunks(), output)
        leave = partial(_leave, output, thread)
        # Whoever still holds the iterator when the interpreter ends closes it too late: no thread runs any more.
        atexit.register(leave)
        try:
            yield from output.batches(thread.done)
            thread.wait()
        finally:
            atexit.unregister(leave)
            leave()
            run.part(thread)
        report = run.report(output=None, job={})
        report.check()
        run.finish()
        if on_report is not None:
            on_report(report)
        refuse_failures(report, conduct.failures, None, log)


def _leave(output: OrderedOutput, thread: EngineThread) -> None:
    """Take no batch any more, and end the asking if it has not ended by itself."""
    output.abandon()
    if not thread.done.is_set():
        thread.tear_away()


def _filling(
    conduct: Conduct, opened: Source, plan: Plan, prompts: Sequence[Prompt], store: Store
) -> Filling:
    return Filling(
        chunks=opened.chunks,
        prompts=prompts,
        store=store,
        run_key=plan.run_key,
        refresh=conduct.mode == "refresh",
        statuses=frozenset(conduct.refresh) if conduct.refresh else None,
        replay=conduct.mode == "replay",
        price=price_of(conduct),
        progress=conduct.progress,
        on_start=conduct.on_start,
    )


def _reader(batches: Iterable[pa.RecordBatch] | pa.RecordBatchReader | pa.Table) -> pa.RecordBatchReader:
    if isinstance(batches, pa.RecordBatchReader):
        return batches
    if isinstance(batches, pa.Table):
        return batches.to_reader()
    iterator = iter(batches)
    first = next(iterator, None)
    if first is None:
        raise UsageError(
            "the stream has no batch at all, so its columns are not known; give at least an empty one"
        )

    def chain() -> Iterator[pa.RecordBatch]:
        yield first
        yield from iterator

    return pa.RecordBatchReader.from_batches(first.schema, chain())
