"""Notices that an endpoint is down, and lets one request at a time find out when it is back.

Pure arithmetic over the times that it is given (seconds of any clock that only goes forward). Failures of
single rows never count: only verdicts that say `down`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from corpusmill.chat.verdict import RetryAfter

if TYPE_CHECKING:
    from corpusmill.chat.verdict import Verdict

State = Literal["closed", "open", "probing"]

OPENS_AT = 10
"""Weight of failures in a row, without a success among them, at which the breaker opens."""

_WEIGHT = {"server_error": 1}
_USUAL_WEIGHT = 2
"""A row that breaks its worker shows as 500; what comes of connections and gateways is no row's."""

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds between two probes: the first, and what it doubles up to."""


@dataclass(slots=True, kw_only=True)
class Breaker:
    """Open or closed, by what came last.

    `patience` is how many seconds an endpoint may be down before `gave_up` is true. `since` is when the
    first of the failures in a row came, None while the endpoint answers; `reason` is what the latest said.
    """

    patience: float
    since: float | None = None
    reason: str = ""
    pause: float = FIRST_PAUSE
    next_probe: float = 0.0
    _weight: int = 0
    _open: bool = False
    _probing: bool = False

    @property
    def state(self) -> State:
        """Tell whether requests go out freely, not at all, or one to see."""
        if not self._open:
            return "closed"
        return "probing" if self._probing else "open"

    def allows(self, now: float) -> bool:
        """Tell whether a request may go out now."""
        return not self._open or (not self._probing and now >= self.next_probe)

    def gave_up(self, now: float) -> bool:
        """Tell whether the endpoint has been down for longer than the patience."""
        return self._open and self.since is not None and now - self.since > self.patience

    def sent(self) -> bool:
        """Note that a request goes out, which `allows` has allowed; tell whether it is a probe."""
        if self._open:
            self._probing = True
        return self._open

    def lost(self) -> None:
        """Note that a probe ended without a verdict."""
        self._probing = False

    def record(self, verdict: Verdict, now: float, *, probe: bool) -> None:
        """Note what came of a request. Whoever says "too fast" or refuses a row is up."""
        if probe:
            self._probing = False
        if not isinstance(verdict, RetryAfter) or verdict.rate_limited:
            self._close()
            return
        if verdict.down:
            self.reason = verdict.reason
            if self.since is None:
                self.since = now - verdict.seconds
        if probe:
            self.pause = min(self.pause * 2.0, LONGEST_PAUSE)
            self.next_probe = now + (self.pause if verdict.wait is None else min(verdict.wait, LONGEST_PAUSE))
        elif verdict.down and not self._open:
            self._weight += _WEIGHT.get(verdict.kind, _USUAL_WEIGHT)
            if self._weight >= OPENS_AT:
                self._open = True
                self.pause = FIRST_PAUSE
                self.next_probe = now + FIRST_PAUSE

    def _close(self) -> None:
        self.since = None
        self.reason = ""
        self._weight = 0
        self._open = False
        self.pause = FIRST_PAUSE
