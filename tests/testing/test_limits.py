"""Rate limits under a clock that stands still until it is moved, and what they put into headers."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Literal

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.testing import RateLimits
from corpusmill.testing.limits import Account, Limiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import FakeClock

    from corpusmill.testing import FakeEndpoint

HTTP = httpx.Client(
    verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), limits=httpx.Limits(max_keepalive_connections=0)
)
"""Loads no certificates, which takes longer than a test, and keeps no connection."""

Window = Literal["bucket", "fixed"]


def admitted(limiter: Limiter, now: float, *, tokens: int = 1) -> int:
    """Return how many requests in a row are let in at one moment."""
    count = 0
    while count < 1_000 and limiter.admit(tokens, now).admitted:
        count += 1
    return count


def test_a_bucket_fills_evenly_up_to_its_burst() -> None:
    """The burst is there at once, then one request each time its share of a minute has passed."""
    limiter = Limiter(RateLimits(requests_per_minute=60, burst=3), now=0)
    assert admitted(limiter, 0) == 3
    assert limiter.admit(1, 0).wait == pytest.approx(1)
    assert admitted(limiter, 1) == 1
    assert admitted(limiter, 2.5) == 1
    assert admitted(limiter, 100) == 3


def test_a_fixed_window_grants_all_at_once_and_starts_over() -> None:
    """A minute's requests are let in at its start, and the rest waits for its end."""
    limiter = Limiter(RateLimits(requests_per_minute=5, window="fixed"), now=0)
    assert admitted(limiter, 10) == 5
    assert limiter.admit(1, 20).wait == pytest.approx(40)
    assert admitted(limiter, 59.9) == 0
    assert admitted(limiter, 60) == 5


def test_tokens_of_an_answer_overdraw_the_account() -> None:
    """What an answer cost is taken afterwards, and the next request waits until it is made up for."""
    limiter = Limiter(RateLimits(tokens_per_minute=600), now=0)
    assert limiter.admit(100, 0).admitted
    limiter.spend(800, 0)
    refused = limiter.admit(100, 0)
    assert (refused.admitted, refused.limit) == (False, "tokens")
    assert refused.wait == pytest.approx(40)
    assert limiter.admit(100, 40).admitted


def test_a_request_above_the_limit_of_a_minute_never_fits() -> None:
    """No wait is named for a request that is larger than a full account."""
    limiter = Limiter(RateLimits(tokens_per_minute=600), now=0)
    assert limiter.admit(601, 0).wait is None


def test_a_used_up_day_lasts_to_its_end() -> None:
    """The day's requests are a fixed window of a day."""
    limiter = Limiter(RateLimits(requests_per_minute=1_000, requests_per_day=10), now=0)
    assert admitted(limiter, 0) == 10
    refused = limiter.admit(1, 3_600)
    assert (refused.limit, refused.wait) == ("day", 82_800)
    assert admitted(limiter, 86_400) == 10


def test_a_refusal_takes_nothing() -> None:
    """A request that one limit refuses uses up no other."""
    limiter = Limiter(RateLimits(requests_per_minute=10, tokens_per_minute=50), now=0)
    assert admitted(limiter, 0, tokens=50) == 1
    for _ in range(20):
        assert limiter.admit(50, 0).limit == "tokens"
    assert admitted(limiter, 0, tokens=0) == 9


@given(
    steps=st.lists(st.floats(0, 30), max_size=60),
    burst=st.integers(1, 20),
    window=st.sampled_from(["bucket", "fixed"]),
)
def test_no_minute_sees_more_than_the_limit_and_a_burst(
    steps: list[float], burst: int, window: Window
) -> None:
    """Whenever requests come, a minute lets in at most its rate and what was saved up before."""
    rate = 20
    limiter = Limiter(RateLimits(requests_per_minute=rate, burst=burst, window=window), now=0)
    now, times = 0.0, []
    for step in steps:
        now += step
        times += [now] * admitted(limiter, now)
    saved = burst if window == "bucket" else rate
    for start in times:
        assert sum(start <= moment < start + 60 for moment in times) <= rate + saved


