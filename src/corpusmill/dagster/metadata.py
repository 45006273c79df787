"""What a materialisation says of itself: schema, lineage, counts and costs as numbers, a look at some rows.

Numbers are plotted over time by Dagster, so that each materialisation has the same ones; what is not finite is left
out. Texts of rows appear in the preview only, escaped, and only if it is wanted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import dagster as dg

from corpusmill.fingerprint import canonical, digest
from corpusmill.page.numbers import quantile
from corpusmill.report import LATENCY_BOUNDS
from corpusmill.tables.reports import page_address, report_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyarrow import dataset as pads

    from corpusmill.job import Job
    from corpusmill.lineage.columns import ColumnOrigin
    from corpusmill.report import RunReport
    from corpusmill.tables import Manifest, Sink

CELL_CHARACTERS = 160
_MARKED = frozenset("\\`*_{}[]()<>#+-.!|~&$^:\"'@/=")


def materialisation_metadata(
    report: RunReport,
    *,
    job: Job,
    sink: Sink,
    dataset: pads.Dataset,
    source_columns: Sequence[str],
    source_key: dg.AssetKey,
    partitioned: bool,
    preview_rows: int,
) -> dict[str, Any]:
    """Give the metadata of one materialisation."""
    origins = lineage_of(job, dataset.schema, source_columns)
    shown = sink.layout.target.address
    made: dict[str, Any] = {
        "dagster/column_schema": table_schema(dataset.schema, origins),
        "dagster/column_lineage": column_lineage_metadata(origins, source_key),
        "dagster/partition_row_count" if partitioned else "dagster/row_count": report.rows,
        "dagster/uri": shown,
        "corpusmill/model": job.endpoint.model,
        "corpusmill/endpoint": job.endpoint.identity,
        "corpusmill/lineage": dg.MetadataValue.md(lineage_table(origins)),
        "corpusmill/report": dg.MetadataValue.path(page_address(report_address(job.sink))),
        "corpusmill/skipped_run": report.skipped_run,
    }
    if preview_rows > 0:
        made["corpusmill/preview"] = dg.MetadataValue.md(preview(dataset, origins, rows=preview_rows))
    if report.run_key is not None:
        made["corpusmill/run_key"] = report.run_key
    return made | numbers(report)


def numbers(report: RunReport) -> dict[str, int | float]:
    """Give the figures of a run, all finite."""
    answers = report.live + report.cached
    made: dict[str, int | float | None] = {
        **{f"corpusmill/outcome/{status}": count for status, count in report.outcomes.items()},
        "corpusmill/answers/live": report.live,
        "corpusmill/answers/cached": report.cached,
        "corpusmill/answers/deduplicated": report.deduplicated,
        "corpusmill/answers/hit_share": round(report.cached / answers, 4) if answers else None,
        "corpusmill/attempts": report.attempts,
        "corpusmill/tokens/prompt": report.prompt_tokens,
        "corpusmill/tokens/completion": report.completion_tokens,
        "corpusmill/cost_usd": None if report.cost is None else round(report.cost, 9),
        "corpusmill/possibly_paid_twice": report.possibly_paid_twice,
        "corpusmill/seconds": report.seconds,
        "corpusmill/rows_per_second": round(report.rows / report.seconds, 2) if report.seconds > 0 else None,
        "corpusmill/latency/median_seconds": quantile(report.latency, LATENCY_BOUNDS, 0.5),
        "corpusmill/latency/p95_seconds": quantile(report.latency, LATENCY_BOUNDS, 0.95),
    }
    return {name: value for name, value in made.items() if value is not None and math.isfinite(value)}


def data_version(manifest: Manifest) -> dg.DataVersion:
    """Give the version of an output: a digest of its parts' bytes and its schema."""
    content = [
        manifest.schema_fingerprint,
        [[part.first_row, part.rows, part.sha256] for part in manifest.parts],
    ]
    return dg.DataVersion(digest(canonical(content)).hex())


def lineage_of(job: Job, schema: pa.Schema, source_columns: Sequence[str]) -> tuple[ColumnOrigin, ...]:
    """Give the origin of each column of an output; a column that a prompt reads need not be kept in it."""
    from corpusmill.lineage.columns import column_lineage
    from corpusmill.rows.columns import new_fields

    added = [
        (prompt, [field.name for field in new_fields(prompt, telemetry=job.telemetry)])
        for prompt in job.prompts
    ]
    new = {name for _, names in added for name in names}
    kept = [name for name in schema.names if name not in new]
    return column_lineage(kept, added, source=source_columns)


def table_schema(schema: pa.Schema, origins: Sequence[ColumnOrigin]) -> dg.TableSchema:
    """Give the output's columns with their types and where they come from."""
    described = {origin.column: _described(origin) for origin in origins}
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=field.name,
                type=shown_type(field.type),
                description=described.get(field.name),
                constraints=dg.TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema
        ]
    )


def _described(origin: ColumnOrigin) -> str:
    if origin.prompt is None:
        return "passed through"
    return f"filled by {origin.prompt} from {', '.join(origin.inputs)}"


def shown_type(type_: pa.DataType) -> str:
    """Give a type as the table of columns has room for it: of a struct the names of its fields."""
    import pyarrow as pa

    if isinstance(type_, pa.StructType):
        return f"struct<{', '.join(field.name for field in type_)}>"
    return str(type_)


def column_lineage_metadata(origins: Sequence[ColumnOrigin], source: dg.AssetKey) -> dg.TableColumnLineage:
    """Give the lineage as Dagster has it."""
    return dg.TableColumnLineage(
        deps_by_column={
            origin.column: [dg.TableColumnDep(asset_key=source, column_name=name) for name in origin.inputs]
            for origin in origins
        }
    )


def lineage_table(origins: Sequence[ColumnOrigin]) -> str:
    """Give the lineage as a Markdown table, for the interface that does not draw it."""
    lines = ["| column | comes from | by | prompt |", "|---|---|---|---|"]
    for origin in origins:
        cells = (
            origin.column,
            ", ".join(origin.inputs),
            origin.prompt or "passed through",
            (origin.fingerprint or "")[:12],
        )
        lines.append(f"| {' | '.join(escaped(cell) for cell in cells)} |")
    return "\n".join(lines)


def preview(dataset: pads.Dataset, origins: Sequence[ColumnOrigin], *, rows: int) -> str:
    """Give the first rows as a Markdown table: what the prompts read and what they filled."""
    filled = [origin for origin in origins if origin.prompt is not None]
    read = [name for origin in filled for name in origin.inputs if name in dataset.schema.names]
    # The outcome of a row is a struct: its status says enough here.
    columns = list(dict.fromkeys([*read, *(origin.column for origin in filled)]))
    table = dataset.head(rows, columns=columns)
    lines = [
        f"| {' | '.join(escaped(name) for name in columns)} |",
        f"|{'---|' * len(columns)}",
    ]
    lines += [f"| {' | '.join(_cell(row[name]) for name in columns)} |" for row in table.to_pylist()]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict) and "status" in value:
        error = f": {value['error']}" if value.get("error") else ""
        return escaped(f"{value['status']}{error}")
    return escaped(str(value))


def escaped(text: str) -> str:
    """Give a text, cut, as it may stand in a cell of a Markdown table: all of it is text, on one line."""
    flat = " ".join(text[: 4 * CELL_CHARACTERS].split())
    if len(flat) > CELL_CHARACTERS:
        flat = f"{flat[: CELL_CHARACTERS - 1]}…"
    return "".join(f"&#{ord(sign)};" if sign in _MARKED else sign for sign in flat if sign.isprintable())
