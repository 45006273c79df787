"""What a job would do and cost, worked out without sending or writing anything.

Rows are rendered and looked up exactly as a run does; tokens are estimated from what servers have counted: for the
rows of this job that are in the store, else for the model's other answers there, else from a table by script. Every
estimate is an interval and says what it rests on.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from corpusmill.endpoints.endpoint import shown_url
from corpusmill.endpoints.prices import Prices, prices_of
from corpusmill.endpoints.sagemaker import SageMakerTransform
from corpusmill.engine.elsewhere import line_to_write
from corpusmill.engine.fitting import fit_of
from corpusmill.engine.ladder import stored_answer
from corpusmill.errors import SinkError
from corpusmill.plan import plan_run
from corpusmill.rows.render import Renderer, characters
from corpusmill.rows.script import script_of_messages
from corpusmill.rows.seen import SeenKeys
from corpusmill.rows.tokens import NOTHING, Counted, Interval, Sizes, below, estimate
from corpusmill.store import open_store
from corpusmill.store.urls import store_exists, store_path
from corpusmill.transform.estimate import estimate_transform

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from corpusmill.engine.ladder import Rung
    from corpusmill.job import Job
    from corpusmill.plan import Plan
    from corpusmill.policy import Budget
    from corpusmill.prompts.prompt import Prompt
    from corpusmill.rows.render import Asked
    from corpusmill.store import Entry, Store
    from corpusmill.tables import Sink

MOST_SAMPLES = 10_000
"""Answers from which tokens are learned, at most."""

FIRST_ROWS = 20
"""Rows that are looked up under other identities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPlan:
    """What would become of the rows of one prompt.

    Every row is one of `blank`, `unaskable` (it fails without a request: its messages are broken or too long), `stored`
    (answered from the store), `duplicates` (the same request as an earlier row's) and `requests`. Tokens are those of
    the requests.
    """

    into: str
    blank: int
    unaskable: int
    stored: int
    duplicates: int
    requests: int
    prompt_tokens: Interval
    completion_tokens: Interval
    rests_on: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What a job would do. `cost` is in US dollars, `seconds` what the stated limits alone demand; None: not known.

    `sink` says what a run would do with its sink: `write`, `rebuild`, `skip` (nothing to do) or `refuse`.
    `notes` are for the reader. An endpoint that is `billed_by` hours has its cost and time in a note of its own.
    """

    rows: int
    requests: int
    prompts: tuple[PromptPlan, ...]
    prompt_tokens: Interval
    completion_tokens: Interval
    cost: Interval | None
    prices: str | None
    seconds: float | None
    sink: str
    notes: tuple[str, ...]
    billed_by: Literal["tokens", "hours"] = "tokens"

    def as_dict(self) -> dict[str, Any]:
        """Give the plan as JSON-ready values."""
        return asdict(self)


@dataclass(slots=True)
class Counts:
    """The rows of one prompt as they are counted."""

    blank: int = 0
    unaskable: int = 0
    stored: int = 0
    duplicates: int = 0
    requests: int = 0
    sizes: dict[str | None, Sizes] = field(default_factory=lambda: defaultdict(Sizes))
    ceilings: int | None = 0
    usage: list[Counted] = field(default_factory=list)
    parts: bool = False

    def ask(self, ceiling: int | None, size: int, script: str | None) -> None:
        """Count a request that would be sent."""
        self.requests += 1
        self.sizes[script].add(size)
        self.ceilings = None if self.ceilings is None or ceiling is None else self.ceilings + ceiling

    def learn(self, script: str | None, size: int, entry: Entry) -> None:
        """Note what the server counted for a row of this very prompt."""
        if entry.prompt_tokens and size and len(self.usage) < MOST_SAMPLES:
            self.usage.append(Counted(script, size, entry.prompt_tokens, entry.completion_tokens))


def plan_job(job: Job, *, prices: Prices | None = None) -> JobPlan:
    """Say what a run of the job would do; sends nothing, writes nothing, makes no store.

    Without `prices` those of the job are taken, or else the list prices of its endpoint. Raises the `UsageError`
    kinds that a run would raise before its first request, but for a sink that is in the way, which is a note.
    """
    kept_in = None if job.mode == "off" else job.store
    source, sink, plan = plan_run(
        job.source, job.sink, job.prompts, job.endpoint, telemetry=job.telemetry, store=kept_in
    )
    store = None
    if job.mode != "off" and store_exists(job.store):
        store = open_store(job.store, read_only=True)
    try:
        counting = _Counting(job, store)
        for chunk in source.chunks():
            counting.count(chunk.batch)
        known = [] if store is None else _counted(store, job.endpoint.model)
        counting.look_elsewhere()
    finally:
        if store is not None:
            store.close()
    decision, refused = _decision(sink, plan)
    if decision == "skip" and job.mode == "refresh":
        decision = "rebuild"
    return _told(job, counting, known, prices=prices, decision=decision, refused=refused)


def _counted(store: Store, model: str) -> list[Counted]:
    samples = store.usage_samples(model=model, limit=MOST_SAMPLES)
    return [
        Counted(one.script, one.characters, one.prompt_tokens, one.completion_tokens)
        for one in samples
        if one.characters
    ]


class _Counting:
    """Counts the rows of a job, batch by batch."""

    def __init__(self, job: Job, store: Store | None) -> None:
        self._job = job
        self._store = store
        self.with_store = store is not None
        self.elsewhere: str | None = None
        self._first: pa.RecordBatch | None = None
        endpoint = job.endpoint
        self._context = endpoint.capabilities.context_tokens
        self._renderers = [
            Renderer(prompt, identity=endpoint.identity, check=endpoint.check) for prompt in job.prompts
        ]
        self._fit = fit_of(store, endpoint)
        self._seen = SeenKeys()
        self.counts = [Counts() for _ in job.prompts]
        self.rows = 0

    def count(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        if self._first is None:
            self._first = batch.slice(0, FIRST_ROWS)
        asked = [renderer.ask(batch) for renderer in self._renderers]
        wanted = list({key for prompt in asked for key in prompt.keys if key is not None})
        found = self._store.get_many(wanted) if self._store is not None and wanted else {}
        for prompt, counts, rows in zip(self._job.prompts, self.counts, asked, strict=True):
            self._count(prompt, counts, rows, found)

    def _count(
        self, prompt: Prompt, counts: Counts, asked: Asked, found: Mapping[bytes, list[Entry]]
    ) -> None:
        for row, key in enumerate(asked.keys):
            if key is None:
                if row in asked.unaskable:
                    counts.unaskable += 1
                else:
                    counts.blank += 1
                continue
            messages = asked.rendered(row).messages
            size, script = characters(messages), script_of_messages(messages)
            entries = found.get(key, ())
            for entry in entries[-1:]:
                counts.learn(script, size, entry)
            rung = stored_answer(
                entries,
                asked,
                row,
                context=self._context,
                not_before=math.inf if self._job.mode == "refresh" else None,
                refresh=self._job.refresh,
            )
            if rung.entry is not None:
                counts.stored += 1
            elif self._fit is not None and self._fit.too_long(size, script) is not None:
                counts.unaskable += 1
            elif not self._seen.add(key):
                counts.duplicates += 1
            else:
                counts.ask(self._most(prompt, rung, size, script), size, script)
                counts.parts = counts.parts or any(
                    isinstance(message.get("content"), list) for message in messages
                )

    def look_elsewhere(self) -> None:
        """Where no row is found, find out whether the first ones would be if the endpoint had another identity."""
        if self._store is None or self._first is None or self._job.mode == "refresh":
            return
        if not any(counts.stored for counts in self.counts):
            self.elsewhere = line_to_write(self._store, self._job.prompts, self._first, self._job.endpoint)

    def _most(self, prompt: Prompt, rung: Rung, size: int, script: str | None) -> int | None:
        """Give the most tokens that the answer to a request may have; None where it has no ceiling that holds."""
        if rung.ceiling is None or prompt.escalate_to is not None:
            return None
        sent = rung.ceiling if self._fit is None else self._fit.ceiling(rung.ceiling, size, script)
        return None if sent is None else sent * int(prompt.parameters.get("n") or 1)


def _decision(sink: Sink, plan: Plan) -> tuple[str, str | None]:
    try:
        return sink.decide(plan.run_key, plan.job_key), None
    except SinkError as error:
        return "refuse", str(error)


def _told(
    job: Job,
    counting: _Counting,
    known: Sequence[Counted],
    *,
    prices: Prices | None,
    decision: str,
    refused: str | None,
) -> JobPlan:
    prompts = tuple(
        _prompt_plan(prompt.into, str(prompt.content().get("prompt")), counts, known)
        for prompt, counts in zip(job.prompts, counting.counts, strict=True)
    )
    prompt_tokens, completion_tokens = NOTHING, NOTHING
    for prompt in prompts:
        prompt_tokens += prompt.prompt_tokens
        completion_tokens += prompt.completion_tokens
    requests = sum(prompt.requests for prompt in prompts)
    if prices is None:
        prices = prices_of(job.prices, url=job.endpoint.url, model=job.endpoint.model)
    cost = None if prices is None else cost_of(prices, prompt_tokens, completion_tokens)
    return JobPlan(
        rows=counting.rows,
        requests=requests,
        prompts=prompts,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost=cost,
        prices=None if prices is None else prices.origin,
        seconds=seconds_at_limits(
            requests,
            prompt_tokens.expected + completion_tokens.expected,
            requests_per_minute=job.limits.requests_per_minute,
            tokens_per_minute=job.limits.tokens_per_minute,
        ),
        sink=decision,
        notes=tuple(_notes(job, counting, prompts, (prompt_tokens + completion_tokens, cost), refused)),
        billed_by="hours" if isinstance(job.endpoint, SageMakerTransform) else "tokens",
    )


def _prompt_plan(into: str, kind: str, counts: Counts, known: Sequence[Counted]) -> PromptPlan:
    prompt_tokens, completion_tokens, rests_on = estimate(kind, counts.sizes, counts.usage, known)
    if counts.ceilings is not None:
        completion_tokens = below(completion_tokens, counts.ceilings)
    return PromptPlan(
        into=into,
        blank=counts.blank,
        unaskable=counts.unaskable,
        stored=counts.stored,
        duplicates=counts.duplicates,
        requests=counts.requests,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        rests_on=rests_on,
    )


def cost_of(prices: Prices, prompt: Interval, completion: Interval) -> Interval:
    """Give the cost of tokens in US dollars."""
    return Interval(
        low=prices.cost(prompt.low, completion.low),
        expected=prices.cost(prompt.expected, completion.expected),
        high=prices.cost(prompt.high, completion.high),
    )


def seconds_at_limits(
    requests: int, tokens: float, *, requests_per_minute: float | None, tokens_per_minute: float | None
) -> float | None:
    """Give the seconds that the stated rates demand at least; None where none is stated."""
    needed = []
    if requests_per_minute is not None:
        needed.append(requests * 60 / requests_per_minute)
    if tokens_per_minute is not None:
        needed.append(tokens * 60 / tokens_per_minute)
    return max(needed, default=None)


def _notes(
    job: Job,
    counting: _Counting,
    prompts: Sequence[PromptPlan],
    spent: tuple[Interval, Interval | None],
    refused: str | None,
) -> list[str]:
    notes = []
    if refused is not None:
        notes.append(f"a run would refuse the sink: {refused}")
    if not counting.with_store and job.mode != "off":
        # Called from another folder, a relative path is another store, whose answers would all be bought again.
        where = store_path(job.store).absolute() if job.store.startswith("sqlite:") else shown_url(job.store)
        notes.append(f"there is no store yet at {where}: no answer is found there")
    if counting.elsewhere is not None:
        notes.append(
            "no row is in the store under the identity of this endpoint, but rows are under another one, as when a "
            f"server has moved; if it is the same model that answers, write under the endpoint: {counting.elsewhere}"
        )
    if isinstance(job.endpoint, SageMakerTransform):
        sizes = [size for counts in counting.counts for size in counts.sizes.values()]
        job_of_rows = estimate_transform(
            job.endpoint,
            requests=sum(size.requests for size in sizes),
            characters=sum(size.characters for size in sizes),
            tokens=spent[0],
        )
        notes.append(job_of_rows.told())
    for prompt in prompts:
        asked = prompt.duplicates + prompt.requests
        if prompt.duplicates:
            which = f"{asked:,} rows, {prompt.requests:,} request{'s' if prompt.requests != 1 else ''}"
            notes.append(
                f"{prompt.into}: {which}: rows with equal text share one answer; "
                "where each needs its own, name a column in vary_by"
            )
    if any(counts.parts for counts in counting.counts):
        notes.append("images, audio and video are not in the estimate: only text is counted")
    if job.mode == "refresh":
        notes.append(
            "the mode is refresh: answers that an interrupted run has refreshed already count as missing"
        )
    if job.mode == "replay" and any(prompt.requests for prompt in prompts):
        notes.append("the mode is replay: a run would end at the first request that is not stored")
    return notes + _of_the_budget(job.budget, *spent)


def _of_the_budget(budget: Budget | None, tokens: Interval, cost: Interval | None) -> list[str]:
    notes = []
    if budget is not None and budget.tokens is not None and budget.tokens < tokens.high:
        surely = "is not enough" if budget.tokens < tokens.low else "may not be enough"
        notes.append(f"the budget of {budget.tokens:,} tokens {surely}")
    if budget is not None and budget.usd is not None:
        if cost is None:
            notes.append(
                "the budget is in US dollars and no price is known: a run would refuse; state prices"
            )
        elif budget.usd < cost.high:
            surely = "is not enough" if budget.usd < cost.low else "may not be enough"
            notes.append(f"the budget of ${budget.usd:,.2f} {surely}")
    return notes
