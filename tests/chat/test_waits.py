"""How long to wait is read from every form in which servers say it, and nonsense never hurts."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.chat.waits import LONGEST, NAMES, delay_in_text, read_rates, read_reset, retry_after

NOW = 1_759_750_801.0


def at(seconds: float) -> str:
    """Write the moment that is so many seconds from now as HTTP does."""
    return format_datetime(datetime.fromtimestamp(NOW + seconds, UTC), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 7.5 "}, 7.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "20s"}, 20.0),
        ({"retry-after": "1m26.4s"}, 86.4),
        ({"retry-after": at(30)}, 30.0),
        ({"retry-after": at(-30)}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "99999999999999999"}, None),
        ({"retry-after": "1e400"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": f"{NOW + 12:.0f}"}, 12.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "-5", "retry-after": "1"}, 1.0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20s"}, 20.0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": f"{NOW + 9:.0f}"}, 9.0),
        (
            {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": f"{(NOW + 9) * 1000:.0f}"},
            9.0,
        ),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2025-10-06T11:40:31Z"}, 30.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m0.5s"}, 60.5),
        ({"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "20"}, None),
        ({"x-ratelimit-reset-requests": "20"}, 20.0),
        ({"x-ratelimit-remaining-requests": "-1", "x-ratelimit-reset-requests": "-1"}, None),
        ({"retry-after": "3", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "9"}, 3.0),
        ({}, None),
    ],
    ids=str,
)
def test_each_form_of_a_wait_is_read(headers: dict[str, str], seconds: float | None) -> None:
    """Whole, broken, dated, past, negative, enormous, in milliseconds, as a moment, compound."""
    assert retry_after(headers, "", NOW) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Rate limit reached. Please try again in 1m26.4s.", 86.4),
        ("Please try again in 250ms.", 0.25),
        ("Please retry after 20 seconds.", 20.0),
        ("Try again in 2 minutes and 5 seconds", 125.0),
        ("retry in 1h2m3s", 3723.0),
        ("Quota resets in 6h", 21_600.0),
        ("Too many requests: limit 60 per minute", None),
        ("wait, what?", None),
        ("", None),
    ],
)
def test_a_delay_in_the_text_is_read(text: str, seconds: float | None) -> None:
    """Some servers say it nowhere else."""
    assert delay_in_text(text) == (None if seconds is None else pytest.approx(seconds))


def test_the_header_goes_before_the_text() -> None:
    """The text is for people and may be rounded."""
    assert retry_after({"retry-after": "5"}, "try again in 20s", NOW) == 5.0


def test_rates_are_read_by_window() -> None:
    """What is left of the minute and of the day are told apart; negative means unknown."""
    rates = read_rates(
        {
            "x-ratelimit-limit-requests": "60",
            "x-ratelimit-remaining-requests": "12",
            "x-ratelimit-reset-requests": "20",
            "x-ratelimit-remaining-tokens": "-1",
            "x-ratelimit-remaining-requests-day": "0",
            "x-ratelimit-reset-requests-day": f"{NOW + 3600:.0f}",
        },
        NOW,
    )
    assert rates is not None
    assert (rates.requests, rates.requests_reset, rates.tokens) == (12.0, 20.0, None)
    assert (rates.day, rates.day_reset) == (0.0, 3600.0)


def test_of_two_headers_that_contradict_each_other_the_cautious_one_holds() -> None:
    """Less left, longer to wait."""
    rates = read_rates({"x-ratelimit-remaining-requests": "9", "ratelimit-remaining": "2"}, NOW)
    assert rates is not None
    assert rates.requests == 2.0


def test_headers_that_say_nothing_make_no_rates() -> None:
    """So that nothing is obeyed that nobody said."""
    assert read_rates({"x-ratelimit-remaining-requests": "many", "date": "x"}, NOW) is None


@given(
    headers=st.dictionaries(st.sampled_from(sorted(NAMES)), st.text(max_size=30) | st.floats().map(str)),
    text=st.text(max_size=60),
    now=st.floats(0, 4e9),
)
def test_no_header_makes_it_raise_or_wait_for_ever(headers: dict[str, str], text: str, now: float) -> None:
    """Whatever stands there, the result is None or a bounded number of seconds."""
    waits = [retry_after(headers, text, now), *(read_reset(value, now) for value in headers.values())]
    assert all(wait is None or 0 <= wait <= LONGEST for wait in waits)
    read_rates(headers, now)
