"""What all processes together may send: the arithmetic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from corpusmill.store.rates import Levels, Rates, take


def sent(rates: Rates, *, seconds: float, tokens: float) -> list[float]:
    """Send as fast as it goes for so many seconds; give the moments."""
    levels: Levels | None = None
    now, moments = 1000.0, []
    while now < 1000.0 + seconds:
        after, wait = take(levels, rates, tokens=tokens, now=now)
        if after is None:
            now += wait
        else:
            levels = after
            moments.append(now)
    return moments


@given(st.floats(1, 600), st.floats(1, 100_000), st.floats(0, 5_000))
def test_no_minute_has_more_than_the_rates_and_one_burst(requests: float, tokens: float, size: float) -> None:
    """Whatever is asked for, both limits hold over any minute, but for what may go out at once."""
    rates = Rates(requests_per_minute=requests, tokens_per_minute=tokens)
    moments = sent(rates, seconds=150, tokens=size)
    for start in moments:
        within = [moment for moment in moments if start <= moment < start + 60]
        assert len(within) <= requests + max(1.0, requests / 60) + 1e-3
        assert (len(within) - 1) * size <= tokens + max(1.0, tokens / 12) + 1e-3


def test_a_request_larger_than_the_burst_goes_out_and_is_owed() -> None:
    """It does not wait for ever, and the next one waits until the debt is paid."""
    rates = Rates(tokens_per_minute=60)
    after, wait = take(None, rates, tokens=120, now=0.0)
    assert (after is not None, wait) == (True, 0.0)
    _, wait = take(after, rates, tokens=1, now=0.0)
    assert wait == 116.0


def test_a_clock_that_goes_back_gives_nothing_for_it() -> None:
    """Time that went back refills nothing and takes nothing."""
    rates = Rates(requests_per_minute=60)
    after, _ = take(None, rates, tokens=0, now=1000.0)
    assert take(after, rates, tokens=0, now=900.0)[1] == 1.0
