"""`enrich`: the flow from a source to a sink; `enrich_batches`, its streaming sister; and what both tell in the end."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import msgspec
import psutil
import pyarrow as pa

from corpusmill.endpoints.endpoint import shown_url
from corpusmill.endpoints.prices import Prices, prices_of
from corpusmill.engine.asking import Terms
from corpusmill.engine.door import EngineThread
from corpusmill.engine.engine import Engine, Work
from corpusmill.engine.fitting import fit_of
from corpusmill.engine.outputs import FailureLog, OrderedOutput, PartsOutput
from corpusmill.engine.pages import Binder
from corpusmill.engine.tally import Ledger
from corpusmill.errors import RunEndedError, StoreError, TooManyFailuresError, UsageError
from corpusmill.killpoints import reach
from corpusmill.page import render
from corpusmill.plan import check_apart, make_plan, throwaway_key
from corpusmill.policy import DEFAULT_STORE, MODES, Budget, FailurePolicy, Limits, RetryPolicy
from corpusmill.report import PromptReport, RunReport, summary
from corpusmill.rows.prompt_cut import PROMPT_CUT, prompt_cut_warning
from corpusmill.rows.render import Renderer
from corpusmill.store import open_in_mode
from corpusmill.tables import SinkSpec, changed_types, check_storable, open_sink, open_source
from corpusmill.transform.running import Filling, check_streamable, filled_by_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import httpx

    from corpusmill.endpoints import Endpoint
    from corpusmill.engine.engine import Chunk, Output, Progress
    from corpusmill.outcome import Status
    from corpusmill.plan import Plan
    from corpusmill.policy import Mode
    from corpusmill.prompts.prompt import Prompt
    from corpusmill.store import Membership, Store
    from corpusmill.tables import Manifest, SinkLike, Source, SourceLike


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How a run behaves: everything that is not content."""

    store: str | Store = DEFAULT_STORE
    mode: str = "read-write"
    refresh: Sequence[Status] | None = None
    limits: Limits = field(default_factory=Limits)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    failures: FailurePolicy = field(default_factory=FailurePolicy)
    budget: Budget | None = None
    prices: Prices | None = None
    transport: httpx.AsyncBaseTransport | None = None
    progress: Callable[[Progress], None] | None = None
    on_start: Callable[[Engine], None] | None = None

    def check(self) -> None:
        """Raise `UsageError` for a mode that does not exist or does not fit the rest."""
        if self.mode not in MODES:
            raise UsageError(f"the store's mode is {self.mode!r}; known are {', '.join(MODES)}")
        if self.refresh and self.mode != "refresh":
            raise UsageError(
                f"refresh names statuses, and the store's mode is {self.mode!r}; it must be 'refresh'"
            )
        if not isinstance(self.store, str) and self.mode not in ("read-write", "refresh"):
            raise UsageError(f"the mode {self.mode!r} needs the store's URL, and an open store is given")
        if self.budget is not None and self.budget.usd is not None and self.prices is None:
            raise UsageError(
                f"budget.usd is {self.budget.usd:g}, and what a token costs is not known for this endpoint; "
                "state prices (US dollars for a million prompt and completion tokens), or a budget of tokens"
            )


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
    stop: everything paid for is then in the store, and the same call goes on from there.
    """
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
    opened = open_source(source)
    target = open_sink(sink)
    plan = make_plan(
        schema=opened.schema,
        prompts=prompts,
        endpoint=endpoint,
        kept=target.spec.columns,
        telemetry=telemetry,
        source=opened,
        sink=target.spec,
    )
    check_storable(plan.schema)
    check_apart(opened, target, asked=source)
    conduct.check()

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
                opened_store(conduct) as stored,
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
                writing.commit(
                    failed=sum(failed_rows(prompt, conduct.failures.statuses) for prompt in report.prompts),
                    manifest_extra={"report": summary(report), "identity": endpoint.identity},
                    sidecars=sidecars_of(report, log),
                )
                reach("committed")
                run.finish()
                asking.finish()
            return report
        except BaseException:
            output.discard()
            writing.abort()
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

    Batches may come out smaller than they went in. `columns` names the columns to keep (None: all). `on_report` is
    handed the report at the end. Leaving the iteration early stops the asking; what was paid is in the store.
    """
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
    conduct.check()
    check_streamable(endpoint)
    opened = open_source(_reader(batches))
    plan = make_plan(
        schema=opened.schema,
        prompts=prompts,
        endpoint=endpoint,
        kept=columns,
        telemetry=telemetry,
        source=None,
        sink=None,
    )
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
    with contextlib.closing(log), opened_store(conduct) as stored:
        run = Running(
            plan, prompts, endpoint, conduct, stored, total=opened.rows, telemetry=telemetry, log=log
        )
        thread = run.start(opened.chunks(), output)
        try:
            yield from output.batches(thread.done)
            thread.wait()
        finally:
            output.abandon()
            if not thread.done.is_set():
                thread.tear_away()
            run.part(thread)
        report = run.report(output=None, job={})
        report.check()
        run.finish()
        if on_report is not None:
            on_report(report)
        refuse_failures(report, conduct.failures, None, log)


