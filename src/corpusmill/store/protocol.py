"""The words of the store, and what any store has to do.

A store keeps raw completions by request key, and beside them what several processes must agree on: who is
asking which key (claims), what a run has spent, and which quota is used up. What holds for every store:

- a put never replaces a completion; a key may hold several, oldest first;
- when `write` returns, its puts survive a power cut, its claims and releases at least a kill of the process;
- a key is asked by at most one live owner at a time, and whenever it is asked again after an attempt that may
  have been paid, the run's `possibly_paid_twice` grows in the same transaction;
- no text of a request, no header and no key of an API is kept.

All calls block. One store may be used from several threads. Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from corpusmill.policy import Budget
    from corpusmill.store.rates import Rates

Kind = Literal["completion", "rejected"]
"""`rejected`: an answer that could not be parsed. It is kept because it was paid, and never serves."""

Claim = Literal["granted", "granted_again", "held", "answered"]
"""What became of a claim.

`granted`: ask. `granted_again`: ask; an earlier attempt may have been paid, and this is counted. `held`: a
live owner is asking; look again later. `answered`: a completion that serves has come since; get it, ask
nobody.
"""

Reservation = Literal["granted", "waits", "used_up"]
"""`waits`: it may fit once what is in flight is settled. `used_up`: it will never fit."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One stored answer.

    A struct with positional fields instead of a dataclass: a run over a filled store builds one for each row,
    and this is ten times as fast. `key` is 20 bytes, `body` the raw completion JSON (empty where only the
    facts about it were read). `ceiling` is the one under which it was asked, None when the request stated
    none. With several choices `finish_reason` is `length` if any of them was cut. Token counts are the
    server's, None when unknown.
    """

    key: bytes
    body: bytes
    ceiling: int | None
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    choices: int
    created_at: float
    invocation: str
    kind: Kind = "completion"


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """A key that somebody wants to ask, and which stored answers would make asking needless.

    `ceiling` and `not_before` are those that `choose` was called with.
    """

    key: bytes
    ceiling: int | None = None
    not_before: float | None = None


class Cost(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one request has cost, and which reservation that settles.

    `attempts` counts HTTP tries. Tokens are those that were paid, `usd` their price. `reserved_tokens` and
    `reserved_usd` are given back: what was reserved for this request, 0 without a budget.
    """

    attempts: int = 1
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    reserved_tokens: int = 0
    reserved_usd: float = 0.0


NOTHING = Cost(attempts=0)


class Put(msgspec.Struct, frozen=True, kw_only=True):
    """An entry on its way into the store, with what is kept beside it and not read back on the hot path.

    `model` labels it for statistics. `characters` and `script` describe the messages, for estimates. `shape`
    is the id given to `put_fields`, `fields` the digests (hexadecimal) of the remaining fields, the messages.
    `keeps_claim` leaves the claim standing: the same key is asked once more.
    """

    entry: Entry
    cost: Cost = NOTHING
    model: str | None = None
    characters: int | None = None
    script: str | None = None
    shape: str | None = None
    fields: Mapping[str, str] | None = None
    keeps_claim: bool = False


