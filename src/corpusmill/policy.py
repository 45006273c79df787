"""Conduct: how often, how fast, how much. Nothing here is ever part of a fingerprint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from corpusmill.errors import UsageError
from corpusmill.outcome import STATUSES, Status

DEFAULT_STORE = "sqlite:///.corpusmill/store.db"
"""The URL of the store where none is named: relative to the working directory."""

Mode = Literal["read-write", "read-only", "replay", "refresh", "off"]
"""How a run uses the store; `refresh` is `read-write` with a `not_before` for every request."""

MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How failures of one row are met.

    `attempts` counts failures, never rate limits. `deadline` is in seconds and counts the row's attempts and its
    back-off, not its waiting for permits, limits or the breaker; no single attempt lasts longer either. Back-off is
    exponential from `backoff` to `backoff_max` seconds with full jitter, unless the response itself says how long to
    wait.
    """

    attempts: int = 8
    deadline: float = 900.0
    backoff: float = 0.5
    backoff_max: float = 60.0

    def __post_init__(self) -> None:
        """Refuse values that could not mean anything."""
        if self.attempts < 1:
            raise UsageError(f"retry.attempts is {self.attempts}; it must be at least 1")
        if not self.deadline > 0:
            raise UsageError(f"retry.deadline is {self.deadline} s; it must be more than 0")
        for name in ("backoff", "backoff_max"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"retry.{name} is {getattr(self, name)} s; it must be 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How fast an endpoint may be asked.

    `concurrency` is the ceiling of requests that are sent and not yet durable. The two rates are per minute; None
    means unknown, and then the server's own headers and refusals are followed. `patience` is how many seconds an
    endpoint may be down before the run ends. The time-outs are by phase, in seconds; there is no hidden total.
    """

    concurrency: int = 64
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    patience: float = 600.0
    connect_timeout: float = 10.0
    read_timeout: float = 600.0

    def __post_init__(self) -> None:
        """Refuse values that could not mean anything."""
        if self.concurrency < 1:
            raise UsageError(f"limits.concurrency is {self.concurrency}; it must be at least 1")
        for name in ("requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"limits.{name} is {value}; it must be more than 0, or left out")
        for name in ("patience", "connect_timeout", "read_timeout"):
            if not getattr(self, name) > 0:
                raise UsageError(f"limits.{name} is {getattr(self, name)} s; it must be more than 0")


def no_share(value: float) -> str | None:
    """Say what must be written in the place of a number that is no share of the rows; None for one that is."""
    if 0 <= value <= 1:
        return None
    in_per_cent = value / 100
    written = f"; for {value:g} % write {in_per_cent:g}" if value > 1 >= in_per_cent else ""
    return f"must be a share of the rows, from 0 to 1, and not their number{written}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """How many rows may fail before nothing is committed.

    `max_failed` is a share of the rows that were not skipped, by prompt, and never their number: 0.05 is 5 % of
    them, 0 none, 1 all. `statuses` are those that count as failed.
    """

    max_failed: float = 0.05
    statuses: tuple[Status, ...] = ("failed", "invalid")

    def __post_init__(self) -> None:
        """Refuse a share outside 0 to 1 and a status that does not exist."""
        wrong = no_share(self.max_failed)
        if wrong is not None:
            raise UsageError(f"failures.max_failed is {self.max_failed:g}; it {wrong}")
        for status in self.statuses:
            if status not in STATUSES:
                raise UsageError(f"failures.statuses names {status!r}; known are {', '.join(STATUSES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that a run may spend, over all its shards, kills and retries; None means no ceiling.

    `tokens` counts prompt and completion tokens together, `usd` needs known prices.
    """

    tokens: int | None = None
    usd: float | None = None

    def __post_init__(self) -> None:
        """Refuse a ceiling that allows nothing."""
        for name in ("tokens", "usd"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"budget.{name} is {value}; it must be more than 0, or left out")
