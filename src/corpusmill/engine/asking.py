"""One request, from the moment it is missing to the moment its answer is durable.

What holds: a request is on the wire only while it has a permit and a claim in the store; the permit is given back
only after the answer is durable, so that what is sent and not yet committed never exceeds the concurrency; nobody
sleeps holding a permit.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from corpusmill.chat.retry import with_retries
from corpusmill.chat.verdict import (
    Accepted,
    ComesBackLater,
    RetryAfter,
    RowFailed,
    RunEnds,
    Unparsed,
    Verdict,
)
from corpusmill.engine.reserving import Estimate, Reserve, Reserved
from corpusmill.engine.stored import answer_of
from corpusmill.errors import ComeBackLaterError, RunEndedError
from corpusmill.exchange import Completion, ending_of
from corpusmill.killpoints import reach
from corpusmill.rows.judge import Answer, is_empty, next_ceiling
from corpusmill.rows.render import characters
from corpusmill.rows.script import script_of_messages
from corpusmill.store.protocol import Cost, Entry, Put, Release, Wanted
from corpusmill.store.serving import choose

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpusmill.chat.client import Client
    from corpusmill.engine.pages import OpenChunk
    from corpusmill.engine.passes import Passes
    from corpusmill.engine.tally import Wire
    from corpusmill.outcome import Status
    from corpusmill.policy import Budget, RetryPolicy
    from corpusmill.prompts.prompt import Rendered
    from corpusmill.rows.fit import Fit
    from corpusmill.rows.render import Renderer
    from corpusmill.store.protocol import Membership, Store
    from corpusmill.store.writer import GroupWriter

_log = logging.getLogger("corpusmill")

HELD_POLL = 0.25
"""Seconds between two looks at a key that another process is asking."""

FIRST_ALONE = 1.0
"""Seconds for which a run's first request is alone: a wrong key or model is mostly told at once."""

NO_QUOTA_RESET = 3_600.0
"""Seconds that a used-up quota is remembered for when the endpoint does not say when it resets."""


@dataclass(slots=True)
class Pending:
    """A distinct request that has no answer yet, and the rows that wait for it.

    `raised` counts how often stored answers have led its `ceiling` upwards already. `failed` tells that an attempt has
    come to a verdict that says `down`.
    """

    key: bytes
    ceiling: int | None
    renderer: Renderer
    rendered: Rendered
    shape: str
    not_before: float | None = None
    waiters: list[tuple[OpenChunk, int, int]] = field(default_factory=list)
    followers: list[Pending] = field(default_factory=list)
    rejected: int = 0
    raised: int = 0
    failed: bool = False


