"""Lines in the task's log while a run goes on: one every half minute, in numbers only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from corpusmill.page.numbers import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpusmill.engine.engine import Progress
    from corpusmill.report import RunReport

EVERY = 30.0
"""Seconds between two lines."""


class LogLines:
    """What `enrich` calls with its progress, from another thread; `write` takes one line."""

    def __init__(self, write: Callable[[str], Any], *, clock: Callable[[], float] = time.monotonic) -> None:
        """Write nothing yet; `clock` tells seconds."""
        self._write = write
        self._clock = clock
        self._last = clock()

    def __call__(self, progress: Progress) -> None:
        """Write a line if it is time for one."""
        now = self._clock()
        if now - self._last >= EVERY:
            self._last = now
            self._write(line(progress))


def line(progress: Progress) -> str:
    """Say how a run stands: rows, rate, time left, tokens, answers from the store, refusals for speed."""
    total = progress.total
    rows = f"{progress.rows:,} rows" if total is None else f"{progress.rows:,} of {total:,} rows"
    if not progress.concurrency:
        # Nobody is asked from here: rows are sent to a transform job, or taken out of one.
        return f"{progress.phase}: {rows}"
    rate = progress.rows / progress.seconds if progress.seconds > 0 else 0.0
    words = [rows, f"{rate:,.1f} a second"]
    if total is not None and rate > 0:
        words.append(f"about {duration((total - progress.rows) / rate)} left")
    words += [
        f"{progress.tokens:,} tokens",
        f"{progress.hits:,} answers from the store",
        f"{progress.in_flight} requests out",
        f"{progress.rate_limited:,} times 429",
    ]
    if progress.waiting:
        words.append(f"waiting: {progress.waiting}")
    return ", ".join(words)


def ending(report: RunReport) -> str:
    """Say what a run came to."""
    if report.skipped_run:
        return f"nothing to do: {report.output} is up to date ({report.rows:,} rows); nothing was asked"
    statuses = ", ".join(f"{count:,} {status}" for status, count in sorted(report.outcomes.items()))
    cost = "" if report.cost is None else f", ${report.cost:,.4f}"
    return (
        f"{report.rows:,} rows: {statuses}; asked {report.live:,}, from the store {report.cached:,}, "
        f"{report.prompt_tokens + report.completion_tokens:,} tokens{cost}"
    )


def failures(report: RunReport) -> str:
    """Say how many rows failed for each prompt, and with which kinds of errors; no text of the corpus."""
    told = []
    for prompt in report.prompts:
        counts = ", ".join(f"{count:,} {status}" for status, count in sorted(prompt.outcomes.items()))
        kinds = ", ".join(
            f"{count:,} {kind}" for kind, count in sorted(prompt.errors.items(), key=lambda item: -item[1])
        )
        told.append(f"{prompt.into}: {counts}" + (f" (errors: {kinds})" if kinds else ""))
    return "; ".join(told) or "no prompt has an outcome yet"