class Release(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end of a claim without an answer.

    When it was `possibly_paid`, the key stays marked, so that asking it again, by anybody, counts.
    """

    key: bytes
    possibly_paid: bool
    cost: Cost = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """What a run key has spent since its first start, over all its shards, kills and retries.

    `requests` counts the answers that were put, `attempts` the HTTP tries.
    """

    requests: int = 0
    attempts: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    possibly_paid_twice: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """An owner's ticket. `first_started_at` is the run key's first start, kept until it is finished."""

    owner: int
    invocation: str
    run_key: str
    first_started_at: float
    spend: Spend


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A quota of an endpoint that is used up until `resets_at`."""

    identity: str
    resets_at: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """The stored request that differs from another in the fewest fields; its entry comes without the body."""

    entry: Entry
    model: str | None
    differs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSample:
    """How many tokens a text of so many characters was, by the count of a model's server."""

    model: str | None
    script: str | None
    characters: int
    prompt_tokens: int
    completion_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """What a store holds.

    `by_model` maps a model's label ("" where none was given) to its number of completions. `size` is in
    bytes. `oldest` and `newest` are the times of the first and last entry. `claims` are held by the living, `lost` are
    attempts that may have been paid: their marks, and what the dead were asking.
    """

    completions: int = 0
    rejected: int = 0
    by_model: Mapping[str, int] = field(default_factory=dict)
    size: int = 0
    oldest: float | None = None
    newest: float | None = None
    claims: int = 0
    lost: int = 0
    runs: int = 0


class Store(Protocol):
    """A store. Anything that goes wrong with it raises `StoreError`."""

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, list[Entry]]:
        """Give all entries of these keys, oldest first; keys without any are absent."""
        ...

    def join(self, run_key: str, *, label: str = "") -> Membership:
        """Register an owner for a run key. The marks of owners that died become those of lost attempts."""
        ...

    def heartbeat(self, owner: int) -> None:
        """Renew the owner's lease, which is all that owners on other machines can see of it."""
        ...

    def write(
        self,
        owner: int,
        *,
        puts: Sequence[Put] = (),
        releases: Sequence[Release] = (),
        wanted: Sequence[Wanted] = (),
    ) -> list[Claim]:
        """Put, release and claim, in this order and in one transaction; one claim for each `wanted`.

        What is put is durable then, the owner's claims on those keys are gone, and what it cost is added. What is
        released is given up without an answer. `wanted` asks for the right to ask.
        """
        ...

    def leave(self, owner: int) -> None:
        """Remove the owner and the claims that it holds; the marks of lost attempts stay."""
        ...

    def abandon(self, owner: int) -> None:
        """Stop being the owner without writing; what it was asking counts as lost, as if its process had died."""
        ...

    def finish(self, run_key: str) -> None:
        """Close the account of a run key: the next `join` starts at zero with a new first start."""
        ...

    def spend(self, run_key: str) -> Spend:
        """Tell what a run key has spent; zero for an unknown one."""
        ...

    def reserve(self, owner: int, *, tokens: int, usd: float, budget: Budget) -> Reservation:
        """Set so much of the budget aside until a `Cost` gives it back; the dead hold nothing."""
        ...

    def quota(self, identity: str) -> Quota | None:
        """Tell whether a quota of this endpoint is used up now."""
        ...

    def set_quota(self, identity: str, *, resets_at: float, reason: str) -> None:
        """Note that a quota is used up, for every process that shares the store."""
        ...

    def clear_quota(self, identity: str) -> None:
        """Forget it: the endpoint has answered."""
        ...

    def take(self, identity: str, *, rates: Rates, tokens: float) -> float:
        """Take one request of so many tokens from what all processes together may send to this endpoint.

        Gives 0 when it was taken, else the seconds until it may be tried again, and then nothing was taken.
        """
        ...

    def put_fields(self, shape: str, fields: Mapping[str, str]) -> None:
        """Keep the digests that many requests share, once; the id stands for just these digests."""
        ...

    def nearest(self, fields: Mapping[str, str]) -> Nearest | None:
        """Find the stored request that differs in the fewest fields; reads the whole store if it must."""
        ...

    def identities(self) -> list[str]:
        """Name the identities of the endpoints that runs have asked, the latest first, a hundred at most."""
        ...

    def usage_samples(self, *, model: str | None = None, limit: int = 10_000) -> list[UsageSample]:
        """Give what is known of characters and tokens, the newest first, of one model or of all."""
        ...

    def stats(self) -> StoreStats:
        """Count."""
        ...

    def prune(
        self, *, older_than: float | None = None, model: str | None = None, rejected_only: bool = False
    ) -> int:
        """Delete the entries that meet all conditions given, at least one, and tell how many they were."""
        ...

    def close(self) -> None:
        """Let go of everything. Owners that joined through this object leave."""
        ...


@runtime_checkable
class Waits(Protocol):
    """A store on a server, which its calls wait for when it is away."""

    def hurry(self) -> None:
        """Wait for no more than a few seconds from now on: the run is told to stop. Any thread may call this."""
        ...

    def waiting(self) -> str | None:
        """Say that the server is waited for, and how long still; None when it is not."""
        ...