@dataclass(frozen=True, slots=True)
class _NotAsked:
    """No attempt was made: another live process is asking this key (`held`), or has answered it meanwhile."""

    held: bool
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The conditions under which a run asks: conduct, and which stored answers it accepts.

    Only answers given at `not_before` (Unix seconds) or later are accepted; where `refresh` is set, this holds for
    those answers alone that amount to one of its statuses. `fit` tells what is too long for the context, `refused`
    gives kind and reason for a request key that is not to be asked at all.
    """

    retry: RetryPolicy
    budget: Budget | None
    context_tokens: int | None
    not_before: float | None
    refresh: frozenset[Status] | None
    price: Callable[[int, int], float] | None
    fit: Fit | None = None
    refused: Callable[[bytes], tuple[str, str] | None] | None = None


class Asker:
    """Asks one request at a time, as often as it takes."""

    def __init__(
        self,
        *,
        client: Client,
        passes: Passes,
        writer: GroupWriter,
        store: Store,
        member: Membership,
        terms: Terms,
        identity: str,
        model: str,
        wire: Wire,
        sleep: Callable[[float], Any],
        end: Callable[[BaseException], None],
    ) -> None:
        """Take what a run has opened, in its event loop.

        `sleep` is how a request waits without holding anything; `end` is told at once what ends the run, so that
        nothing is sent any more.
        """
        self._client = client
        self._passes = passes
        self._writer = writer
        self._store = store
        self._member = member
        self._terms = terms
        self._identity = identity
        self._model = model
        self._wire = wire
        self._sleep = sleep
        self._end = end
        self._none_sent = True
        self._heard = asyncio.Event()
        self._estimate = Estimate()
        self._reserve = Reserve(store, member, budget=terms.budget, price=terms.price, sleep=sleep)
        self._probing = asyncio.Lock() if store.quota(identity) is not None else None
        self.in_the_air: set[asyncio.Task[Any]] = set()
        self.ended = False

    async def ask(self, pending: Pending) -> Answer:
        """Give the answer of a request: a stored one that came meanwhile, a live one, or a failure.

        Raises what ends the run.
        """
        known = self._known_to_fail(pending)
        if known is not None:
            return Answer(error=known[1], kind=known[0], origin="unanswered")
        ceiling, raised = self._first_ceiling(pending), pending.raised
        attempts, seconds = 0, 0.0
        while True:
            verdict, tried, took = await self._until_settled(pending, ceiling)
            attempts += tried
            seconds += took
            completion = None if isinstance(verdict, RowFailed) else verdict.completion
            if completion is not None:
                following = self._raise_ceiling(pending, completion, ceiling, raised)
                if following is not None:
                    ceiling, raised = following, raised + 1
                    self._wire.retries["length"] += isinstance(verdict, Accepted)
                    continue
            noted = (f"ceiling_raised {ceiling}",) if raised else ()
            if isinstance(verdict, Answer):
                took_part = seconds if attempts else None
                return replace(verdict, attempts=attempts, seconds=took_part, notes=noted)
            if isinstance(verdict, Accepted):
                notes = (*verdict.notes, *noted)
                return Answer(
                    completion=verdict.completion,
                    kind=_kind(verdict),
                    origin="live",
                    attempts=attempts,
                    seconds=seconds,
                    request_id=verdict.request_id,
                    notes=notes,
                )
            assert isinstance(verdict, RowFailed)
            return Answer(
                error=verdict.reason,
                kind=verdict.kind,
                origin="unanswered",
                attempts=attempts,
                seconds=seconds,
                request_id=verdict.request_id,
            )

    def _known_to_fail(self, pending: Pending) -> tuple[str, str] | None:
        """Give kind and reason of a failure that is certain before anything is sent."""
        refused, fit = self._terms.refused, self._terms.fit
        known = refused(pending.key) if refused is not None else None
        if known is None and fit is not None:
            messages = pending.rendered.messages
            reason = fit.too_long(characters(messages), script_of_messages(messages))
            known = None if reason is None else ("context_overflow", reason)
        return known

    def _first_ceiling(self, pending: Pending) -> int | None:
        fit = self._terms.fit
        if fit is None or pending.raised:
            return pending.ceiling
        messages = pending.rendered.messages
        return fit.ceiling(pending.ceiling, characters(messages), script_of_messages(messages))

    def _raise_ceiling(
        self, pending: Pending, completion: Completion, ceiling: int | None, raised: int
    ) -> int | None:
        prompt = pending.renderer.prompt
        return next_ceiling(
            completion,
            ceiling=ceiling,
            highest=prompt.escalate_to,
            context=self._terms.context_tokens,
            raised=raised,
        )

    async def _until_settled(
        self, pending: Pending, ceiling: int | None
    ) -> tuple[Accepted | RowFailed | Answer, int, float]:
        attempts = 0
        seconds = 0.0

        async def attempt(_number: int) -> Verdict | _NotAsked:
            nonlocal attempts, seconds
            verdict = await self._attempt(pending, ceiling)
            if not isinstance(verdict, _NotAsked):
                attempts += 1
                seconds += verdict.seconds
            return verdict

        while True:
            verdict = await with_retries(attempt, self._terms.retry, sleep=self._sleep, random=random.random)
            if isinstance(verdict, _NotAsked):
                # In a thread, for a store may be waited for while answers come in.
                answer = None if verdict.held else await asyncio.to_thread(self._look_up, pending, ceiling)
                if answer is not None:
                    return answer, attempts, seconds
                await self._sleep(HELD_POLL)
                continue
            if isinstance(verdict, RunEnds | ComesBackLater):
                raise _ending(verdict)
            assert isinstance(verdict, Accepted | RowFailed), verdict
            if isinstance(verdict, RowFailed):
                # The reason may quote the row, so it goes into the outcome and not into a log.
                _log.info(
                    "no answer: %s after %d attempts (request key %s, request id %s)",
                    verdict.kind,
                    attempts,
                    pending.key.hex(),
                    verdict.request_id,
                )
            return verdict, attempts, seconds

    async def _attempt(self, pending: Pending, ceiling: int | None) -> Verdict | _NotAsked:
        if self.ended:
            raise asyncio.CancelledError("the run is ending, and nothing is asked again")
        probing = self._probing
        if probing is not None:
            # Somebody has noted that a quota is used up. One request finds out whether it still is.
            async with probing:
                if self._probing is not None:
                    return await self._probe_quota(pending, ceiling)
        await self._let_one_ahead()
        return await self._try_once(pending, ceiling)

    async def _probe_quota(self, pending: Pending, ceiling: int | None) -> Verdict | _NotAsked:
        verdict = await self._try_once(pending, ceiling)
        if isinstance(verdict, Accepted):
            self._probing = None
            await asyncio.to_thread(self._store.clear_quota, self._identity)
        return verdict

    async def _let_one_ahead(self) -> None:
        """Wait for what the first request comes to, though not for long: it may be a slow one."""
        if self._none_sent:
            self._none_sent = False
            asyncio.get_running_loop().call_later(FIRST_ALONE, self._heard.set)
        else:
            await self._heard.wait()

    async def _try_once(self, pending: Pending, ceiling: int | None) -> Verdict | _NotAsked:
        size = characters(pending.rendered.messages)
        tokens = self._estimate.tokens(size, ceiling)
        reserved = await self._reserve.take(self._estimate, size, ceiling)
        async with self._passes.permit(tokens, again=pending.failed) as permit:
            task = asyncio.current_task()
            assert task is not None
            self.in_the_air.add(task)
            self._wire.in_flight += 1
            try:
                reach("claiming")
                claim = await self._writer.claim(Wanted(pending.key, ceiling, pending.not_before))
                if claim in ("held", "answered"):
                    self._heard.set()
                    await self._give_back(pending, reserved)
                    return _NotAsked(held=claim == "held")
                if claim == "granted_again":
                    self._wire.possibly_paid_twice += 1
                reach("sending")
                verdict = await self._send(pending, ceiling)
                self._wire.attempts += 1
                verdict = permit.settle(verdict, _used(verdict))
                self._passes.used(tokens, _used(verdict))
                pending.failed = pending.failed or (isinstance(verdict, RetryAfter) and verdict.down)
                if isinstance(verdict, RunEnds | ComesBackLater):
                    self._end(_ending(verdict))
                    await asyncio.to_thread(self._note_quota, verdict)
                else:
                    self._heard.set()
                return await self._settle(pending, ceiling, verdict, size, reserved)
            finally:
                self._wire.in_flight -= 1
                self.in_the_air.discard(task)

    async def _give_back(self, pending: Pending, reserved: Reserved) -> None:
        """Give a reservation back that nothing was asked for."""
        if reserved != Reserved():
            cost = Cost(attempts=0, reserved_tokens=reserved.tokens, reserved_usd=reserved.usd)
            await self._writer.release(Release(key=pending.key, possibly_paid=False, cost=cost))

    async def _send(self, pending: Pending, ceiling: int | None) -> Verdict:
        request = pending.renderer.request(pending.rendered, ceiling=ceiling)
        try:
            return await self._client.send(request, deadline=self._terms.retry.deadline)
        except asyncio.CancelledError:
            # Torn away while the request was out: it may be computed and paid, and the store has to remember that.
            lost = self._writer.release(Release(key=pending.key, possibly_paid=True))
            lost.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    async def _settle(
        self, pending: Pending, ceiling: int | None, verdict: Verdict, size: int, reserved: Reserved
    ) -> Verdict:
        """Make durable what an attempt came to, before the permit is given back."""
        cost = Cost(attempts=1, reserved_tokens=reserved.tokens, reserved_usd=reserved.usd)
        if isinstance(verdict, Accepted):
            self._learn(verdict, size)
            await self._writer.put(self._put(pending, ceiling, verdict, size, cost))
            reach("stored")
            return verdict
        if isinstance(verdict, Unparsed):
            pending.rejected += 1
            await self._writer.put(self._put_rejected(pending, ceiling, verdict, cost))
            if pending.rejected > 1:
                return RowFailed(
                    kind="unparsed",
                    reason=f"{verdict.reason} (twice)",
                    request_id=verdict.request_id,
                    seconds=verdict.seconds,
                )
            self._wire.retries["unparsed"] += 1
            return verdict
        possibly_paid = isinstance(verdict, RetryAfter | RowFailed) and verdict.possibly_paid
        await self._writer.release(Release(key=pending.key, possibly_paid=possibly_paid, cost=cost))
        if isinstance(verdict, RetryAfter):
            _log.debug(
                "trying again: %s (request key %s, request id %s)",
                verdict.kind,
                pending.key.hex(),
                verdict.request_id,
            )
            self._wire.retries[verdict.kind] += 1
            if verdict.rate_limited:
                self._wire.rate_limited += 1
        return verdict

    def _learn(self, verdict: Accepted, size: int) -> None:
        completion = verdict.completion
        self._wire.live += 1
        self._wire.answered(verdict.seconds, completion.prompt_tokens, completion.completion_tokens)
        self._estimate.learn(size, completion.prompt_tokens, completion.completion_tokens)

    def _put(self, pending: Pending, ceiling: int | None, verdict: Accepted, size: int, cost: Cost) -> Put:
        if ceiling is not None and pending.ceiling is not None:
            # Where the context leaves less than was wanted, the answer is the one to what was wanted all the same.
            ceiling = max(ceiling, pending.ceiling)
        completion = verdict.completion
        prompt_tokens, completion_tokens = completion.prompt_tokens or 0, completion.completion_tokens or 0
        price = self._terms.price
        return Put(
            entry=Entry(
                pending.key,
                completion.body,
                ceiling,
                completion.finish_reason,
                completion.prompt_tokens,
                completion.completion_tokens,
                completion.choices,
                time.time(),
                self._member.invocation,
            ),
            cost=replace(
                cost,
                prompt_tokens=prompt_tokens,
                completion_tokens=completion_tokens,
                usd=price(prompt_tokens, completion_tokens) if price else 0.0,
            ),
            model=self._model,
            characters=size,
            script=script_of_messages(pending.rendered.messages),
            shape=pending.shape,
            fields=pending.renderer.message_fields(pending.rendered),
        )

    def _put_rejected(self, pending: Pending, ceiling: int | None, verdict: Unparsed, cost: Cost) -> Put:
        return Put(
            entry=Entry(
                pending.key,
                verdict.body,
                ceiling,
                None,
                None,
                None,
                0,
                time.time(),
                self._member.invocation,
                "rejected",
            ),
            cost=cost,
            model=self._model,
        )

    def _look_up(self, pending: Pending, ceiling: int | None) -> Answer | None:
        """Give the stored answer under this very ceiling; whether it is high enough is for the caller to see."""
        entries = self._store.get_many([pending.key]).get(pending.key, [])
        entry = choose(entries, ceiling, pending.not_before)
        return None if entry is None else answer_of(entry, self._member.invocation)

    def _note_quota(self, verdict: RunEnds | ComesBackLater) -> None:
        if isinstance(verdict, ComesBackLater):
            resets_at = verdict.resets_at
            until = resets_at.timestamp() if resets_at else time.time() + NO_QUOTA_RESET
            self._store.set_quota(self._identity, resets_at=until, reason=verdict.reason)


def _ending(verdict: RunEnds | ComesBackLater) -> RunEndedError:
    """Give the error with which a verdict ends the run."""
    if isinstance(verdict, RunEnds):
        return verdict.error
    resets_at = verdict.resets_at
    when = (
        f"it resets at {resets_at:%Y-%m-%d %H:%M:%S} UTC"
        if resets_at
        else "the endpoint did not say until when"
    )
    return ComeBackLaterError(
        f"a quota of the endpoint is used up ({verdict.reason}); {when}. "
        "What was answered is kept; run the same job again then",
        resets_at=resets_at,
    )


def _used(verdict: Verdict) -> int | None:
    if isinstance(verdict, Accepted):
        completion = verdict.completion
        if completion.prompt_tokens is not None:
            return completion.prompt_tokens + (completion.completion_tokens or 0)
    return None


def _kind(verdict: Accepted) -> str | None:
    """Name the sort of an answer that is none, for the counts and for telling a broken endpoint."""
    completion = verdict.completion
    if ending_of(completion.finish_reason) == "cut":
        return "truncated"
    if is_empty(completion):
        return "empty_answer"
    return None
