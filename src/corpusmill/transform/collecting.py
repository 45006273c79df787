"""The outputs of a job become answers in the store, each under the key of its request.

Reading an output twice stores nothing twice, so that a run that was killed while it collected begins again.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from corpusmill.killpoints import reach
from corpusmill.store.protocol import Cost, Entry, Put
from corpusmill.transform.lines import Tally, read_joined, read_plain, request_id, split_lines
from corpusmill.transform.records import Records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from corpusmill.endpoints.sagemaker import SageMakerTransform
    from corpusmill.store.protocol import Membership, Store
    from corpusmill.transform.aws import Aws
    from corpusmill.transform.keys import LineKey
    from corpusmill.transform.lines import LineAnswer
    from corpusmill.transform.records import JobPlan, Shard

GROUP: Final = 256
"""Answers that are stored in one transaction."""

SLACK: Final = 2.0
"""Seconds by which an output may seem older than its job: S3 stamps whole seconds."""


@dataclass(slots=True, kw_only=True)
class Collected:
    """What has been collected of a job so far, by the number of the shard: lines without an answer, and why."""

    missing: dict[int, list[int]] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    answers: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Collector:
    """Takes the outputs of one model's jobs into a store."""

    def __init__(
        self,
        endpoint: SageMakerTransform,
        aws: Aws,
        store: Store,
        member: Membership,
        *,
        price: Callable[[int, int], float] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Store under the membership of a run; `price` gives US dollars for prompt and completion tokens."""
        self._endpoint = endpoint
        self._aws = aws
        self._records = Records(aws)
        self._store = store
        self._member = member
        self._price = price
        self._wall = wall

    def collect(self, plan: JobPlan, sofar: Collected, *, created: float) -> None:
        """Take in the outputs that have come since the last look, but none that is older than the job."""
        shards = {f"{shard.name}.jsonl.out": number for number, shard in enumerate(plan.shards)}
        for name, written in self._aws.list(f"jobs/{plan.name}/output/"):
            number = shards.get(name.rpartition("/")[2])
            if number is None or number in sofar.missing or written < created - SLACK:
                continue
            body = self._aws.open(f"jobs/{plan.name}/output/{name}")
            if body is None:
                continue
            self._take(plan, number, self._records.lines(plan, number), split_lines(body), sofar)

    def _take(
        self, plan: JobPlan, number: int, lines: list[LineKey], output: Iterator[bytes], sofar: Collected
    ) -> None:
        shard = plan.shards[number]
        tally = Tally()
        found, why = self._read(plan, shard, lines, output, tally)
        answered: set[bytes] = set()
        reasons: dict[str, int] = {}
        while group := list(itertools.islice(found, GROUP)):
            good = []
            for answer in group:
                if answer.completion is None:
                    reasons[answer.reason or ""] = reasons.get(answer.reason or "", 0) + 1
                else:
                    answered.add(answer.line.key)
                    good.append(answer)
            reach("transform.collecting")
            self._keep(good, sofar)
            reach("transform.collected")
        # Only now: an output that breaks off is read again from its beginning.
        sofar.answers += len(answered)
        sofar.missing[number] = [place for place, line in enumerate(lines) if line.key not in answered]
        if sofar.missing[number]:
            said = max(reasons, key=lambda reason: reasons[reason], default=why)
            # A filter that loses the ids, or another container's lines: without this nobody would see it.
            odd = f" (odd lines of the output: {tally})" if str(tally) else ""
            sofar.reasons[number] = said + odd

    def _read(
        self, plan: JobPlan, shard: Shard, lines: list[LineKey], output: Iterator[bytes], tally: Tally
    ) -> tuple[Iterator[LineAnswer], str]:
        endpoint = self._endpoint
        if not endpoint.join:
            answers = read_plain(output, lines)
            why = f"the output of its shard has another number of lines than the {len(lines)} that were sent"
            return iter(answers or ()), why
        by_id: Mapping[str, Sequence[LineKey]] = {line.key.hex(): (line,) for line in lines}
        if not endpoint.wrap:
            by_id = self._by_request(plan, shard, lines)
        return (
            read_joined(output, by_id, tally, wrapped=endpoint.wrap),
            "the output of its shard does not hold this line",
        )

    def _by_request(self, plan: JobPlan, shard: Shard, lines: list[LineKey]) -> dict[str, list[LineKey]]:
        """Give the lines of each request: those of draws that vary_by tells apart ask the same."""
        body = self._aws.open(f"jobs/{plan.name}/input/{shard.name}.jsonl")
        found: dict[str, list[LineKey]] = {}
        for text, line in zip(split_lines(body or ()), lines, strict=False):
            found.setdefault(request_id(msgspec.json.decode(text)), []).append(line)
        return found

    def _keep(self, answers: list[LineAnswer], sofar: Collected) -> None:
        stored = self._store.get_many([answer.line.key for answer in answers]) if answers else {}
        puts = []
        for answer in answers:
            completion, line = answer.completion, answer.line
            assert completion is not None
            if any(entry.body == completion.body for entry in stored.get(line.key, ())):
                continue
            prompt, made = completion.prompt_tokens or 0, completion.completion_tokens or 0
            sofar.prompt_tokens += prompt
            sofar.completion_tokens += made
            puts.append(
                Put(
                    entry=Entry(
                        line.key,
                        completion.body,
                        line.ceiling,
                        completion.finish_reason,
                        completion.prompt_tokens,
                        completion.completion_tokens,
                        completion.choices,
                        self._wall(),
                        self._member.invocation,
                    ),
                    cost=Cost(
                        attempts=1,
                        prompt_tokens=prompt,
                        completion_tokens=made,
                        usd=self._price(prompt, made) if self._price else 0.0,
                    ),
                    model=self._endpoint.model,
                    characters=line.characters,
                    script=line.script,
                )
            )
        if puts:
            self._store.write(self._member.owner, puts=puts)
