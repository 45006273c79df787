"""`corpusmill store`: what lies in a store, and why a row is not in it."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from corpusmill.cli.job_file import job_of_file
from corpusmill.cli.run import write_json
from corpusmill.errors import UsageError
from corpusmill.explain import explain_row
from corpusmill.job.models import seconds
from corpusmill.policy import DEFAULT_STORE
from corpusmill.store import open_store

if TYPE_CHECKING:
    from corpusmill.store import PostgresStore, SQLiteStore

store_option = click.option(
    "--store",
    default=DEFAULT_STORE,
    show_default=True,
    help="URL of the store: sqlite:///path or postgresql://host/database",
)


def _existing(url: str) -> SQLiteStore | PostgresStore:
    """Open a store that is there already, to write to: a mistyped path must not make one."""
    open_store(url, read_only=True).close()
    return open_store(url)


@click.group("store", short_help="Look into a store, prune it, copy it.")
def store_group() -> None:
    """Look into a store, prune it, copy it, and explain why a row is not answered from it."""


@store_group.command("stats")
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stats_command(store: str, *, as_json: bool) -> None:
    """Count what lies in the store."""
    with contextlib.closing(open_store(store, read_only=True)) as opened:
        stats = opened.stats()
    if as_json:
        write_json(stats)
        return
    click.echo(
        f"{stats.completions:,} answers, {stats.rejected:,} that could not be parsed, {stats.size:,} bytes"
    )
    if stats.oldest is not None and stats.newest is not None:
        click.echo(f"from {_moment(stats.oldest)} to {_moment(stats.newest)}")
    for model, count in sorted(stats.by_model.items(), key=lambda item: -item[1]):
        click.echo(f"  {count:>12,}  {model or '(no model named)'}")
    click.echo(
        f"{stats.claims:,} requests being asked now, {stats.lost:,} that may have been paid without an answer"
    )


@store_group.command("prune")
@store_option
@click.option("--older-than", help="Age, such as 30d or 12h.")
@click.option("--model", help="Only answers of this model.")
@click.option("--rejected", is_flag=True, help="Only answers that could not be parsed.")
def prune_command(store: str, *, older_than: str | None, model: str | None, rejected: bool) -> None:
    """Delete answers from the store. Nothing is ever deleted otherwise."""
    before = None
    if older_than is not None:
        age = seconds(older_than)
        if not isinstance(age, float | int):
            raise UsageError(f"--older-than is {older_than!r}; write an age such as 30d, 12h or 90m")
        before = time.time() - age
    if before is None and model is None and not rejected:
        raise UsageError("say what to delete: --older-than, --model or --rejected")
    with contextlib.closing(_existing(store)) as opened:
        count = opened.prune(older_than=before, model=model, rejected_only=rejected)
    click.echo(f"{count:,} answers deleted")


@store_group.command("copy")
@store_option
@click.argument("to", type=click.Path(dir_okay=False))
def copy_command(store: str, to: str) -> None:
    """Copy the store into one file, consistently, also while it is in use."""
    with contextlib.closing(_existing(store)) as opened:
        opened.copy_to(to)
    click.echo(f"copied to {to}")


@store_group.command("explain")
@click.argument("job", type=click.Path(dir_okay=False))
@click.option(
    "--row",
    type=click.IntRange(min=0),
    required=True,
    help="Number of the row, from 0, among those that filter, limit and rows of the job's source leave.",
)
def explain_command(job: str, *, row: int) -> None:
    """Say whether a row of JOB would be answered from the store, and if not, what differs from the nearest request."""
    with job_of_file(job) as loaded:
        for line in explain_row(loaded, row):
            click.echo(line)


def _moment(unix: float) -> str:
    return f"{datetime.fromtimestamp(unix, UTC):%Y-%m-%d %H:%M:%S} UTC"
