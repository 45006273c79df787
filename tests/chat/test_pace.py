"""The rate is what was let in between two moments at which nothing was left."""

from __future__ import annotations

import pytest

from corpusmill.chat.pace import BURST_SECONDS, FASTEST, REST, SPREAD, Pace


def engaged(*, per_second: float = 50.0) -> Pace:
    """Give a pace that has met its first refusal after so many a second, at second 10."""
    pace = Pace()
    for number in range(int(10 * per_second)):
        pace.sent(number / per_second)
    assert pace.refused(pace.sent(10.0), 10.0, 10.0)
    return pace


def send_until(pace: Pace, start: float, stop: float) -> int:
    """Send whatever may go out from `start` to `stop`; give how many that were."""
    now, count = start, 0
    while (delay := pace.ready_in(now)) + now < stop:
        now += delay
        pace.sent(now)
        count += 1
    return count


def test_nothing_is_held_back_before_anything_is_refused() -> None:
    """A thousand may go out in one moment."""
    pace = Pace()
    for _ in range(1_000):
        assert pace.ready_in(0.0) == 0.0
        pace.sent(0.0)
    assert pace.rate is None


def test_the_very_first_refusal_tells_no_rate() -> None:
    """Nothing was let in before it; the number that may be out is left to follow it."""
    pace = Pace()
    assert not pace.refused(pace.sent(0.0), 0.0, 0.0)
    assert pace.ready_in(0.0) == 0.0


def test_the_first_guess_is_what_was_let_in_until_then() -> None:
    """From then on requests go out one by one, at a rate that grows until the next refusal."""
    pace = engaged()
    assert pace.rate == pytest.approx(50.0)
    assert pace.ready_in(10.0) == pytest.approx(1 / 50)
    assert 50 <= send_until(pace, 10.0, 11.0) <= 75
    assert (pace.rate or 0) > 90


def test_the_rate_is_measured_from_one_refusal_to_the_next() -> None:
    """Once the growth is slow the measurements draw the rate to what the server lets in."""
    pace = engaged()
    now, level = 10.0, 0.0
    for _ in range(3_000):
        delay = pace.ready_in(now)
        now, level = now + delay, level + delay * 40
        level = min(level, 20.0)
        number = pace.sent(now)
        if level < 1:
            assert pace.refused(number, now, now)
        else:
            level -= 1
    assert pace.rate == pytest.approx(40.0, rel=0.03)


def test_refusals_of_one_moment_count_once() -> None:
    """What went out before the pace took hold says nothing about what holds since."""
    pace = engaged()
    numbers = [pace.sent(10.0) for _ in range(30)]
    rate = pace.rate
    for number in numbers:
        assert pace.refused(number, 10.0, 10.0)
    assert pace.rate == rate


def test_a_pause_is_made_up_for_but_by_no_more_than_a_burst() -> None:
    """After a minute's pause no minute's worth goes out: a second's, in a third of a second."""
    pace = engaged()
    pace.paused(70.0)
    burst = send_until(pace, 70.0, 70.0 + BURST_SECONDS / (SPREAD - 1))
    assert burst == pytest.approx(50 * BURST_SECONDS * SPREAD / (SPREAD - 1), rel=0.1)
    assert send_until(pace, 70.5, 71.0) <= 50 * 1.5


def test_a_server_that_keeps_no_burst_is_not_sent_one_again() -> None:
    """What was refused right after a pause is less than was thought to be there."""
    pace = engaged()
    pace.paused(11.0)
    assert send_until(pace, 11.0, 11.03) <= 8
    assert pace.refused(pace.number, 11.03, 11.032)
    pace.paused(13.0)
    rate = pace.rate or 0.0
    assert send_until(pace, 13.0, 13.3) <= 8 + rate * 0.3


def test_a_pace_that_helps_nothing_is_given_up_and_tried_again_later() -> None:
    """Every tenth is refused at whatever rate: then the rate is no cause of it."""
    pace = engaged()
    now, helps = 10.0, True
    while pace.rate is not None:
        now += pace.ready_in(now)
        number = pace.sent(now)
        helps = number % 10 != 0 or pace.refused(number, now, now)
        assert now < 300
    assert not helps
    assert not pace.refused(pace.sent(now + REST / 2), now + REST / 2, now + REST / 2)
    assert pace.refused(pace.sent(now + REST), now + REST, now + REST)


def test_what_is_not_used_does_not_grow() -> None:
    """A source that is slower than the rate proves nothing about it."""
    pace = engaged()
    for second in range(11, 100):
        assert pace.ready_in(float(second)) == 0.0
        pace.sent(float(second))
    assert pace.rate == pytest.approx(50.0)


def test_a_day_without_an_attempt_is_outlived() -> None:
    """An endpoint may be down for long while somebody waits; the growth is at its fastest then, and no more."""
    pace = engaged()
    assert pace.ready_in(10.0) > 0
    assert pace.ready_in(10.0 + 86_400) == 0.0
    assert pace.growth == FASTEST


def test_what_was_not_sent_is_put_back() -> None:
    """The next one need not wait for it."""
    pace = engaged()
    number = pace.sent(10.02)
    assert pace.ready_in(10.02) > 0
    pace.unused(number)
    assert pace.ready_in(10.02) == 0.0


def test_what_was_not_sent_was_not_let_in() -> None:
    """Another process answered every other row: the rate is that of the rows which this one asked."""
    pace = Pace()
    for moment in range(500):
        pace.sent(moment / 50)
        pace.unused(pace.sent(moment / 50))
    assert pace.refused(pace.sent(10.0), 10.0, 10.0)
    assert pace.rate == pytest.approx(50.0)
    now, level = 10.0, 0.0
    for _ in range(3_000):
        delay = pace.ready_in(now)
        now, level = now + delay, min(20.0, level + delay * 40)
        pace.unused(pace.sent(now))
        number = pace.sent(now)
        if level < 1:
            assert pace.refused(number, now, now)
        else:
            level -= 1
    assert pace.rate == pytest.approx(40.0, rel=0.03)


def test_many_that_were_let_in_right_after_a_refusal_tell_that_it_was_by_chance() -> None:
    """Where nothing was left, twenty of the next thousandth of a second would not have been let in."""
    for by_chance in (True, False):
        pace = Pace()
        for number in range(100):
            pace.sent(number / 1_000)
        refused = pace.sent(0.1)
        after = [pace.sent(0.1) for _ in range(20)]
        assert pace.refused(refused, 0.1, 0.101)
        for number in after:
            assert by_chance or pace.refused(number, 0.1, 0.101)
        assert pace.refused(pace.sent(0.2), 0.2, 0.201) is not by_chance


def test_a_server_that_refuses_everything_for_a_while_is_asked_again_soon() -> None:
    """However often it refuses, nobody waits for longer than ten seconds for the next attempt."""
    pace = engaged()
    now = 10.0
    for _ in range(100):
        now += pace.ready_in(now)
        pace.refused(pace.sent(now), now, now + 0.01)
        assert pace.ready_in(now + 0.01) <= 10.0
