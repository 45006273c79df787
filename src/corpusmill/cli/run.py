"""`corpusmill run` and `corpusmill schema`."""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import signal
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import msgspec

from corpusmill.cli.job_file import job_of_file
from corpusmill.cli.none_chosen import warn_of_no_rows
from corpusmill.cli.progress import EVERY, Display
from corpusmill.endpoints.endpoint import shown_url
from corpusmill.endpoints.sagemaker import SageMakerTransform
from corpusmill.enrich_job import enrich_job
from corpusmill.errors import InterruptedRunError, RunEndedError, TooManyFailuresError
from corpusmill.job import job_schema
from corpusmill.page.numbers import duration
from corpusmill.report import STATED, summary
from corpusmill.tables import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from corpusmill.engine.door import Stoppable
    from corpusmill.engine.engine import Progress
    from corpusmill.job import Job
    from corpusmill.report import RunReport

limit_option = click.option(
    "--limit", type=click.IntRange(min=1), help="Preview: ask so many rows, print them, write no sink."
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the report as JSON on standard output, nothing else."
)
quiet_option = click.option(
    "--quiet",
    is_flag=True,
    help="Show no progress and no summary; warnings, errors, --json and a preview are shown all the same.",
)


@click.command("run", short_help="Run a job file.")
@click.argument("job", type=click.Path(dir_okay=False))
@limit_option
@click.option("--overwrite", is_flag=True, help="Remove all that lies in the sink, whoever wrote it.")
@json_option
@quiet_option
@click.option(
    "--progress-every",
    type=click.FloatRange(min=0.1),
    default=EVERY,
    show_default=True,
    help="Seconds between two lines of progress where there is no terminal.",
)
@click.option(
    "--stop-on-interrupt", is_flag=True, help="Ctrl-C stops a SageMaker transform job, which else goes on."
)
def run_command(
    job: str,
    *,
    limit: int | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    progress_every: float,
    stop_on_interrupt: bool,
) -> None:
    """Run the job in the file JOB.

    What was paid for is kept at every moment: after a kill, a failure or Ctrl-C the same command goes on.
    """
    with job_of_file(job) as loaded:
        asked = loaded
        if stop_on_interrupt and isinstance(loaded.endpoint, SageMakerTransform):
            asked = replace(loaded, endpoint=replace(loaded.endpoint, stop_on_interrupt=True))
        run_job(
            asked,
            command=f"corpusmill run {job}",
            limit=limit,
            overwrite=overwrite,
            as_json=as_json,
            quiet=quiet,
            progress_every=progress_every,
        )


@click.command("schema", short_help="Print the JSON schema of a job file.")
@click.option("--markdown", is_flag=True, help="Print the reference of the job file instead, as Markdown.")
def schema_command(*, markdown: bool) -> None:
    """Print the JSON schema of a job file, for editors and checks."""
    if markdown:
        from corpusmill.job.reference import reference

        click.echo(reference(job_schema()), nl=False)
        return
    write_json(job_schema())


def run_job(
    job: Job,
    *,
    command: str,
    limit: int | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    progress_every: float = EVERY,
) -> None:
    """Run a job with progress and signals; print the report, or what to do next. With a `limit` it is a preview."""
    if limit is not None:
        from corpusmill.cli.preview import preview

        preview(job, limit=limit, as_json=as_json, quiet=quiet)
        return
    # The process is ours: what was loaded for good need not be looked through at each collection.
    gc.freeze()
    display = Display(quiet=quiet, every=progress_every, opening=partial(_opening, job))
    with display, signals(display) as stopper:
        try:
            report = enrich_job(job, overwrite=overwrite, progress=display, on_start=stopper.take)
        except RunEndedError as error:
            if error.report is not None and as_json:
                write_json(summary(error.report))
            page = open_sink(job.sink).layout.failed_report("html").shown
            see = None if error.report_address is None else f"{page} shows what was done until then"
            if isinstance(error, InterruptedRunError):
                if error.report is None and isinstance(job.endpoint, SageMakerTransform):
                    raise
                raise InterruptedRunError(_how_to_go_on(error.report, command, see)) from None
            if see is not None:
                error.add_note(see)
            if isinstance(error, TooManyFailuresError):
                failures = shlex.join(["corpusmill", "failures", open_sink(job.sink).shown])
                error.add_note(f"{failures} lists the rows that failed, by cause")
            raise
    warn_of_no_rows(job.source, report)
    if as_json:
        write_json(summary(report))
    elif not quiet:
        with _output():
            click.echo(told(report))


