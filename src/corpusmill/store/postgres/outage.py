"""A server that goes away in mid-run: what tells so, and for how long it is waited for.

The limit counts from the moment at which the store was lost, by whoever of its threads noticed it first, so that what
is tried after a wait in vain does not wait again.
"""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

_log = logging.getLogger("corpusmill")

WAIT_SECONDS = 60.0
"""Seconds for which a server that is away is waited for. A restart takes a few, a failover mostly less than a minute;
meanwhile answers that are paid for are in memory alone, and this owner's lease (`accounts.LEASE`) runs on."""

LAST_SECONDS = 5.0
"""Seconds for which it is waited for once the run is told to stop: answers may still be kept, and somebody waits."""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
"""Seconds between two tries, doubling from the first to the longest, less up to a half: all that share the server come
back at the same time."""

_GONE = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03"})
"""SQLSTATEs with which a server ends a connection: for a shutdown, a crash, because it starts, or was idle for long."""


def is_lost(error: psycopg.Error, *, closed: bool) -> bool:
    """Tell whether it was the connection that failed; there is no SQLSTATE where only a socket broke."""
    state = error.sqlstate
    return closed if state is None else state.startswith("08") or state in _GONE


class AwayError(Exception):
    """The server is not to be reached, or has gone in the middle of a transaction; its cause says how."""


class Outage:
    """How long a store has been away, as seen by all threads of this process. While it is opened, nobody waits."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._wait = 0.0
        self._since: float | None = None
        self._waited_for = False

    def be_patient(self) -> None:
        """Wait from now on: whoever was let in once will be again."""
        self._wait = WAIT_SECONDS

    def hurry(self) -> None:
        """Wait for a few seconds altogether from now on. Sets one value, so that a handler of signals may call it."""
        self._wait = min(self._wait, LAST_SECONDS)

    def end(self) -> None:
        """Wait no more."""
        self._wait = 0.0

    def begin(self) -> float:
        """Note that the store is away; give the moment since when."""
        if self._since is None:
            self._since = time.monotonic()
        return self._since

    def over(self) -> None:
        """Note that it has done what it was asked to."""
        if self._since is None:
            return
        if self._waited_for:
            _log.warning("store %s is back after %.0f s", self._shown, time.monotonic() - self._since)
        self._since, self._waited_for = None, False

    def pause(self, since: float, tries: int, reason: str) -> bool:
        """Sleep before the next try; False when the time is over. The first comes at once: old links just die."""
        away = time.monotonic() - since
        if away >= self._wait:
            return False
        if tries:
            if not self._waited_for:
                self._waited_for = True
                _log.warning(
                    "store %s is waited for, for %.0f s at most: %s", self._shown, self._wait, reason
                )
            time.sleep(min(FIRST_PAUSE * 2.0 ** (tries - 1), LONGEST_PAUSE) * random.uniform(0.5, 1.0))
        return True

    def given_up(self, since: float, reason: str) -> str:
        """Say what is wrong, when the time is over."""
        away = time.monotonic() - since
        if away < 1.0:
            return f"store {self._shown}: {reason}"
        return (
            f"store {self._shown}: {reason}. It has been away for {away:.0f} s; run again when it is back: "
            "what it has is not asked again"
        )

    def told(self) -> str | None:
        """Say that the store is waited for, and for how long still; None when it is not."""
        since = self._since
        if since is None or not self._waited_for:
            return None
        left = max(0.0, since + self._wait - time.monotonic())
        return (
            f"store {self._shown} is away; unless it comes back, the run ends in {left:.0f} s, to be resumed"
        )
