"""Which rows a transform job has to answer: the misses of a run, told from store, running jobs and failures before.

A row that lies in a job which somebody has started is waited for and never sent a second time. The rest is written
into shards: new rows by size, rows that failed together as the group that they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from corpusmill.chat.wire import Encoder
from corpusmill.engine.ladder import stored_answer
from corpusmill.killpoints import reach
from corpusmill.rows.render import characters
from corpusmill.rows.script import script_of_messages
from corpusmill.rows.seen import SeenKeys
from corpusmill.transform.keys import KeyNumbers, LineKey, read_keys
from corpusmill.transform.lines import wrap
from corpusmill.transform.shards import HALVED_FROM, Spool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from corpusmill.endpoints.sagemaker import SageMakerTransform
    from corpusmill.outcome import Status
    from corpusmill.prompts.prompt import Rendered
    from corpusmill.rows.fit import Fit
    from corpusmill.rows.render import Asked, Renderer
    from corpusmill.store.protocol import Store
    from corpusmill.transform.records import OpenJob, Records

NEW: Final = 1 << 40
"""The number of a key that has neither a job to wait for nor a failure behind it."""

FAILED: Final = "transform_failed"

Refusal = tuple[str, str]
"""Kind and reason of a row that no job is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of a run: chunks of the source, from the beginning at each call, and what is asked of them."""

    chunks: Callable[[], Iterable[Any]]
    renderers: list[Renderer]
    store: Store
    fit: Fit | None
    not_before: float | None = None
    refresh: frozenset[Status] | None = None


@dataclass(slots=True, kw_only=True)
class Plan:
    """What a look at all rows has found.

    `awaited` are the names of open jobs that hold missing rows of this run, `touched` of those that hold any of its
    rows. `refused` are rows that no job is asked for, by their keys. `rows` counts those that have no answer. `new`
    tells whether there is anything to send.
    """

    awaited: list[str]
    touched: list[str]
    spool: Spool
    refused: dict[bytes, Refusal]
    rows: int = 0

    @property
    def new(self) -> bool:
        """Whether there are shards to send."""
        return bool(self.spool.shards)


class _Failed(NamedTuple):
    """A group of lines that failed together: how often, why, and in which job (its number)."""

    fails: int
    reason: str
    job: int


class _Known:
    """What open jobs tell of keys: of each the number of the last job that has it, or below zero that of its group."""

    def __init__(self, jobs: Sequence[OpenJob]) -> None:
        """Know nothing yet of the jobs that are to be learnt from."""
        self._numbers = KeyNumbers(sum(job.plan.rows for job in jobs))
        self._awaited: list[bool] = []
        self._before: list[set[int]] = []
        self.groups: list[_Failed] = []

    def learn(self, job: OpenJob, packed: Iterable[bytes], *, collected: bool) -> None:
        """Learn from an open job; later ones count more than earlier ones."""
        number, settled = len(self._awaited), job.settled
        self._awaited.append(settled is None or not collected)
        before: set[int] = set()
        self._before.append(before)
        for index, (shard, keys) in enumerate(zip(job.plan.shards, packed, strict=True)):
            missing: set[int] = set()
            if settled is not None and index in settled.missing:
                missing = set(settled.missing[index])
                guilty = settled.ended in {"lines", "completed"}
                reason = settled.reasons.get(index, settled.reason)
                self.groups.append(_Failed(shard.fails + guilty, reason, number))
            for position, line in enumerate(read_keys(keys)):
                if number and (noted := self._numbers.get(line.key)) is not None:
                    before.add(self._job(noted))
                self._numbers.put(line.key, -len(self.groups) if position in missing else number)

    def place(self, key: bytes) -> int:
        """Give the number of a job to wait for, `NEW`, or below zero that of a group that failed."""
        noted = self._numbers.get(key)
        return NEW if noted is None or (noted >= 0 and not self._awaited[noted]) else noted

    def holding(self, asked: list[Asked]) -> set[int]:
        """Give the numbers of the jobs that hold any of these requests."""
        if not len(self._numbers):
            return set()
        found = {self._numbers.get(key) for prompt in asked for key in prompt.keys if key is not None}
        return {self._job(number) for number in found if number is not None}

    def with_earlier(self, jobs: set[int]) -> set[int]:
        """Add the jobs that lines of these have gone through before: their numbers are smaller."""
        found = set(jobs)
        for number in range(len(self._before) - 1, -1, -1):
            if number in found:
                found |= self._before[number]
        return found

    def _job(self, number: int) -> int:
        """Give the number of the job that the number of a key stands for."""
        return number if number >= 0 else self.groups[-number - 1].job


def plan_rows(
    rows: Rows,
    endpoint: SageMakerTransform,
    records: Records,
    *,
    collected: set[str],
    folder: Path,
) -> Plan:
    """Look at all rows, and spool what has to be sent; `collected` are the jobs whose answers are in the store."""
    jobs = records.open_jobs(endpoint.identity)
    known = _Known(jobs)
    for job in jobs:
        known.learn(job, records.keys(job.plan), collected=job.plan.name in collected)
    spool = Spool(folder, rows=endpoint.shard_rows, size=endpoint.shard_bytes)
    plan = Plan(awaited=[], touched=[], spool=spool, refused={})
    awaited: set[int] = set()
    touched: set[int] = set()
    seen = SeenKeys()
    writer = _LineWriter(endpoint, rows.fit)
    for chunk in rows.chunks():
        asked = [renderer.ask(chunk.batch) for renderer in rows.renderers]
        touched |= known.holding(asked)
        for renderer, key, rendered, ceiling, raised in _misses(rows, endpoint, asked):
            if not seen.add(key):
                continue
            plan.rows += 1
            place = known.place(key)
            if 0 <= place < NEW:
                awaited.add(place)
                continue
            fails, reason = known.groups[-place - 1][:2] if place < 0 else (0, "")
            if fails >= HALVED_FROM and endpoint.real_time is not None:
                continue  # it is left to real time
            text, line = writer.write(renderer, key, rendered, ceiling, raised=raised)
            if not isinstance(text, bytes):
                plan.refused[key] = text
            elif place < 0:
                spool.add_again(-place - 1, text, line, fails=fails, reason=reason)
            else:
                spool.add(text, line)
    for packed, reason in spool.finish():
        (line,) = read_keys(packed)
        plan.refused[line.key] = (FAILED, f"this row failed alone in a transform job: {reason}")
    plan.awaited = [jobs[number].plan.name for number in sorted(awaited)]
    plan.touched = [jobs[number].plan.name for number in sorted(known.with_earlier(touched))]
    reach("transform.planned")
    return plan


def _misses(
    rows: Rows, endpoint: SageMakerTransform, asked: list[Asked]
) -> Iterable[tuple[Renderer, bytes, Rendered, int | None, bool]]:
    wanted = list({key for prompt in asked for key in prompt.keys if key is not None})
    found = rows.store.get_many(wanted) if wanted else {}
    for renderer, ours in zip(rows.renderers, asked, strict=True):
        for row, key in enumerate(ours.keys):
            if key is None:
                continue
            rung = stored_answer(
                found.get(key, ()),
                ours,
                row,
                context=endpoint.capabilities.context_tokens,
                not_before=rows.not_before,
                refresh=rows.refresh,
            )
            if rung.entry is None:
                yield renderer, key, ours.rendered(row), rung.ceiling, bool(rung.raised)


class _LineWriter:
    """Writes the line of a request, or says why there is none."""

    def __init__(self, endpoint: SageMakerTransform, fit: Fit | None) -> None:
        self._encode = Encoder(endpoint).encode
        self._fit = fit
        self._wrap = endpoint.wrap
        self._largest = (endpoint.max_payload_mb or 100) << 20

    def write(
        self, renderer: Renderer, key: bytes, rendered: Rendered, ceiling: int | None, *, raised: bool
    ) -> tuple[bytes | Refusal, LineKey]:
        size, script = characters(rendered.messages), script_of_messages(rendered.messages)
        line = LineKey(key, ceiling, size, script)
        sent = ceiling
        if self._fit is not None:
            reason = self._fit.too_long(size, script)
            if reason is not None:
                return ("context_overflow", reason), line
            if not raised:
                sent = self._fit.ceiling(ceiling, size, script)
        try:
            body = self._encode(renderer.request(rendered, ceiling=sent))
        except (UnicodeEncodeError, TypeError, ValueError, OverflowError) as error:
            return ("unsendable", f"the request cannot be written as JSON: {type(error).__name__}"), line
        if len(body) >= self._largest:
            reason = f"the request has {len(body)} bytes; max_payload_mb allows {self._largest}"
            return ("too_large", reason), line
        return wrap(key, body) if self._wrap else body, line
