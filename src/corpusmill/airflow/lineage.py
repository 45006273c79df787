"""OpenLineage events: the same names of datasets at START, COMPLETE and FAIL.

Nothing is asked of a connection here: events are made in processes that may not do so. Before the run, who will
answer is therefore known only as far as the task says it; the names of the datasets do not depend on that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from corpusmill.airflow.jobs import Given, assemble
from corpusmill.errors import CorpusmillError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from airflow.providers.openlineage.extractors import OperatorLineage

    from corpusmill.airflow.jobs import Assembled
    from corpusmill.lineage.columns import ColumnOrigin
    from corpusmill.report import RunReport


def lineage_of(
    given: Given, *, model: str | None, assembled: Assembled | None, report: RunReport | None
) -> OperatorLineage[Any, Any]:
    """Describe what a task reads and writes, and, once there is a report, what it did.

    `given` holds nothing of a connection; `assembled` is the job as a run has made it, None before the run.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage

    from corpusmill.lineage.openlineage import RUN_FACET, input_dataset, output_dataset, run_facet

    if assembled is None:
        stand_in = {"openai_compatible": {"base_url": "http://localhost/v1", "model": model or "model"}}
        endpoint = stand_in if _by_connection(given) else None
        assembled = assemble(replace(given, endpoint=endpoint))
        known = model if endpoint else assembled.job.endpoint.model
    else:
        known = assembled.job.endpoint.model
    shape = _shape(assembled)
    source = _address_of_source(assembled)
    inputs = [] if source is None else [input_dataset(source, shape.source)]
    output = output_dataset(
        str(assembled.job.sink.path),  # also where it is one partition: the dataset is the whole
        schema=shape.output,
        columns=shape.columns,
        source=source,
        model=known,
        rows=None if report is None else report.rows,
    )
    facets: dict[str, Any] = {} if report is None else {RUN_FACET: run_facet(report.as_dict())}
    return OperatorLineage(inputs=inputs, outputs=[output], run_facets=facets)


def _address_of_source(assembled: Assembled) -> str | None:
    """Give the path or URL of the source; None for a table, a reader or a dataset of Arrow's."""
    path = getattr(assembled.source, "path", assembled.source)
    return str(path) if isinstance(path, str) or hasattr(path, "__fspath__") else None


def _by_connection(given: Given) -> bool:
    """Whether nothing but a connection says who is asked."""
    if given.values.get("endpoint") is not None or "endpoint" in given.overrides:
        return False
    if given.path is None:
        return True
    from corpusmill.job.yaml_text import read_job

    return "endpoint" not in read_job(given.path).values


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The schemas of source and output, and where each column of the output comes from; nothing of what is unknown."""

    source: pa.Schema | None = None
    output: pa.Schema | None = None
    columns: Sequence[ColumnOrigin] = ()


def _shape(assembled: Assembled) -> Shape:
    """Give the shape of what a task makes, as far as the source can be looked at now."""
    import pyarrow as pa

    from corpusmill.lineage.columns import column_lineage
    from corpusmill.plan import make_plan
    from corpusmill.rows.columns import new_fields
    from corpusmill.tables import open_source

    job = assembled.job
    if isinstance(assembled.source, pa.RecordBatchReader):
        return Shape()  # reading its schema is harmless, but it may have been read and be gone
    try:
        opened = open_source(assembled.source)
        plan = make_plan(
            schema=opened.schema,
            prompts=job.prompts,
            endpoint=job.endpoint,
            kept=job.sink.columns,
            telemetry=job.telemetry,
        )
    except CorpusmillError:
        return Shape()
    added = [
        (prompt, [field.name for field in new_fields(prompt, telemetry=job.telemetry)])
        for prompt in job.prompts
    ]
    return Shape(
        source=opened.schema,
        output=plan.schema,
        columns=column_lineage(plan.kept, added, source=opened.schema.names),
    )