@given(taken=st.integers(1, 200), amount=st.integers(1, 60), now=st.floats(0, 500), fixed=st.booleans())
def test_who_waits_as_told_is_let_in(taken: int, amount: int, now: float, *, fixed: bool) -> None:
    """After the wait that an account names, the amount is at hand."""
    account = Account(60, period=60, capacity=60, fixed=fixed, now=0)
    account.take(taken, now)
    wait = account.wait(amount, now)
    assert wait is not None
    assert account.wait(amount, now + wait + 1e-6) == 0


@pytest.mark.parametrize(("form", "reset"), [("seconds", "90"), ("epoch", "1090"), ("duration", "1m30.0s")])
def test_headers_tell_limit_rest_and_reset(form: Literal["seconds", "epoch", "duration"], reset: str) -> None:
    """Each limit has three headers, the reset in the form that was chosen."""
    limits = RateLimits(requests_per_minute=2, requests_per_day=3, minute_seconds=90, reset_form=form)
    limiter = Limiter(limits, now=0)
    assert admitted(limiter, 0) == 2
    headers = {name.decode(): value.decode() for name, value in limiter.headers(0, 1_000)}
    assert headers["x-ratelimit-limit-requests"] == "2"
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert headers["x-ratelimit-reset-requests"] == reset
    assert headers["x-ratelimit-limit-requests-day"] == "3"
    assert headers["x-ratelimit-remaining-requests-day"] == "1"
    assert "x-ratelimit-reset-requests-day" in headers


@pytest.mark.parametrize(
    "wrong", [{"requests_per_minute": 0}, {"burst": -1}, {"minute_seconds": 0}, {"day_seconds": -1}]
)
def test_limits_that_let_nothing_in_are_refused(wrong: dict[str, Any]) -> None:
    """A limit below one request and a minute without seconds are errors."""
    with pytest.raises(ValueError, match="limits:"):
        RateLimits(**wrong)


def post(endpoint: FakeEndpoint, text: str = "bread") -> httpx.Response:
    """Send one request."""
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    return HTTP.post(f"{endpoint.base_url}/chat/completions", json=body)


def test_the_endpoint_refuses_with_the_seconds_to_wait(
    fake_endpoint_factory: Callable[..., FakeEndpoint], clock: FakeClock
) -> None:
    """A 429 says when to come back, and who comes then is let in; headers stand on every response."""
    endpoint = fake_endpoint_factory(limits=RateLimits(requests_per_minute=6, burst=1), clock=clock)
    first, second = post(endpoint), post(endpoint)
    assert (first.status_code, second.status_code) == (200, 429)
    assert first.headers["x-ratelimit-remaining-requests"] == "0"
    assert second.headers["retry-after"] == "10"
    assert second.json()["error"]["code"] == "rate_limit_exceeded"
    clock.advance(float(second.headers["retry-after"]))
    assert post(endpoint).status_code == 200
    stats = endpoint.stats()
    assert (stats.rate_limited, stats.computed, stats.by_status) == (1, 2, {"200": 2, "429": 1})


def test_a_request_too_large_for_a_minute_is_told_so(
    fake_endpoint_factory: Callable[..., FakeEndpoint],
) -> None:
    """Waiting would not help, and no Retry-After says that it would."""
    refused = post(fake_endpoint_factory(limits=RateLimits(tokens_per_minute=10)), "bread " * 50)
    assert refused.status_code == 429
    assert "retry-after" not in refused.headers
    assert "too large" in refused.json()["error"]["message"]


def test_an_answer_costs_its_tokens_too(
    fake_endpoint_factory: Callable[..., FakeEndpoint], clock: FakeClock
) -> None:
    """What is left of a minute's tokens is what neither prompt nor answer took."""
    endpoint = fake_endpoint_factory(limits=RateLimits(tokens_per_minute=1_000), clock=clock)
    answered = post(endpoint)
    assert answered.headers["x-ratelimit-remaining-tokens"] == str(
        1_000 - answered.json()["usage"]["total_tokens"]
    )


def test_retry_after_can_be_left_out(fake_endpoint_factory: Callable[..., FakeEndpoint]) -> None:
    """Some servers say no more than 429."""
    endpoint = fake_endpoint_factory(limits=RateLimits(requests_per_day=1, retry_after=False))
    assert post(endpoint).status_code == 200
    refused = post(endpoint)
    assert refused.status_code == 429
    assert "retry-after" not in refused.headers
    assert refused.headers["x-ratelimit-remaining-requests-day"] == "0"
