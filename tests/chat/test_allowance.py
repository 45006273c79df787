"""What is left is what the server told, less what has gone out since, and more by what has come back."""

from __future__ import annotations

import pytest

from corpusmill.chat.allowance import RESERVE, Allowance


def test_what_has_gone_out_since_is_taken_off() -> None:
    """The answer to the third of five says that seven were left: five are."""
    allowance = Allowance()
    marks = [allowance.spend(1.0) for _ in range(5)]
    allowance.told(7.0, 60.0, mark=marks[2], sent=0.0, now=1.0)
    assert allowance.left == 5.0
    assert allowance.ready_in(1.0, 1.0) == 0.0


def test_nothing_is_held_back_before_the_server_has_told_anything() -> None:
    """However much has gone out."""
    allowance = Allowance()
    allowance.spend(1e6)
    assert allowance.ready_in(1e6, 0.0) == 0.0


def test_an_answer_that_took_long_tells_nothing_new() -> None:
    """A later request has already brought back less."""
    allowance = Allowance()
    first, second = allowance.spend(1.0), allowance.spend(1.0)
    allowance.told(3.0, 60.0, mark=second, sent=0.5, now=1.0)
    allowance.told(100.0, 60.0, mark=first, sent=0.0, now=2.0)
    assert allowance.left == 3.0


def test_of_a_window_nothing_comes_back_before_it_ends() -> None:
    """And then one goes out to see, where a reset has never been seen to bring all back."""
    allowance = Allowance()
    for second in range(4):
        mark = allowance.spend(10.0)
        allowance.told(30.0 - 10 * second, 10.0 - second, mark=mark, sent=float(second), now=second + 0.1)
    assert allowance.per_second == 0.0
    assert allowance.ready_in(1.0, 4.0) == pytest.approx(6.1)
    assert allowance.ready_in(1.0, 10.1) == 0.0
    allowance.spend(1.0)
    assert allowance.ready_in(1.0, 10.1) > 0


def test_where_a_reset_brought_all_back_it_is_taken_to_do_so_again() -> None:
    """A whole window's worth may go out at once when it begins anew."""
    allowance = Allowance()
    for window in range(2):
        start = window * 10.0
        allowance.told(99.0, 10.0, mark=allowance.spend(1.0), sent=start, now=start)
        allowance.told(0.0, 5.0, mark=allowance.spend(99.0), sent=start + 5.0, now=start + 5.0)
    allowance.told(98.0, 10.0, mark=allowance.spend(1.0), sent=20.0, now=20.0)
    allowance.spend(98.0)
    assert allowance.ready_in(1.0, 29.0) == pytest.approx(1.0)
    assert allowance.ready_in(1.0, 30.0) == 0.0
    allowance.spend(98.0)
    assert allowance.ready_in(1.0, 30.0) == 0.0


def test_a_bucket_s_rate_is_learned_from_what_comes_back() -> None:
    """Fifty go out each second and as many are left as before: fifty come back."""
    allowance = Allowance()
    allowance.told(50.0, 1.0, mark=allowance.spend(1.0), sent=0.0, now=0.0)
    for step in range(1, 60):
        mark = allowance.spend(25.0)
        allowance.told(10.0, 1.0, mark=mark, sent=step * 0.5, now=step * 0.5)
    assert allowance.per_second == pytest.approx(50.0, rel=0.05)
    now = 29.5
    missing = 20.0 + 50 * RESERVE - 10.0
    assert allowance.ready_in(20.0, now) == pytest.approx(missing / 50, rel=0.1)


def test_what_takes_a_whole_bucket_goes_out_when_it_is_full() -> None:
    """There is no reserve beside it, and it does not wait for the time at which the server begins anew."""
    allowance = Allowance()
    for second in range(3):
        mark = allowance.spend(50.0)
        allowance.told(100.0 - 20 * second, 60.0, mark=mark, sent=float(second), now=float(second))
    assert allowance.per_second > 0
    assert allowance.ready_in(500.0, 2.0) > 0
    assert allowance.ready_in(500.0, 30.0) == 0.0


@pytest.mark.parametrize("reset", [None, 0.0, 1e9])
def test_nobody_waits_for_longer_than_a_minute(reset: float | None) -> None:
    """Whatever is told, even that nothing will ever be left."""
    allowance = Allowance()
    allowance.told(0.0, reset, mark=allowance.spend(1.0), sent=0.0, now=0.0)
    assert allowance.ready_in(1e9, 0.0) <= 60.0
    assert allowance.ready_in(1e9, 60.0) == 0.0
