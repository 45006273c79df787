"""Progress on standard error: a live display on a terminal, elsewhere a line at the start and every 30 seconds."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
import time
from typing import TYPE_CHECKING, Self, TextIO

from corpusmill.page.numbers import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.live import Live
    from rich.table import Table

    from corpusmill.engine.engine import Progress

EVERY = 30.0
"""Seconds between two plain lines."""


class Display:
    """Shows the progress of a run. It is called from the engine's thread."""

    def __init__(
        self,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
        opening: Callable[[Progress], str] | None = None,
    ) -> None:
        """Write to `stream`, standard error by default; with `quiet` nothing at all.

        `every` is the time between two plain lines, in seconds, which `clock` counts; `opening` gives the one that goes
        before them. Where standard error is closed,
        or cannot be written any more (its reader has left, its disk is full), there is nobody to show anything to, and
        the run goes on.
        """
        told = stream or sys.stderr
        self._stream = told if told is not None else io.StringIO()
        self._quiet = quiet or told is None
        self._every = every
        self._live: Live | None = None
        self._clock = clock
        self._last = clock()
        self._opening = opening
        self._lock = threading.Lock()
        self._waiting: str | None = None

    def __enter__(self) -> Self:
        """Start the live display where there is a terminal."""
        if not self._quiet and self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._stream), refresh_per_second=4, transient=True)
            with self._listener():
                self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the live display away."""
        if self._live is not None:
            with self._listener():
                self._live.stop()
            self._live = None

    @contextlib.contextmanager
    def _listener(self) -> Iterator[None]:
        """Fall silent for good where nobody can be told anything."""
        try:
            yield
        except OSError:
            self._quiet = True

    def __call__(self, progress: Progress) -> None:
        """Take a new state of the run."""
        if self._quiet:
            return
        with self._lock, self._listener():
            if self._live is not None:
                self._live.update(table(progress))
                return
            if self._opening is not None:
                print(self._opening(progress), file=self._stream, flush=True)
                self._opening = None
            now = self._clock()
            changed = (progress.waiting is None) != (self._waiting is None)
            self._waiting = progress.waiting
            if now - self._last >= self._every or (changed and now - self._last >= 1.0):
                self._last = now
                print(line(progress), file=self._stream, flush=True)

    def say(self, text: str) -> None:
        """Print a line of its own, above a live display."""
        with self._listener():
            if self._live is not None:
                self._live.console.print(text, highlight=False, markup=False)
            else:
                print(text, file=self._stream, flush=True)


def line(progress: Progress) -> str:
    """Say in one line how a run stands."""
    total = f" of {progress.total:,}" if progress.total is not None else ""
    pieces = [
        f"{progress.phase}: {progress.rows:,}{total} rows",
        f"{rate(progress):,.1f} rows/s",
        f"{_left(progress)} left",
        f"{progress.live:,} answers",
        f"{progress.hits:,} from the store",
        f"{progress.tokens:,} tokens",
        f"{progress.rate_limited:,} refused by a limit (429)",
        f"{progress.in_flight} of {progress.concurrency} in flight",
    ]
    if progress.backing_off:
        pieces.append(f"{progress.backing_off} waiting to try again")
    if progress.waiting is not None:
        pieces.append(f"WAITING: {progress.waiting}")
    return ", ".join(pieces)


def rate(progress: Progress) -> float:
    """Give the rows a second since the start."""
    return progress.rows / progress.seconds if progress.seconds > 0 else 0.0


def _left(progress: Progress) -> str:
    speed = rate(progress)
    # While an endpoint that has answered nothing yet is waited for, the rows are those that need no answer.
    if progress.total is None or speed <= 0 or (progress.waiting is not None and not progress.live):
        return "unknown time"
    return duration((progress.total - progress.rows) / speed)


def table(progress: Progress) -> Table:
    """Draw the live display."""
    from rich.markup import escape
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    total = f" of {progress.total:,}" if progress.total is not None else ""
    if progress.total:
        grid.add_row(progress.phase, ProgressBar(total=progress.total, completed=progress.rows, width=50))
    grid.add_row(
        "rows", f"{progress.rows:,}{total}   {rate(progress):,.1f} a second   {_left(progress)} left"
    )
    grid.add_row(
        "answers", f"{progress.live:,} asked   {progress.hits:,} from the store   {progress.tokens:,} tokens"
    )
    grid.add_row(
        "wire",
        f"{progress.in_flight} of {progress.concurrency} in flight   {progress.rate_limited:,} refused by a limit (429)"
        f"   {progress.backing_off} waiting to try again",
    )
    if progress.waiting is not None:
        grid.add_row("waiting", f"[yellow]{escape(progress.waiting)}[/yellow]")
    return grid
