"""An endpoint that is down is noticed, looked at now and then, and given up after the patience."""

from __future__ import annotations

import itertools

import pytest

from corpusmill.chat.breaker import LONGEST_PAUSE, Breaker
from corpusmill.chat.verdict import Accepted, RetryAfter, RowFailed, Unparsed
from corpusmill.exchange import Completion

YES = Accepted(completion=Completion(body=b"{}", content="a", finish_reason="stop"))
REFUSED = RetryAfter(kind="connect", reason="connect: refused", down=True)
BROKEN = RetryAfter(kind="server_error", reason="HTTP 500", down=True)
LIMITED = RetryAfter(kind="rate_limited", reason="HTTP 429", rate_limited=True)


def opened(patience: float = 100.0) -> Breaker:
    """Give a breaker that five refused connections at second 0 have opened."""
    breaker = Breaker(patience=patience)
    for _ in range(5):
        breaker.record(REFUSED, 0.0, probe=False)
    assert breaker.state == "open"
    return breaker


def test_a_few_refused_connections_open_it_and_more_errors_of_the_server_do() -> None:
    """An error 500 may be one row's own."""
    for verdict, many in ((REFUSED, 5), (BROKEN, 10)):
        breaker = Breaker(patience=100)
        states = []
        for _ in range(many):
            states.append(breaker.state)
            breaker.record(verdict, 0.0, probe=False)
        assert states == ["closed"] * many
        assert breaker.state == "open"


@pytest.mark.parametrize(
    "verdict",
    [YES, LIMITED, RowFailed(kind="context_overflow", reason=""), Unparsed(output="", body=b"", reason="")],
)
def test_whoever_answers_anything_is_up(verdict: Accepted | RetryAfter | RowFailed | Unparsed) -> None:
    """A row's own fault, a rate limit and an overflow come from an endpoint that works."""
    breaker = Breaker(patience=100)
    for _ in range(50):
        breaker.record(BROKEN, 0.0, probe=False)
        breaker.record(verdict, 0.0, probe=False)
    assert breaker.state == "closed"


def test_what_says_nothing_about_the_endpoint_changes_nothing() -> None:
    """A cut stream neither opens nor closes it."""
    cut = RetryAfter(kind="cut_stream", reason="", possibly_paid=True)
    breaker = Breaker(patience=100)
    for _ in range(50):
        breaker.record(cut, 0.0, probe=False)
    assert breaker.state == "closed"
    breaker = opened()
    breaker.record(cut, 0.5, probe=False)
    assert breaker.state == "open"


def test_one_request_at_a_time_looks_whether_it_is_back() -> None:
    """And only after the pause."""
    breaker = opened()
    assert not breaker.allows(0.5)
    assert breaker.allows(1.0)
    assert breaker.sent()
    assert breaker.state == "probing"
    assert not breaker.allows(1.0)
    breaker.record(YES, 1.2, probe=True)
    assert breaker.allows(1.2)
    assert not breaker.sent()


def test_pauses_between_looks_grow_up_to_a_bound() -> None:
    """A minute's restart is noticed soon, an outage is not hammered."""
    breaker = opened(patience=1e9)
    times = [breaker.next_probe]
    for _ in range(10):
        assert breaker.sent()
        breaker.record(REFUSED, times[-1], probe=True)
        times.append(breaker.next_probe)
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses[:5] == [2.0, 4.0, 8.0, 16.0, 30.0]
    assert pauses[-1] == LONGEST_PAUSE


def test_a_look_that_ended_without_a_verdict_frees_its_place() -> None:
    """A cancelled probe must not keep all others out."""
    breaker = opened()
    breaker.sent()
    breaker.lost()
    assert breaker.allows(1.0)


def test_an_answer_to_a_request_from_before_closes_it() -> None:
    """Whichever request brings the good news."""
    breaker = opened()
    breaker.record(YES, 0.5, probe=False)
    assert (breaker.state, breaker.since, breaker.reason) == ("closed", None, "")


def test_it_gives_up_after_the_patience_and_says_why() -> None:
    """Counted from the first failure, and anew after any success."""
    breaker = opened(patience=100)
    assert not breaker.gave_up(100.0)
    assert breaker.gave_up(100.1)
    assert breaker.reason == "connect: refused"
    breaker.record(YES, 101.0, probe=False)
    assert not breaker.gave_up(1_000.0)
