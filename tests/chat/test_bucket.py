"""A bucket lets through what its rate allows, and no more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.chat.bucket import full_bucket


@given(
    per_minute=st.floats(0.5, 10_000),
    asks=st.lists(st.tuples(st.floats(0, 30), st.sampled_from([1.0, 1.0, 1.0, 5.0, 400.0])), max_size=60),
)
def test_no_minute_sees_more_than_rate_and_burst(per_minute: float, asks: list[tuple[float, float]]) -> None:
    """Nor, where one amount is larger than the burst, more than that amount beyond."""
    now = 100.0
    bucket = full_bucket(per_minute, now)
    taken: list[tuple[float, float]] = []
    for pause, amount in asks:
        now += pause
        now += bucket.ready_in(amount, now)
        bucket.take(amount, now)
        taken.append((now, amount))
    largest = max((amount for _, amount in taken), default=0.0)
    for start, _ in taken:
        through = sum(amount for moment, amount in taken if start <= moment < start + 60)
        assert through <= (per_minute + max(bucket.burst, largest)) * (1 + 1e-9)


def test_what_is_ready_may_be_taken_at_the_time_that_was_said() -> None:
    """No second wait follows a wait, whatever the rounding."""
    bucket = full_bucket(20, 0.0)
    now = 0.0
    for _ in range(1_000):
        now += bucket.ready_in(1.0, now)
        assert bucket.ready_in(1.0, now) == 0.0
        bucket.take(1.0, now)
    assert now == pytest.approx(999 * 3.0)


def test_an_amount_larger_than_the_burst_goes_through_and_is_paid_for_later() -> None:
    """It never waits for ever, and the rate holds in the long run."""
    bucket = full_bucket(60, 0.0)
    assert bucket.ready_in(100.0, 0.0) == 0.0
    bucket.take(100.0, 0.0)
    assert bucket.ready_in(1.0, 0.0) == pytest.approx(100.0)


def test_what_was_reserved_and_not_used_comes_back() -> None:
    """Up to the burst; and what was used beyond it is taken."""
    bucket = full_bucket(60, 0.0, seconds=10.0)
    bucket.take(10.0, 0.0)
    bucket.settle(10.0, 4.0, 0.0)
    assert bucket.level == pytest.approx(6.0)
    bucket.settle(0.0, 8.0, 0.0)
    assert bucket.level == pytest.approx(-2.0)
    bucket.settle(100.0, 0.0, 0.0)
    assert bucket.level == bucket.burst


def test_a_clock_that_stands_still_fills_nothing() -> None:
    """Nor one that goes back."""
    bucket = full_bucket(60, 10.0)
    bucket.take(1.0, 10.0)
    assert bucket.ready_in(1.0, 10.0) > 0
    assert bucket.ready_in(1.0, 5.0) > 0
