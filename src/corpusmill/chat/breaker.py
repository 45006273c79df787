"""Notices that an endpoint is down, and lets one request at a time find out when it is back.

Pure arithmetic over the times that it is given (seconds of any clock that only goes forward). Failures of
single rows never count: only verdicts that say `down`.

Such a verdict may still be a row's own: a text that breaks its worker shows as 500 each time. So failures in a row
are in doubt while they are answers, or connections that were made and dropped, to fewer than `MANY` different
requests. A request that has failed before says nothing new by failing again, be it that others were answered since
or that nothing else is left to ask. In doubt, requests go out slowly, nobody gives up, and after `GRACE` the failures
are the rows' own again. Where nobody answers, or many different requests fail, the endpoint is down: its rows wait.
Only where it has answered nothing at all yet, many errors 500 are in doubt too for the second half of the patience:
they may be all that an earlier run has left.
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

MANY = 10
"""Different requests that fail in a row: more than will all be to blame themselves."""

_WEIGHT = {"server_error": 1}
_USUAL_WEIGHT = 2
"""A row that breaks its worker shows as 500; what comes of connections and gateways is mostly no row's."""

_NOBODY_THERE = frozenset(
    {"connect", "connect_timeout", "pool_timeout", "write_timeout", "read_timeout", "proxy", "broken"}
)
"""Kinds of failure in which no server said or did anything."""

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds between two probes: the first, and what it doubles up to."""

GRACE = 30.0
"""Seconds of doubt that cost no row anything: a restart that only few rows see is over by then."""


@dataclass(slots=True, kw_only=True)
class Breaker:
    """Open or closed, by what came last.

    `patience` is how many seconds an endpoint may be down before `gave_up` is true. `since` is when the
    first of the failures in a row came, or the first after doubt began or ended; None while the endpoint answers.
    `reason` is what the latest said. `heard` tells whether the endpoint has ever answered.
    """

    patience: float
    since: float | None = None
    reason: str = ""
    pause: float = FIRST_PAUSE
    next_probe: float = 0.0
    heard: bool = False
    _first: float = 0.0
    _failing: int = 0
    _in_doubt: bool = False
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
        return not self._open or (now >= self.next_probe and (self._in_doubt or not self._probing))

    @property
    def gives_up_at(self) -> float | None:
        """Tell when the patience ends; None where it does not run."""
        if not self._open or self.since is None:
            return None
        if self._in_doubt:
            return None if self._failing < MANY else self._first + self.patience
        return self.since + self.patience

    def gave_up(self, now: float) -> bool:
        """Tell whether the endpoint has been down for longer than the patience."""
        end = self.gives_up_at
        return end is not None and now > end

    def blames_rows(self, now: float) -> bool:
        """Tell whether a failure that comes now is an attempt of its row, and not a look at the endpoint."""
        if not self._open:
            return True
        if not self._in_doubt or self.since is None:
            return False
        # An endpoint that is there and gone in turns begins its grace anew each time, but not for ever.
        return now - self.since > GRACE or now - self._first > self.patience

    def sent(self, now: float) -> bool:
        """Note that a request goes out, which `allows` has allowed; tell whether it is a probe."""
        if self._open:
            self._probing = True
            if self._in_doubt:
                self.next_probe = now + FIRST_PAUSE
        return self._open

    def lost(self) -> None:
        """Note that a probe ended without a verdict."""
        self._probing = False

    def record(self, verdict: Verdict, now: float, *, probe: bool, again: bool = False) -> None:
        """Note what came of a request. Whoever says "too fast" or refuses a row is up.

        `again` tells that the same request has failed in this way before.
        """
        if probe:
            self._probing = False
        if not isinstance(verdict, RetryAfter) or verdict.rate_limited:
            self.heard = True
            self._close()
            return
        if verdict.down:
            self._doubt(verdict, now, again=again)
        if probe and not self._in_doubt:
            self.pause = min(self.pause * 2.0, LONGEST_PAUSE)
            self.next_probe = now + (self.pause if verdict.wait is None else min(verdict.wait, LONGEST_PAUSE))
        elif verdict.down and not self._open:
            self._weight += _WEIGHT.get(verdict.kind, _USUAL_WEIGHT)
            if self._weight >= OPENS_AT:
                self._open = True
                self.pause = FIRST_PAUSE
                self.next_probe = now + FIRST_PAUSE

    def _doubt(self, verdict: RetryAfter, now: float, *, again: bool) -> None:
        """Tell anew whether the endpoint or the requests are to blame, after one more that says `down`."""
        self.reason = verdict.reason
        self._failing += not again
        began = now - verdict.seconds
        if self.since is None:
            self._first = began
        few = self._failing < MANY
        unproved = not self.heard and verdict.kind == "server_error" and now - self._first > self.patience / 2
        in_doubt = verdict.kind not in _NOBODY_THERE and (few or unproved)
        if self.since is None:
            self.since = began
        elif in_doubt != self._in_doubt:
            self.since = began
            self.pause = FIRST_PAUSE
        self._in_doubt = in_doubt

    def _close(self) -> None:
        self.since = None
        self.reason = ""
        self._failing = 0
        self._in_doubt = False
        self._weight = 0
        self._open = False
        self.pause = FIRST_PAUSE
