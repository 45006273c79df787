"""An endpoint that is down is noticed, looked at now and then, and given up after the patience."""

from __future__ import annotations

import itertools

import pytest

from corpusmill.chat.breaker import FIRST_PAUSE, GRACE, LONGEST_PAUSE, MANY, Breaker
from corpusmill.chat.verdict import Accepted, RetryAfter, RowFailed, Unparsed
from corpusmill.exchange import Completion

YES = Accepted(completion=Completion(body=b"{}", content="a", finish_reason="stop"))
REFUSED = RetryAfter(kind="connect", reason="connect: refused", down=True)
BROKEN = RetryAfter(kind="server_error", reason="HTTP 500", down=True)
AWAY = RetryAfter(kind="unavailable", reason="HTTP 503", down=True)
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
    assert breaker.sent(1.0)
    assert breaker.state == "probing"
    assert not breaker.allows(1.0)
    breaker.record(YES, 1.2, probe=True)
    assert breaker.allows(1.2)
    assert not breaker.sent(1.2)


def test_pauses_between_looks_grow_up_to_a_bound() -> None:
    """A minute's restart is noticed soon, an outage is not hammered."""
    breaker = opened(patience=1e9)
    times = [breaker.next_probe]
    for _ in range(10):
        assert breaker.sent(times[-1])
        breaker.record(REFUSED, times[-1], probe=True)
        times.append(breaker.next_probe)
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses[:5] == [2.0, 4.0, 8.0, 16.0, 30.0]
    assert pauses[-1] == LONGEST_PAUSE


def test_a_look_that_ended_without_a_verdict_frees_its_place() -> None:
    """A cancelled probe must not keep all others out."""
    breaker = opened()
    breaker.sent(1.0)
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


def failing(verdict: RetryAfter, *, requests: int, heard: bool = True) -> Breaker:
    """Give a breaker that the failures of so many requests at second 0 have opened, each tried again and again."""
    breaker = Breaker(patience=100.0)
    if heard:
        breaker.record(YES, 0.0, probe=False)
    for number in range(max(requests, MANY)):
        breaker.record(verdict, 0.0, probe=False, again=number >= requests)
    assert breaker.state == "open"
    return breaker


@pytest.mark.parametrize("verdict", [BROKEN, AWAY, RetryAfter(kind="disconnected", reason="", down=True)])
def test_a_few_requests_that_fail_time_and_again_are_to_blame_themselves_after_the_grace(
    verdict: RetryAfter,
) -> None:
    """Their failures are attempts again, a look a second goes out meanwhile, and the patience does not run."""
    breaker = failing(verdict, requests=MANY - 1)
    assert not breaker.blames_rows(GRACE)
    assert breaker.blames_rows(GRACE + 0.1)
    assert not breaker.gave_up(1e9)
    for second in (1.0, 2.0, 3.0):
        assert breaker.allows(second)
        assert breaker.sent(second)
        assert not breaker.allows(second + FIRST_PAUSE / 2)
        breaker.record(verdict, second, probe=True, again=True)


@pytest.mark.parametrize("verdict", [BROKEN, AWAY])
def test_many_requests_that_fail_are_not_to_blame(verdict: RetryAfter) -> None:
    """As many different ones as that are the endpoint's fault, for as long as it takes."""
    breaker = failing(verdict, requests=MANY)
    assert not breaker.blames_rows(99.0)
    assert breaker.gives_up_at == 100.0


def test_a_single_request_is_not_to_blame_where_nobody_is_there() -> None:
    """A refused connection is no row's."""
    breaker = failing(REFUSED, requests=1)
    assert not breaker.blames_rows(99.0)
    assert breaker.gives_up_at == 100.0


def test_what_is_all_that_a_run_has_asked_may_be_to_blame_though_it_is_much() -> None:
    """Rows that failed last time may be all that is left: their attempts count again when half the patience is over."""
    breaker = failing(BROKEN, requests=5 * MANY, heard=False)
    breaker.record(BROKEN, 50.0, probe=True, again=True)
    assert not breaker.blames_rows(50.0 + GRACE)
    breaker.record(BROKEN, 51.0, probe=True, again=True)
    assert not breaker.blames_rows(51.0 + GRACE)
    assert breaker.blames_rows(51.1 + GRACE)
    assert breaker.gives_up_at == 100.0


@pytest.mark.parametrize(("verdict", "heard"), [(BROKEN, True), (AWAY, False), (REFUSED, False)])
def test_much_that_fails_is_not_to_blame_after_an_answer_or_behind_a_gateway(
    verdict: RetryAfter, *, heard: bool
) -> None:
    """However long it takes."""
    breaker = failing(verdict, requests=5 * MANY, heard=heard)
    breaker.record(verdict, 51.0, probe=True, again=True)
    assert not breaker.blames_rows(99.0)
    assert breaker.gives_up_at == 100.0


def test_patience_and_grace_begin_anew_when_doubt_begins_or_ends() -> None:
    """But one that is there and gone in turns is not waited for without end."""
    breaker = failing(AWAY, requests=1)
    breaker.record(REFUSED, 60.0, probe=True, again=True)
    assert not breaker.gave_up(160.0)
    assert breaker.gave_up(160.1)
    assert not breaker.blames_rows(160.0)
    breaker.record(AWAY, 90.0, probe=True, again=True)
    assert not breaker.gave_up(1e9)
    assert not breaker.blames_rows(99.0)
    assert breaker.blames_rows(100.1)


def test_an_answer_ends_all_doubt() -> None:
    """What failed before it is forgotten."""
    breaker = failing(AWAY, requests=MANY)
    breaker.record(YES, 5.0, probe=True)
    for _ in range(5):
        breaker.record(AWAY, 6.0, probe=False, again=True)
    assert breaker.state == "open"
    assert breaker.gives_up_at is None
