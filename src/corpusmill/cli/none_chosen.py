"""What is said of a job that chose no row: a filter that nothing fulfils ends as well as any, and is mostly a slip."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import click
import msgspec

from corpusmill.errors import CorpusmillError
from corpusmill.tables import open_source

if TYPE_CHECKING:
    from corpusmill.report import RunReport
    from corpusmill.tables import SourceSpec


def warn_of_no_rows(spec: SourceSpec, report: RunReport) -> None:
    """Say on standard error what left no row of a source, where none was left."""
    if report.rows == 0:
        with contextlib.suppress(OSError):
            click.echo(f"warning: {_why(spec)}", err=True)


def _why(spec: SourceSpec) -> str:
    chosen = {
        f"source.{name}": value
        for name, value in (("filter", spec.filter), ("limit", spec.limit), ("rows", spec.rows))
        if value is not None
    }
    if not chosen:
        return f"{spec.path} has no rows, so nothing was asked"
    stated = " and ".join(f"{name} {_written(value)}" for name, value in chosen.items())
    there = _rows(spec)
    of = "rows" if there is None else f"{there:,} row{'s' if there != 1 else ''}"
    return f"{stated} left none of the {of} of {spec.path}, so nothing was asked"


def _written(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _rows(spec: SourceSpec) -> int | None:
    """Count the rows that the footers name; the run is over, so that nothing that fails here may end it."""
    try:
        return open_source(replace(spec, filter=None, limit=None, rows=None)).rows
    except CorpusmillError:
        return None
