"""How fast a server that states no rate lets requests in: arithmetic over what it refused, no waiting.

Where a server refuses, nothing was left in it at that moment. So what it has let in from one such moment to a later
one, over the time between them, is its rate, whether it keeps a bucket or a window; and from each such moment on it is
known what there is again. The pace goes out at that rate and a little more as time passes, so that a rate which has
risen is found: fast at first and after a long quiet, slowly where refusals confirm what is known. A refusal that is no
matter of the rate shows by going on at a lower one: then the pace is given up, and the number that may be out is left
to follow alone.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST_SECONDS = 0.5
LEAST_LET_IN = 4
"""Two refusals that are to tell a rate lie at least so far apart, and have so many between them."""

FIRST_SECONDS = 0.05
"""The first guess is what was let in over no less than these."""

SMOOTHING = 30.0
"""How many let in make a measurement that counts as much as what is known."""

FASTEST = 1.0
SLOWEST = 0.0005
"""What the rate grows by in a second: at first, and at least; about so much is refused, too."""

SURER = 0.25
"""What the growth is multiplied with at each measurement."""

UNSURE = 0.03
"""While the growth is more than this, a measurement is no more than half of the truth."""

QUIET = 7.0
GROWTH_DOUBLES = 3.0
"""When nothing was refused for so many seconds, the growth doubles in each of so many."""

BACK = 0.5
"""A rate of which little is known comes down to the share that was let in lately, and to no less than this one."""

SURER_SOON = 0.7
"""What its growth is multiplied with then, right after a pause."""

BURST_SECONDS = 1.0
"""What may go out at once after a pause, as seconds of the rate; less where the server has been seen to keep less."""

SPREAD = 4.0
AT_ONCE = 0.005
"""And no faster than so many times the rate, but for what so many seconds of that come to: of what goes out in one
moment, some overtakes other, and a refusal tells less."""

KEPT = 0.9
"""And then this share of what it has kept, so that something is left for what follows."""

BURST_GROWTH = 1.05
"""What that is multiplied with at each later refusal, so that a burst is tried again."""

SETTLED = 0.01
TRIAL = 1_000
"""How slow the growth has to be, and attempts after that, over which it is judged whether the pace helps."""

BY_CHANCE = 6
MANY = 0.02
"""It does not when more of them are refused than these few and this share."""

AGAIN = 3
FEW = 0.005
SUNK = 0.5
"""Nor when more of them than these are refused, and than this share, while the rate sinks to this share of itself."""

TELLING = 8
TELLING_TIMES = 3.0
"""Nor when so many went out right after the first refusal, so many times what the rate allows, and were let in."""

REST = 60.0
"""Seconds for which it is not tried again then; twice as long each time."""

_NEGLIGIBLE = 1e-9

_LARGEST_POWER = 20.0
"""More than takes the slowest growth to the fastest; after hours of quiet the power itself would be no number."""


@dataclass(slots=True)
class Pace:
    """The rate per second; None while nothing has been refused, or while the rate explains nothing."""

    rate: float | None = None
    growth: float = FASTEST
    number: int = 0
    _level: float = 0.0
    _next: float = 0.0
    _updated: float = 0.0
    _first_sent: float | None = None
    _emptied_at: int = 0
    _from: float = 0.0
    _from_number: int = 0
    _not_let_in: int = 0
    _reacted: float = float("-inf")
    _pressed: bool = False
    _kept: float = float("inf")
    _lately_from: int = 0
    _refused_lately: int = 0
    _after: tuple[int, int] = (0, 0)
    _not_let_in_after: int = 0
    _expected_after: float = 0.0
    _soon: int = 0
    _paused_until: float = float("-inf")
    _trial_from: int = 0
    _trial_refused: int = 0
    _settled_rate: float = 0.0
    _rest: float = REST
    _rests_until: float = float("-inf")

    def ready_in(self, now: float) -> float:
        """Give the seconds until one more may go out: 0 when it may now."""
        if self.rate is None:
            return 0.0
        self._refill(now)
        missing = max(1.0 - self._level, (1.0 - self._next) / SPREAD)
        if missing <= _NEGLIGIBLE:
            return 0.0
        self._pressed = True
        return missing / self.rate

    def sent(self, now: float) -> int:
        """Note that one goes out, and give its number."""
        if self._first_sent is None:
            self._first_sent = now
        self.number += 1
        if self.rate is not None:
            self._refill(now)
            self._level -= 1.0
            self._next -= 1.0
        return self.number

    def unused(self, number: int) -> None:
        """Note that the one with this number did not go out after all: it is none that was let in."""
        self._level += 1.0
        self._next += 1.0
        self._not_let_in += 1
        self._not_let_in_after += self._after[0] < number <= self._after[1]

    def paused(self, until: float) -> None:
        """Note that nothing will go out until then."""
        self._paused_until = until

    def refused(self, number: int, sent: float, now: float) -> bool:
        """Note a refusal of the one with this number, sent at `sent`; tell whether the pace takes care of it."""
        if now < self._rests_until or number == 1:
            return False
        if self.rate is None:
            self._begin(number, sent, now)
            return True
        self._not_let_in_after += self._after[0] < number <= self._after[1]
        if number <= self._emptied_at:
            return True
        self._not_let_in += 1
        self._refused_lately += 1
        # What went out before the pace took hold only says again that nothing was left.
        if sent > self._reacted:
            if self._was_let_in_after():
                return self._give_up(now)
            self._trial_refused += 1
            self._measure(number, sent)
            self._react(now)
        self._empty(number, sent, now)
        return self._helps(now)

    def _begin(self, number: int, sent: float, now: float) -> None:
        assert self._first_sent is not None
        let_in = max(1, number - 1 - self._not_let_in)
        self.rate = let_in / max(sent - self._first_sent, FIRST_SECONDS)
        self.growth = FASTEST
        self._kept = float("inf")
        self._try_anew()
        self._react(now)
        # Before the pace took hold nothing was sent in bursts, in which one overtakes another.
        self._after, self._not_let_in_after = (number, self.number), 0
        self._expected_after = self.rate * (now - sent)
        self._measure_from(number, sent)
        self._empty(number, sent, now)

    def _react(self, now: float) -> None:
        self._reacted = now
        self._lately_from, self._refused_lately = self.number, 0
        self._after = (0, 0)

    def _was_let_in_after(self) -> bool:
        """Tell whether many were let in right after a refusal: then it did not mean that nothing was left."""
        many = self._after[1] - self._after[0]
        if many < TELLING or many < TELLING_TIMES * self._expected_after:
            return False
        return self._not_let_in_after < many / TELLING_TIMES

    def _give_up(self, now: float) -> bool:
        self.rate = None
        self._rests_until = now + self._rest
        self._rest *= 2.0
        return False

    def _measure_from(self, number: int, sent: float) -> None:
        self._from, self._from_number, self._not_let_in = sent, number, 0

    def _measure(self, number: int, sent: float) -> None:
        """Learn from what was let in between two moments at which nothing was left."""
        assert self.rate is not None
        let_in = max(1, number - self._from_number - self._not_let_in)
        seconds = sent - self._from
        if sent < self._paused_until + LEAST_SECONDS:
            # It speaks of what the server keeps for a burst, rather than of its rate; twice running, of both.
            self._kept = max(1.0, (number - self._emptied_at - 1) * KEPT)
            self._soon += 1
            if self.growth > UNSURE:
                self.rate = max(let_in / seconds, self.rate * BACK)
                self.growth *= SURER_SOON
                self._measure_from(number, sent)
                return
            if self._soon == 1:
                return
        else:
            self._soon = 0
            self._kept *= BURST_GROWTH
        if seconds < LEAST_SECONDS or let_in < LEAST_LET_IN:
            if self.growth > UNSURE:
                self.rate *= self._let_in_lately(number)
            return
        self._measure_from(number, sent)
        seen = let_in / seconds
        if self.growth > UNSURE:
            # From a rate that was too low for long, less was let in than would have been.
            self.rate = max(seen, (seen * self.rate) ** 0.5)
        else:
            self.rate += (seen - self.rate) * let_in / (let_in + SMOOTHING)
        self.growth = max(SLOWEST, self.growth * SURER)

    def _let_in_lately(self, number: int) -> float:
        """Give the share that was let in of what went out since the last refusal was reacted to."""
        tried = max(1, number - self._lately_from)
        return max(BACK, 1.0 - self._refused_lately / tried)

    def _empty(self, number: int, sent: float, now: float) -> None:
        """Begin anew from the moment at which nothing was left."""
        assert self.rate is not None
        self._emptied_at = number
        since = self.number - number
        self._level = min(self._burst, (now - sent) * self.rate) - since
        self._updated = now

    def _helps(self, now: float) -> bool:
        """Tell whether fewer are refused with it; else give it up for a while."""
        assert self.rate is not None
        tried, refused = self.number - self._trial_from, self._trial_refused
        if self.growth > SETTLED:
            self._try_anew()
            self._settled_rate = self.rate
            return True
        sinks = refused > max(AGAIN, tried * FEW) and self.rate < self._settled_rate * SUNK
        if refused > BY_CHANCE + tried * MANY or sinks:
            return self._give_up(now)
        if tried >= TRIAL:
            self._try_anew()
        return True

    def _try_anew(self) -> None:
        self._trial_from, self._trial_refused = self.number, 0

    def _refill(self, now: float) -> None:
        assert self.rate is not None
        seconds = now - self._updated
        if seconds <= 0:
            return
        self._level = min(self._burst, self._level + seconds * self.rate)
        spread = self.rate * SPREAD
        self._next = min(max(1.0, spread * AT_ONCE), self._next + seconds * spread)
        self._updated = now
        if not self._pressed:
            return
        # What is not used proves nothing, and does not grow.
        self._pressed = False
        quiet = now - self._reacted - QUIET
        if quiet > 0:
            power = min(seconds, quiet) / GROWTH_DOUBLES
            self.growth = min(FASTEST, self.growth * 2.0 ** min(power, _LARGEST_POWER))
        if now - seconds >= self._paused_until:
            self.rate *= (1.0 + self.growth) ** min(seconds, 1.0)

    @property
    def _burst(self) -> float:
        assert self.rate is not None
        return max(1.0, min(self._kept, self.rate * BURST_SECONDS))
