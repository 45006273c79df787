"""Waiting for a quota to come back, in the triggerer instead of on a worker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_LONGEST_SLEEP = 60.0
"""Seconds after which the clock is looked at again: a machine that was asleep wakes up late, not a day late."""


class QuotaResetTrigger(BaseTrigger):
    """Fires at a moment (ISO 8601, with its offset).

    It holds nothing and changes nothing, so that it may move to another triggerer or run twice. All that the task
    needs afterwards is in the event.
    """

    def __init__(self, moment: str, reason: str = "") -> None:
        """Wait until `moment`; `reason` is told in the log."""
        super().__init__()  # type: ignore[no-untyped-call] # Airflow's is not annotated
        self.moment = moment
        self.reason = reason

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Give the class's path and the arguments."""
        return "corpusmill.airflow.trigger.QuotaResetTrigger", {"moment": self.moment, "reason": self.reason}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Sleep until the moment, then fire once."""
        moment = datetime.fromisoformat(self.moment)
        while (left := (moment - datetime.now(UTC)).total_seconds()) > 0:  # noqa: ASYNC110 - a moment, not an event
            await asyncio.sleep(min(left, _LONGEST_SLEEP))
        yield TriggerEvent({"moment": self.moment, "reason": self.reason})  # type: ignore[no-untyped-call]
