"""What became of one row for one prompt."""

from __future__ import annotations

from typing import Literal

import msgspec

Status = Literal["completed", "truncated", "refused", "filtered", "invalid", "failed", "skipped"]

STATUSES: tuple[Status, ...] = (
    "completed",
    "truncated",
    "refused",
    "filtered",
    "invalid",
    "failed",
    "skipped",
)

WORST_LAST: tuple[Status, ...] = (
    "skipped",
    "completed",
    "refused",
    "truncated",
    "filtered",
    "invalid",
    "failed",
)
"""The order in which a row with several choices takes the status of the worst."""

Origin = Literal["live", "cached", "deduplicated", "skipped", "unanswered"]
"""Where an outcome came from. Telemetry: it differs between a run and its repetition."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The status of one row for one prompt, and what is needed to understand it.

    `error` says why there is no (usable) answer. `notes` holds findings that do not change the status. Token counts
    are the server's. `request_key` is hexadecimal. `attempts`, `seconds`, `origin` and `request_id` are telemetry.
    """

    status: Status
    error: str | None = None
    finish_reason: str | None = None
    model: str | None = None
    request_key: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    notes: tuple[str, ...] = ()
    attempts: int = 0
    seconds: float | None = None
    origin: Origin = "unanswered"
    request_id: str | None = None