def _opening(job: Job, progress: Progress) -> str:
    """Say what is asked, of whom, and where it goes."""
    rows = "rows" if progress.total is None else f"{progress.total:,} row{'s' if progress.total != 1 else ''}"
    columns = ", ".join(prompt.into for prompt in job.prompts)
    who = f"{job.endpoint.model} at {shown_url(job.endpoint.url)}"
    return f"asking {who}: {rows}, new columns: {columns}, output: {open_sink(job.sink).shown}"


class Stopper:
    """Stops the engine that it was handed: first gently, then at once."""

    def __init__(self, display: Display) -> None:
        """Speak through the display."""
        self._display = display
        self._engine: Stoppable | None = None
        self._asked = 0

    def take(self, engine: Stoppable) -> None:
        """Hear what runs."""
        self._engine = engine

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        self._asked += 1
        if self._engine is None or self._asked > 1:
            os._exit(130)
        self._display.say(
            "stopping: nothing new is sent, answers on their way are kept; once more to leave at once"
        )
        self._engine.stop(grace=None)


@contextlib.contextmanager
def signals(display: Display) -> Iterator[Stopper]:
    """Answer SIGINT, SIGTERM and the loss of the terminal while a run goes on, and put back what was there before."""
    stopper = Stopper(display)
    ending = [signal.SIGINT, signal.SIGTERM]
    # Windows has no such signal, and `nohup` has it passed over.
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:
        ending.append(hangup)
    before = {number: signal.signal(number, stopper) for number in ending}
    try:
        yield stopper
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _how_to_go_on(report: RunReport | None, command: str, see: str | None) -> str:
    kept = (
        f"{report.rows:,} rows were finished, and {report.answers:,} answers were kept"
        if report
        else "nothing was sent"
    )
    return f"interrupted: {kept}{f'; {see}' if see else ''}. Go on with: {command}"


def told(report: RunReport, *, preview: bool = False) -> str:
    """Say what a run did, for a person; a preview has no output."""
    if report.skipped_run:
        return f"nothing to do: {report.output} is up to date ({report.rows:,} rows); nothing was asked"
    statuses = ", ".join(f"{count:,} {status}" for status, count in sorted(report.outcomes.items()))
    became = f": {statuses}" if statuses else ""
    cost = "" if report.cost is None else f", ${report.cost:,.4f}"
    if cost and report.prices not in (None, STATED):
        cost += f" by {report.prices}"
    lines = [
        f"{report.rows:,} rows in {duration(report.seconds)}{became}",
        (
            f"asked {report.live:,}, from the store {report.cached:,}, same as another row {report.deduplicated:,}, "
            f"blank {report.skipped:,}, without an answer {report.unanswered:,}"
        ),
        (
            f"{report.attempts:,} attempts, {report.answers:,} answers, "
            f"{report.prompt_tokens:,} tokens in and {report.completion_tokens:,} out{cost}"
        ),
    ]
    if report.possibly_paid_twice:
        lines.append(f"at most {report.possibly_paid_twice:,} requests may have been paid twice")
    lines.extend(f"changed by Parquet: {text}" for text in report.changed_types)
    for prompt in report.prompts:
        if prompt.notes:
            found = ", ".join(f"{name} {count:,}" for name, count in sorted(prompt.notes.items()))
            lines.append(f"found in answers for {prompt.into}: {found}")
    if preview or report.output is None:
        lines.append("preview: no output was written")
    else:
        page = open_sink(report.output).layout.sidecars / "report.html"
        lines.append(f"output: {report.output}, report: {page.shown}")
    unusable = sum(count for prompt in report.prompts for count in prompt.errors.values())
    if unusable and report.output is not None and not preview:
        failures = shlex.join(["corpusmill", "failures", report.output])
        lines.append(f"{failures} lists the {unusable:,} without a usable answer, by cause")
    return "\n".join(lines)


def write_json(value: Any) -> None:
    """Write JSON to standard output, UTF-8 whatever the terminal thinks."""
    with _output():
        sys.stdout.flush()
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
        sys.stdout.buffer.flush()


@contextlib.contextmanager
def _output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise click.ClickException(f"standard output cannot be written: {error.strerror}") from None
