"""Looking at jobs until they have ended, a moment has passed, or the service has not answered for too long.

Looking does not sleep: whoever looks is told how long to wait before the next look, so that an event loop and a worker
wait each in its own way. A look that failed says nothing about a job.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from corpusmill.errors import CorpusmillError, EndpointError
from corpusmill.transform.aws import PassingError, Patience
from corpusmill.transform.settling import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from corpusmill.transform.aws import ControlPlane

LONGEST_WAIT: Final = 300.0
"""Seconds between two looks that fail, at most, unless two looks are further apart anyway."""

STOP_PATIENCE: Final = 15.0
"""Seconds for which a call that stops a job may fail: whoever is killed has not much time."""

Ending = Literal["ended", "late", "unreachable"]
"""Why looking is at an end: all jobs ended, the deadline passed, or nobody answered for longer than the patience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known after a look: `statuses` by the names of the jobs, "" for one that the service does not know.

    `troubles` says by their names why jobs could not be looked at; `wait` is how many seconds to wait before the next
    look; `ending` says why there need be none.
    """

    statuses: Mapping[str, str]
    troubles: Mapping[str, str]
    wait: float
    ending: Ending | None

    @property
    def trouble(self) -> str:
        """Why this look failed, "" when it did not."""
        return next(iter(self.troubles.values()), "")

    def __str__(self) -> str:
        """Say how the jobs stand; where nothing is known yet, why."""
        return told(self.statuses) or self.trouble


class Watcher:
    """Looks at jobs, one call for each that has not ended."""

    def __init__(
        self,
        plane: ControlPlane,
        names: Iterable[str],
        *,
        poll_seconds: float,
        patience_seconds: float,
        deadline: float | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Look at nothing yet; `deadline` is Unix time, as `wall` tells it."""
        self._plane = plane
        self._statuses: dict[str, str | None] = dict.fromkeys(names)
        self._poll = poll_seconds
        self._patience = patience_seconds
        self._deadline = deadline
        self._wall = wall
        self._troubles: dict[str, str] = {}
        self._failures = 0
        self._failing_since = 0.0

    def look(self) -> Seen:
        """Look once. Blocks for as long as the calls take, and raises nothing that AWS says.

        What the service says against one job keeps nobody from looking at the others. Where it does not answer the look
        is at an end, since each call would take as long; what failed is tried last the next time.
        """
        pending = [name for name, status in self._statuses.items() if status not in TERMINAL]
        pending.sort(key=self._troubles.__contains__)
        self._troubles = {}
        for name in pending:
            try:
                described = self._plane.describe(name) or {}
            except EndpointError as error:
                self._troubles[name] = str(error)
            except PassingError as error:
                self._troubles[name] = str(error)
                break
            else:
                self._statuses[name] = str(described.get("TransformJobStatus") or "")
        now = self._wall()
        if not self._troubles:
            self._failures = 0
        else:
            self._failing_since = self._failing_since if self._failures else now
            self._failures += 1
        wait = min(self._poll * 2 ** min(self._failures, 10), max(self._poll, LONGEST_WAIT))
        if self._deadline is not None:
            wait = max(0.0, min(wait, self._deadline - now))
        statuses = {name: status for name, status in self._statuses.items() if status is not None}
        return Seen(statuses=statuses, troubles=self._troubles, wait=wait, ending=self._ending(now))

    def _ending(self, now: float) -> Ending | None:
        if not self._troubles and all(
            status == "" or status in TERMINAL for status in self._statuses.values()
        ):
            return "ended"
        if self._deadline is not None and now >= self._deadline:
            return "late"
        if self._troubles and now - self._failing_since >= self._patience:
            return "unreachable"
        return None


def stop_all(plane: ControlPlane, names: Iterable[str]) -> dict[str, str]:
    """Tell jobs to stop, and give by their names what came of it.

    One that cannot be stopped leaves the others out of it. Blocks for as long as the calls take; what fails in passing
    is called again for a while.
    """
    call = Patience(STOP_PATIENCE).call
    found = {}
    for name in names:
        try:
            stopped = call(plane.stop, name)
        except CorpusmillError as error:
            found[name] = f"could not be stopped; stop it by hand ({error})"
        else:
            found[name] = "is told to stop" if stopped else "is not at work"
    return found


def told(statuses: Mapping[str, str]) -> str:
    """Say how jobs stand."""
    return ", ".join(f"{name}: {status or 'not known to the service'}" for name, status in statuses.items())