class Running:
    """One run with its store open: from chunks to a report."""

    def __init__(
        self,
        plan: Plan,
        prompts: Sequence[Prompt],
        endpoint: Endpoint,
        conduct: Conduct,
        store: Store,
        *,
        total: int | None,
        telemetry: bool,
        log: FailureLog,
        refused: Callable[[bytes], tuple[str, str] | None] | None = None,
    ) -> None:
        check_descriptors(conduct.limits.concurrency)
        self._plan = plan
        self._prompts = prompts
        self._endpoint = endpoint
        self._conduct = conduct
        self._store = store
        self._total = total
        self._refused = refused
        self._ledger = Ledger([prompt.into for prompt in prompts])
        self._binder = Binder(
            prompts=prompts,
            kept_columns=plan.kept,
            schema=plan.schema,
            telemetry=telemetry,
            ledger=self._ledger,
            failed=log.add,
        )
        self._started = time.monotonic()
        self._member: Membership | None = None
        self._engine: Engine | None = None

    def start(self, chunks: Iterator[Chunk], output: Output) -> EngineThread:
        """Join the store and start the engine."""
        conduct = self._conduct
        member = self._store.join(self._plan.run_key or throwaway_key(), label=self._endpoint.identity)
        self._member = member
        work = Work(
            chunks=chunks,
            renderers=[
                Renderer(prompt, identity=self._endpoint.identity, check=self._endpoint.check)
                for prompt in self._prompts
            ],
            endpoint=self._endpoint,
            store=self._store,
            member=member,
            terms=Terms(
                retry=conduct.retry,
                budget=conduct.budget,
                context_tokens=self._endpoint.capabilities.context_tokens,
                not_before=member.first_started_at if conduct.mode == "refresh" else None,
                refresh=frozenset(conduct.refresh) if conduct.refresh else None,
                price=_price(conduct),
                fit=fit_of(self._store, self._endpoint),
                refused=self._refused,
            ),
            limits=conduct.limits,
            binder=self._binder,
            output=output,
            ledger=self._ledger,
            replay=conduct.mode == "replay",
            total=self._total,
            transport=conduct.transport,
            progress=conduct.progress,
        )
        engine = Engine(work)
        self._engine = engine
        if conduct.on_start is not None:
            conduct.on_start(engine)
        return EngineThread(engine.run, engine)

    def go(self, chunks: Iterator[Chunk], output: Output, *, shown: str, job: Mapping[str, Any]) -> RunReport:
        """Run to the end, and give the report, checked."""
        thread = self.start(chunks, output)
        try:
            thread.wait()
        except RunEndedError as error:
            error.report = self.report(output=shown, job=job)
            raise
        finally:
            self.part(thread)
        report = self.report(output=shown, job=job)
        report.check()
        return report

    def part(self, thread: EngineThread) -> None:
        """Give up what the run holds in the store, unless it may hold answers that were paid and could not be kept.

        Then it goes without a word: whoever asks again counts what was in flight as possibly paid twice.
        """
        if self._member is None:
            return
        if thread.done.is_set() and not isinstance(thread.failure, StoreError):
            self._store.leave(self._member.owner)
        else:
            self._store.abandon(self._member.owner)

    def finish(self) -> None:
        """Close the account of the run key: the next run of it starts anew."""
        if self._plan.run_key is not None:
            self._store.finish(self._plan.run_key)

    def report(self, *, output: str | None, job: Mapping[str, Any]) -> RunReport:
        """Say what was done so far."""
        engine, ledger = self._engine, self._ledger
        assert engine is not None
        assert self._member is not None
        wire = engine.wire
        prompts = [
            PromptReport(
                into=account.into,
                outcomes=dict(account.outcomes),
                live=account.origins["live"],
                cached=account.origins["cached"],
                deduplicated=account.origins["deduplicated"],
                skipped=account.origins["skipped"],
                unanswered=account.origins["unanswered"],
                notes=dict(account.notes),
                errors=dict(account.errors),
                prompt_tokens=account.prompt_tokens,
                completion_tokens=account.completion_tokens,
            )
            for account in ledger.prompts
        ]
        outcomes: dict[str, int] = {}
        for prompt in prompts:
            for status, count in prompt.outcomes.items():
                outcomes[status] = outcomes.get(status, 0) + count
        price = _price(self._conduct)
        return RunReport(
            rows=ledger.rows,
            outcomes=outcomes,
            live=sum(prompt.live for prompt in prompts),
            cached=sum(prompt.cached for prompt in prompts),
            deduplicated=sum(prompt.deduplicated for prompt in prompts),
            skipped=sum(prompt.skipped for prompt in prompts),
            unanswered=sum(prompt.unanswered for prompt in prompts),
            attempts=wire.attempts,
            possibly_paid_twice=self._store.spend(self._member.run_key).possibly_paid_twice,
            prompt_tokens=wire.prompt_tokens,
            completion_tokens=wire.completion_tokens,
            cost=price(wire.prompt_tokens, wire.completion_tokens) if price else None,
            prices=None if self._conduct.prices is None else self._conduct.prices.origin,
            seconds=round(time.monotonic() - self._started, 3),
            output=output,
            skipped_run=False,
            run_key=self._plan.run_key,
            model=self._endpoint.model,
            endpoint=shown_url(self._endpoint.url),
            prompts=prompts,
            retries=dict(wire.retries),
            rate_limited=wire.rate_limited,
            answers=wire.live,
            changed_types=changed_types(self._plan.schema),
            warnings=_warnings(prompts),
            latency=list(wire.latency),
            timeline=list(engine.timeline.moments),
            samples=list(ledger.samples),
            slowest=ledger.slowest,
            failures=list(ledger.failures),
            job=job,
        )


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
        price=_price(conduct),
        progress=conduct.progress,
        on_start=conduct.on_start,
    )


