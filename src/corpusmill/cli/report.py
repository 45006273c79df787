"""`corpusmill report` and `corpusmill failures`: what a run left in its output, or beside it when it ended early."""

from __future__ import annotations

import re
import shlex
import webbrowser
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from corpusmill.cli.run import write_json
from corpusmill.errors import SinkError, UsageError
from corpusmill.tables import open_sink

if TYPE_CHECKING:
    from corpusmill.tables import Sink
    from corpusmill.tables.storage import Place

REPORT = "report.html"
FAILURES = "failures.jsonl"
FAILED = ".failed.jsonl"

SHOWN = 20
"""Rows that are listed for each cause unless more are asked for."""

_VARIES = re.compile(r"(?<!HTTP )\b[^\W\d]*\d[\w.,]*")
"""Counts, sizes and ids of requests: what differs between messages of one cause; a status of HTTP is none of these."""

_PLACE = re.compile(f"{_VARIES.pattern}|…")

_decode = msgspec.json.Decoder(dict[str, Any]).decode


@click.command("report", short_help="Print where the report of an output lies, or open it.")
@click.argument("out")
@click.option("--open", "opens", is_flag=True, help="Open the report in the browser.")
def report_command(out: str, *, opens: bool) -> None:
    """Print the path of the report of the output OUT, a folder or file that a run has written.

    Where the last run ended early and committed nothing, this is the report of what it had done until then.
    """
    # A run that ended early leaves its report until one commits, so that it is the younger one.
    layout = open_sink(out).layout
    place = _first_there(layout.failed_report("html"), layout.sidecars / REPORT)
    if place is None:
        raise SinkError(f"{out} has no report: no run of corpusmill has finished there")
    click.echo(place.shown)
    if opens:
        if not place.local:
            raise UsageError(f"{place.shown} is not on this machine; copy it here to open it")
        webbrowser.open(Path(place.path).absolute().as_uri())


@click.command("failures", short_help="List the failed rows of an output by cause.")
@click.argument("out")
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=SHOWN,
    show_default=True,
    help="Rows to list for each cause.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all failed rows as a JSON array.")
def failures_command(out: str, *, rows: int, as_json: bool) -> None:
    """List the failed rows of the output OUT by cause.

    Where the last run committed nothing because too many rows had failed, these are the rows of that run.
    """
    found = failed_rows(out)
    if as_json:
        write_json(found)
        return
    if not found:
        click.echo(f"no row of {out} failed")
        return
    Console().print(_table(found, rows))
    for warning in _warnings(open_sink(out)):
        click.echo(warning)


def failed_rows(out: str) -> list[dict[str, Any]]:
    """Give the failed rows of an output, or of the run that committed nothing there; raise `SinkError` for neither.

    A run that ended without a commit leaves its list beside the output; it is the younger one.
    """
    sink = open_sink(out)
    place = _first_there(sink.layout.failures, sink.layout.sidecars / FAILURES)
    if place is None:
        if sink.manifest() is None:
            raise SinkError(f"{out} has no list of failures: {_why_none(sink)}")
        return []
    return [_decode(line) for line in place.read_bytes().splitlines() if line.strip()]


def _warnings(sink: Sink) -> list[str]:
    """Give what the report says of the rows that are listed: the one beside the same list."""
    layout = sink.layout
    report = layout.failed_report("json") if layout.failures.is_file() else layout.sidecars / "report.json"
    return _decode(report.read_bytes()).get("warnings", []) if report.is_file() else []


def _why_none(sink: Sink) -> str:
    """Say why nothing is listed where no run has committed anything, and what there is instead."""
    if sink.layout.failed_report("html").is_file():
        report = shlex.join(["corpusmill", "report", sink.shown])
        return f"the last run there ended before its last row; {report} shows what had failed until then"
    found = [PurePosixPath(child.path).name for child in sink.layout.target.children()]
    partitions = [
        name.removeprefix("_").removesuffix(FAILED)
        for name in found
        if name[0] == "_" and name.endswith(FAILED)
    ]
    if partitions:
        first = shlex.join(["corpusmill", "failures", f"{sink.shown.rstrip('/')}/{partitions[0]}"])
        return f"it holds partitions, and those of a partition are listed by its name: {first}"
    return "no run of corpusmill has finished there"


def _first_there(*places: Place) -> Place | None:
    return next((place for place in places if place.is_file()), None)


def _in_common(one: str, other: str) -> str:
    """Give the message that both are, with a gap where they differ: a number that is the same in all is told."""
    others = iter(_PLACE.findall(other))
    return _PLACE.sub(lambda found: found[0] if found[0] == next(others, None) else "…", one)


def _table(found: list[dict[str, Any]], most: int) -> Table:
    counts: Counter[tuple[str, str, str]] = Counter()
    causes: dict[tuple[str, str, str], str] = {}
    rows: dict[tuple[str, str, str], list[int]] = {}
    for failure in found:
        said = str(failure["error"] or "")
        common = _VARIES.sub("…", said)
        like = (str(failure["into"]), str(failure["status"]), common)
        counts[like] += 1
        causes[like] = _in_common(causes[like], said) if like in causes else said
        listed = rows.setdefault(like, [])
        if len(listed) < most:
            listed.append(failure["row"])
    table = Table(
        title=f"rows without a usable answer: {len(found):,}", title_justify="left", show_lines=True
    )
    for name in ("column", "outcome", "cause", "rows", "which"):
        table.add_column(name, justify="right" if name == "rows" else "left", overflow="fold")
    for like, count in counts.most_common():
        which = ", ".join(f"{row}" for row in rows[like]) + (", …" if count > most else "")
        table.add_row(*(Text(part) for part in (*like[:2], causes[like], f"{count:,}", which)))
    return table
