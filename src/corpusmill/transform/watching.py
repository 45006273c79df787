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
from corpusmill.transform.filling import TERMINAL

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

    `trouble` says why this look failed, "" when it did not; `wait` is how many seconds to wait before the next one;
    `ending` says why there need be none.
    """

    statuses: Mapping[str, str]
    trouble: str
    wait: float
    ending: Ending | None

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
        self._failures = 0
        self._failing_since = 0.0

    def look(self) -> Seen:
        """Look once. Blocks for as long as the calls take, and raises nothing that AWS says."""
        trouble = ""
        try:
            for name, before in self._statuses.items():
                if before not in TERMINAL:
                    self._statuses[name] = str(
                        (self._plane.describe(name) or {}).get("TransformJobStatus") or ""
                    )
        except (PassingError, EndpointError) as error:
            trouble = str(error)
        now = self._wall()
        if not trouble:
            self._failures = 0
        else:
            self._failing_since = self._failing_since if self._failures else now
            self._failures += 1
        wait = min(self._poll * 2 ** min(self._failures, 10), max(self._poll, LONGEST_WAIT))
        if self._deadline is not None:
            wait = max(0.0, min(wait, self._deadline - now))
        statuses = {name: status for name, status in self._statuses.items() if status is not None}
        return Seen(statuses=statuses, trouble=trouble, wait=wait, ending=self._ending(now, trouble))

    def _ending(self, now: float, trouble: str) -> Ending | None:
        if not trouble and all(status == "" or status in TERMINAL for status in self._statuses.values()):
            return "ended"
        if self._deadline is not None and now >= self._deadline:
            return "late"
        if trouble and now - self._failing_since >= self._patience:
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