@contextlib.contextmanager
def opened_store(conduct: Conduct) -> Iterator[Store]:
    """Open the store as the mode has it; close it in the end, unless it was given open."""
    if not isinstance(conduct.store, str):
        yield conduct.store
        return
    store = open_in_mode(conduct.store, cast("Mode", conduct.mode))
    try:
        yield store
    finally:
        store.close()


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


def _price(conduct: Conduct) -> Callable[[int, int], float] | None:
    return None if conduct.prices is None else conduct.prices.cost


def _warnings(prompts: Sequence[PromptReport]) -> list[str]:
    """Say once what rows are flagged for one by one."""
    rows = sum(prompt.notes.get(PROMPT_CUT, 0) for prompt in prompts)
    return [prompt_cut_warning(rows)] if rows else []


def failed_rows(prompt: PromptReport, statuses: Sequence[str]) -> int:
    """Count the rows of a prompt that have one of these statuses."""
    return sum(prompt.outcomes.get(status, 0) for status in statuses)


def refuse_failures(report: RunReport, policy: FailurePolicy, target: Any, log: FailureLog) -> None:
    """Raise `TooManyFailuresError` when more rows failed than may; they are then listed beside the sink `target`."""
    for prompt in report.prompts:
        asked = report.rows - prompt.skipped
        failed = failed_rows(prompt, policy.statuses)
        if asked and failed / asked > policy.max_failed:
            where = f" They are listed in {target.write_failures(log.lines())}." if target is not None else ""
            kinds = ", ".join(
                f"{count} {kind}" for kind, count in sorted(prompt.errors.items(), key=lambda i: -i[1])[:5]
            )
            error = TooManyFailuresError(
                f"{failed} of {asked} rows failed for {prompt.into!r} ({failed / asked:.1%}: {kinds}), and "
                f"max_failed is {policy.max_failed:.1%}: nothing was committed.{where} "
                "What was answered is kept; run again to ask the failed rows again, or raise max_failed"
            )
            error.report = report
            raise error


def sidecars_of(report: RunReport, log: FailureLog) -> dict[str, bytes]:
    """Give the files that lie beside the manifest, by name."""
    sidecars = {
        "report.json": msgspec.json.format(msgspec.json.encode(report.as_dict()), indent=1) + b"\n",
        "report.html": render(report).encode(),
    }
    if log.rows:
        sidecars["failures.jsonl"] = log.content()
    return sidecars


def skipped_report(manifest: Manifest | None, shown: str) -> RunReport:
    """Give the report of a run that had nothing to do, from what the run before it wrote down."""
    assert manifest is not None
    before = manifest.extra.get("report", {})
    unanswered, skipped = before.get("unanswered", 0), before.get("skipped", 0)
    total = sum(before.get("outcomes", {}).values())
    return RunReport(
        rows=manifest.rows,
        outcomes=before.get("outcomes", {}),
        live=0,
        cached=total - unanswered - skipped,
        deduplicated=0,
        skipped=skipped,
        unanswered=unanswered,
        attempts=0,
        possibly_paid_twice=before.get("possibly_paid_twice", 0),
        prompt_tokens=0,
        completion_tokens=0,
        cost=0.0,
        seconds=0.0,
        output=shown,
        skipped_run=True,
        run_key=manifest.run_key,
    )


def check_descriptors(concurrency: int) -> None:
    """Raise `UsageError` when the process may not open as many files as the concurrency needs."""
    process = psutil.Process()
    if not hasattr(process, "rlimit"):
        return
    soft, hard = process.rlimit(psutil.RLIMIT_NOFILE)
    needed = process.num_fds() + concurrency + 64
    if soft == -1 or needed <= soft:
        return
    if hard == -1 or needed <= hard:
        process.rlimit(psutil.RLIMIT_NOFILE, (needed, hard))
        return
    raise UsageError(
        f"limits.concurrency is {concurrency}, which needs about {needed} open files; this process may have {soft}. "
        f"Lower the concurrency to {max(1, soft - process.num_fds() - 64)} or raise the limit (ulimit -n)"
    )


__all__ = ["SinkSpec", "enrich", "enrich_batches"]
