"""Progress: a live display on a terminal, a line every half minute elsewhere, and why nothing goes out."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from corpusmill.cli.progress import Display, line, table
from corpusmill.engine.engine import Progress

if TYPE_CHECKING:
    from tests.conftest import FakeClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress(**changes: Any) -> Progress:
    """A run in its tenth second."""
    values: dict[str, Any] = {
        "phase": "asking",
        "rows": 2_000,
        "total": 10_000,
        "seconds": 10.0,
        "live": 1_500,
        "hits": 400,
        "tokens": 123_456,
        "in_flight": 12,
        "concurrency": 64,
        "backing_off": 0,
        "rate_limited": 0,
        "waiting": None,
    }
    return Progress(**{**values, **changes})


def shown(**changes: Any) -> str:
    """What a wide terminal shows of it."""
    stream = io.StringIO()
    Console(file=stream, width=200).print(table(progress(**changes)))
    return stream.getvalue()


def test_a_line_says_how_far_and_how_fast() -> None:
    """Rows, speed, what is left, answers, hits, tokens and what is in flight."""
    assert line(progress()) == (
        "asking: 2,000 of 10,000 rows, 200.0 rows/s, 40 s left, 1,500 answers, 400 from the store, 123,456 tokens, "
        "0 refused by a limit (429), 12 of 64 in flight"
    )


@pytest.mark.parametrize(
    "changes", [{"total": None}, {"rows": 0}, {"seconds": 0.0}, {"waiting": "it is down", "live": 0}]
)
def test_what_cannot_be_foretold_is_not(changes: dict[str, Any]) -> None:
    """Without a total or a speed, or an answer to go by, nothing is said of the end."""
    assert "unknown time left" in line(progress(**changes))
    assert "unknown time left" in shown(**changes)


def test_why_nothing_goes_out_is_said() -> None:
    """In a line and on a terminal, and also how many requests wait to be tried again."""
    waiting = {"waiting": "the endpoint is down (20 s more)", "backing_off": 3}
    assert line(progress(**waiting)).endswith(
        "3 waiting to try again, WAITING: the endpoint is down (20 s more)"
    )
    assert "the endpoint is down (20 s more)" in shown(**waiting)
    assert "waiting   " not in shown()


def test_markup_in_what_an_endpoint_says_is_shown_as_it_is() -> None:
    """A reason may quote a server, whose brackets must neither colour anything nor end the run."""
    assert "[red]down[/] [/nope]" in shown(waiting="[red]down[/] [/nope]")


def test_elsewhere_than_on_a_terminal_a_line_comes_every_half_minute(clock: FakeClock) -> None:
    """However often the run reports."""
    stream = io.StringIO()
    with Display(stream=stream, clock=clock) as display:
        for _ in range(4 * 95):
            display(progress())
            clock.advance(0.25)
    assert len(stream.getvalue().splitlines()) == 3


def test_elsewhere_than_on_a_terminal_the_first_line_comes_at_once(clock: FakeClock) -> None:
    """Once, so that a log tells from the start what goes on; a terminal shows it all the time."""
    stream, terminal = io.StringIO(), Terminal()
    for where in (stream, terminal):
        with Display(stream=where, clock=clock, opening=lambda first: f"opening: {first.total}") as display:
            assert "opening" not in where.getvalue(), "nothing is known yet"
            display(progress())
            display(progress())
    assert stream.getvalue() == "opening: 10000\n"
    assert "opening" not in terminal.getvalue()


def test_that_a_run_waits_and_goes_on_is_said_at_once(clock: FakeClock) -> None:
    """Not after half a minute; but a pause that comes and goes within a second is no news."""
    stream = io.StringIO()
    display = Display(stream=stream, clock=clock)
    clock.advance(2)
    display(progress())
    assert stream.getvalue() == ""
    display(progress(waiting="a quota"))
    clock.advance(0.5)
    display(progress())
    display(progress(waiting="a quota"))
    clock.advance(5)
    display(progress())
    said = stream.getvalue().splitlines()
    assert ["WAITING" in each for each in said] == [True, False]


def test_a_terminal_has_a_display_that_goes_away(clock: FakeClock) -> None:
    """It is drawn over itself, and what is said meanwhile stays above it."""
    stream = Terminal()
    with Display(stream=stream, clock=clock) as display:
        display(progress())
        display.say("stopping [now]")
        display(progress(waiting="[bold]nobody[/] answers"))
    said = stream.getvalue()
    assert "2,000 of 10,000" in said
    assert "[bold]nobody[/] answers" in said
    assert "stopping [now]" in said
    assert "\x1b[" in said
    before = len(said)
    display.say("after it")
    assert stream.getvalue()[before:] == "after it\n"


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["file", "terminal"])
def test_a_quiet_run_shows_nothing(stream: io.StringIO, clock: FakeClock) -> None:
    """Neither on a terminal nor elsewhere."""
    with Display(quiet=True, stream=stream, clock=clock) as display:
        for _ in range(100):
            display(progress(waiting="a quota"))
            clock.advance(10)
    assert stream.getvalue() == ""
