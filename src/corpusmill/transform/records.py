"""What is written down about transform jobs, in S3, so that any machine can take them up.

Under the prefix lie, for a job: `jobs/NAME/input/` (the shards), `jobs/NAME/keys` (what each line is),
`jobs/NAME/plan.json` (written before the job is created), `jobs/NAME/output/` (written by the service), and
`jobs/NAME/settled.json` (what it came to). `open/NAME` stands for a job that somebody may still need: from before it
is created until the output that it was for is committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from corpusmill.errors import StoreError
from corpusmill.transform.keys import RECORD_BYTES, LineKey, read_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from corpusmill.transform.aws import Aws

T = TypeVar("T")

Ended = Literal["completed", "lines", "passing", "lasting", "stopped"]
"""How a job ended: all well, some lines failed, or it failed or was stopped for no fault of any line."""


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """One object of a job: its lines, and how often lines of it have failed together before."""

    name: str
    rows: int
    size: int
    fails: int = 0


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is written down before it is created.

    `turn` counts the jobs that one output took; `tries` how many before this one failed in passing, in a row.
    `request` are the arguments of CreateTransformJob.
    """

    name: str
    identity: str
    turn: int
    tries: int
    shards: list[Shard]
    request: dict[str, Any]
    format: int = 1

    @property
    def rows(self) -> int:
        """Lines in all shards."""
        return sum(shard.rows for shard in self.shards)


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What a job came to: by the number of a shard the numbers of its lines that have no answer, and why.

    A shard without any output has all of its lines there.
    """

    ended: Ended
    status: str
    reason: str
    missing: dict[int, list[int]]
    reasons: dict[int, str]


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A job that somebody may still need; `settled` is None while it has not been seen to its end."""

    plan: JobPlan
    settled: Settled | None


_decode_plan = msgspec.json.Decoder(JobPlan).decode
_decode_settled = msgspec.json.Decoder(Settled).decode


class Records:
    """Reads and writes what is written down."""

    def __init__(self, aws: Aws) -> None:
        """Keep it where the shards are."""
        self._aws = aws

    def open_jobs(self, identity: str) -> list[OpenJob]:
        """Give the open jobs that ask this model, in the order of their turns."""
        found = []
        for name, _ in self._aws.list("open/"):
            plan = self.plan(name)
            if plan is not None and plan.identity == identity:
                found.append(OpenJob(plan, self.settled(name)))
        return sorted(found, key=lambda job: (job.plan.turn, job.plan.name))

    def plan(self, name: str) -> JobPlan | None:
        """Read the plan of a job; None when there is none."""
        return _read(self._aws, f"jobs/{name}/plan.json", _decode_plan)

    def settled(self, name: str) -> Settled | None:
        """Read what a job came to; None when nobody has seen its end."""
        return _read(self._aws, f"jobs/{name}/settled.json", _decode_settled)

    def write_plan(self, plan: JobPlan) -> None:
        """Write a plan down, as the last thing before the job may be created."""
        self._aws.put(f"jobs/{plan.name}/plan.json", msgspec.json.encode(plan))
        self._aws.put(f"open/{plan.name}", b"")

    def settle(self, name: str, settled: Settled) -> None:
        """Write down what a job came to."""
        self._aws.put(f"jobs/{name}/settled.json", msgspec.json.encode(settled))

    def close(self, name: str) -> None:
        """Say that nobody needs this job any more."""
        self._aws.delete(f"open/{name}")

    def keys(self, plan: JobPlan) -> Iterator[bytes]:
        """Give the packed keys of each shard, one after the other, so that they need not all be held at once."""
        damaged = self._damaged(plan)
        pieces = self._aws.open(f"jobs/{plan.name}/keys")
        if pieces is None:
            raise damaged
        rest = b""
        for shard in plan.shards:
            size = shard.rows * RECORD_BYTES
            while len(rest) < size:
                piece = next(pieces, None)
                if piece is None:
                    raise damaged
                rest += piece
            yield rest[:size]
            rest = rest[size:]
        if rest or next(pieces, None):
            raise damaged

    def lines(self, plan: JobPlan, number: int) -> list[LineKey]:
        """Give the lines of one shard."""
        begin = RECORD_BYTES * sum(shard.rows for shard in plan.shards[:number])
        end = begin + RECORD_BYTES * plan.shards[number].rows
        packed = self._aws.get(f"jobs/{plan.name}/keys", span=(begin, end))
        if packed is None or len(packed) != end - begin:
            raise self._damaged(plan)
        return list(read_keys(packed))

    def _damaged(self, plan: JobPlan) -> StoreError:
        url = self._aws.url(f"jobs/{plan.name}/keys")
        return StoreError(f"{url} is missing or damaged; remove open/{plan.name}")


def _read(aws: Aws, name: str, decode: Callable[[bytes], T]) -> T | None:
    body = aws.get(name)
    if body is None:
        return None
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        raise StoreError(
            f"{aws.url(name)} cannot be read ({error}); a newer version may have written it"
        ) from None
