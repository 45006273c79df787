"""One run with its store open: how it behaves, and what it does from chunks to a report.

`enrich`, `enrich_batches` and the shards of a table are three ways to drive it.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import psutil

from corpusmill.endpoints.endpoint import shown_url
from corpusmill.engine.asking import Terms
from corpusmill.engine.door import EngineThread
from corpusmill.engine.engine import Engine, Work
from corpusmill.engine.fitting import fit_of
from corpusmill.engine.pages import Binder
from corpusmill.engine.tally import Ledger
from corpusmill.errors import RunEndedError, StoreError, UsageError
from corpusmill.plan import throwaway_key
from corpusmill.policy import MODES
from corpusmill.report import PromptReport, RunReport, added
from corpusmill.rows.overflow import OVERFLOW, overflow_warning
from corpusmill.rows.prompt_cut import PROMPT_CUT, prompt_cut_warning
from corpusmill.rows.render import Renderer
from corpusmill.store import open_in_mode
from corpusmill.tables import changed_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import httpx

    from corpusmill.endpoints import Endpoint
    from corpusmill.endpoints.prices import Prices
    from corpusmill.engine.engine import Progress
    from corpusmill.engine.outputs import FailureLog, Output
    from corpusmill.engine.reading import Chunk
    from corpusmill.outcome import Status
    from corpusmill.plan import Plan
    from corpusmill.policy import Budget, FailurePolicy, Limits, Mode, RetryPolicy
    from corpusmill.prompts.prompt import Prompt
    from corpusmill.report import Sample
    from corpusmill.store import Membership, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How a run behaves: everything that is not content."""

    store: str | Store = field(repr=False)  # a URL may hold a password
    mode: str
    refresh: Sequence[Status] | None
    limits: Limits
    retry: RetryPolicy
    failures: FailurePolicy
    budget: Budget | None
    prices: Prices | None
    transport: httpx.AsyncBaseTransport | None = None
    progress: Callable[[Progress], None] | None = None
    on_start: Callable[[Engine], None] | None = None

    def __post_init__(self) -> None:
        """Refuse a mode that does not exist or does not fit the rest, and a budget that nothing can be held to."""
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
                price=price_of(conduct),
                fit=fit_of(self._store, self._endpoint),
                refused=self._refused,
            ),
            limits=conduct.limits,
            binder=self._binder,
            output=output,
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
        price = price_of(self._conduct)
        return RunReport(
            rows=ledger.rows,
            outcomes=added(prompt.outcomes for prompt in prompts),
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
            warnings=_warnings(
                prompts, ledger.failures, context_tokens=self._endpoint.capabilities.context_tokens
            ),
            latency=list(wire.latency),
            timeline=list(engine.timeline.moments),
            samples=list(ledger.samples),
            slowest=ledger.slowest,
            failures=list(ledger.failures),
            job=job,
        )


@contextlib.contextmanager
def opened_store(store: str | Store, mode: str) -> Iterator[Store]:
    """Open a store as the mode has it, and close it in the end; one that is given open stays so."""
    if not isinstance(store, str):
        yield store
        return
    with contextlib.closing(open_in_mode(store, cast("Mode", mode))) as opened:
        yield opened


def price_of(conduct: Conduct) -> Callable[[int, int], float] | None:
    """Give the function that prices tokens, where prices are known."""
    return None if conduct.prices is None else conduct.prices.cost


def _warnings(
    prompts: Sequence[PromptReport], failures: Sequence[Sample], *, context_tokens: int | None
) -> list[str]:
    """Say once what rows are flagged for one by one."""
    warnings = []
    rows = sum(prompt.notes.get(PROMPT_CUT, 0) for prompt in prompts)
    if rows:
        warnings.append(prompt_cut_warning(rows))
    if any(OVERFLOW in prompt.errors for prompt in prompts):
        errors = [sample.error or "" for sample in failures]
        warnings.append(overflow_warning(errors, stated=context_tokens))
    return warnings


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
