"""`corpusmill run --limit N`: ask a few rows and show them side by side; no sink is written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from corpusmill.cli.none_chosen import warn_of_no_rows
from corpusmill.cli.progress import Display
from corpusmill.cli.run import told, write_json
from corpusmill.report import RunReport, summary
from corpusmill.rows.columns import outcome_column
from corpusmill.rows.text import column_values
from corpusmill.run import enrich_batches
from corpusmill.tables import open_source

if TYPE_CHECKING:
    from corpusmill.engine.engine import Progress
    from corpusmill.job import Job
    from corpusmill.tables import SourceSpec

SHOWN = 600
"""Characters of a cell."""


def preview(job: Job, *, limit: int, as_json: bool, quiet: bool) -> None:
    """Ask the first `limit` rows of a job and print them; what was paid for is in the store."""
    source = open_source(_first(job.source, limit))
    reports: list[RunReport] = []
    with Display(quiet=quiet) as display:

        def show(progress: Progress) -> None:
            # The run reads a stream, which has no number of rows.
            display(replace(progress, total=source.rows))

        batches = list(
            enrich_batches(
                pa.RecordBatchReader.from_batches(source.schema, (chunk.batch for chunk in source.chunks())),
                *job.prompts,
                endpoint=job.endpoint,
                store=job.store,
                mode=job.mode,
                refresh=job.refresh,
                limits=job.limits,
                retry=job.retry,
                failures=replace(job.failures, max_failed=1.0),
                budget=job.budget,
                prices=job.prices,
                progress=show,
                on_report=reports.append,
            )
        )
    warn_of_no_rows(job.source, reports[0])
    if as_json:
        write_json(summary(reports[0]))
        return
    console = Console()
    for prompt in job.prompts:
        read = [wanted for wanted in prompt.inputs if wanted.kind == "text"]
        table = Table(title=Text(prompt.into), show_lines=True, title_justify="left")
        for name in (*(wanted.path for wanted in read), prompt.into, "outcome"):
            table.add_column(Text(name), overflow="fold")
        for batch in batches:
            # The texts as they were asked about; other columns may hold values that Python cannot.
            asked = [column_values(batch, wanted).items for wanted in read]
            made, outcomes = (
                batch.column(name).to_pylist() for name in (prompt.into, outcome_column(prompt.into))
            )
            for *texts, value, outcome in zip(*asked, made, outcomes, strict=True):
                status = outcome["status"] + "".join(f"\n{note}" for note in outcome["notes"] or ())
                if outcome["error"]:
                    status += f"\n{outcome['error']}"
                table.add_row(*(Text(_shown(cell)) for cell in (*texts, value, status)))
        console.print(table)
    console.print(Text(told(reports[0], preview=True)))


def _first(spec: SourceSpec, limit: int) -> SourceSpec:
    """Give the first `limit` of the rows that the job would ask: its own limit comes before its range of rows."""
    if spec.rows is not None:
        start, stop = spec.rows
        return replace(spec, rows=(start, min(stop, start + limit)))
    return replace(spec, limit=limit if spec.limit is None else min(limit, spec.limit))


def _shown(cell: object) -> str:
    text = "" if cell is None else str(cell)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"
