"""OpenLineage events: the same names of datasets at START, COMPLETE and FAIL.

Nothing is asked of a connection here: events are made in processes that may not do so. Before the run, who will
answer is therefore known only as far as the task says it; the names of the datasets do not depend on that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from corpusmill.airflow.jobs import Given, assemble
from corpusmill.errors import CorpusmillError

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from corpusmill.airflow.jobs import Assembled
    from corpusmill.job import Job
    from corpusmill.report import RunReport


def lineage_of(
    given: Given, *, model: str | None, assembled: Assembled | None, report: RunReport | None
) -> OperatorLineage[Any, Any]:
    """Describe what a task reads and writes, and, once there is a report, what it did."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    from corpusmill.lineage.openlineage import RUN_FACET, input_dataset, output_dataset, run_facet

    if assembled is None:
        stand_in = {"openai_compatible": {"base_url": "http://localhost/v1", "model": model or "model"}}
        endpoint = stand_in if _by_connection(given) else None
        assembled = assemble(replace(given, endpoint=endpoint, store_url=None))
        known = model if endpoint else assembled.job.endpoint.model
    else:
        known = assembled.job.endpoint.model
    job = assembled.job
    shape = _shape(assembled)
    source = address_of_source(assembled)
    inputs = [] if source is None else [input_dataset(source, shape.get("source"))]
    output = output_dataset(
        address_of_sink(job),
        schema=shape.get("output"),
        columns=shape.get("columns", ()),
        source=source,
        model=known,
        rows=None if report is None else report.rows,
    )
    facets: dict[str, Any] = {} if report is None else {RUN_FACET: run_facet(report.as_dict())}
    return OperatorLineage(inputs=inputs, outputs=[output], run_facets=facets)


def address_of_source(assembled: Assembled) -> str | None:
    """Give the path or URL of the source; None for a table, a reader or a dataset of Arrow's."""
    path = getattr(assembled.source, "path", assembled.source)
    return str(path) if isinstance(path, str) or hasattr(path, "__fspath__") else None


def address_of_sink(job: Job) -> str:
    """Give the path or URL of the sink; that of the whole dataset where it is one partition."""
    return str(job.sink.path)


def _by_connection(given: Given) -> bool:
    """Whether nothing but a connection says who is asked."""
    if (
        given.endpoint is not None
        or given.values.get("endpoint") is not None
        or "endpoint" in given.overrides
    ):
        return False
    if given.path is None:
        return True
    from corpusmill.job.yaml_text import read_job

    return "endpoint" not in read_job(given.path).values


def _shape(assembled: Assembled) -> dict[str, Any]:
    """Give the schemas and the origin of each column; nothing when the source cannot be looked at now."""
    import pyarrow as pa

    from corpusmill.lineage.columns import column_lineage
    from corpusmill.plan import make_plan
    from corpusmill.rows.columns import new_fields
    from corpusmill.tables import open_source

    job = assembled.job
    if isinstance(assembled.source, pa.RecordBatchReader):
        return {}  # reading its schema is harmless, but it may have been read and be gone
    try:
        opened = open_source(assembled.source)
        plan = make_plan(
            schema=opened.schema,
            prompts=job.prompts,
            endpoint=job.endpoint,
            kept=job.sink.columns,
            telemetry=job.telemetry,
            source=None,
            sink=None,
        )
    except CorpusmillError:
        return {}
    added = [
        (prompt, [field.name for field in new_fields(prompt, telemetry=job.telemetry)])
        for prompt in job.prompts
    ]
    return {
        "source": opened.schema,
        "output": plan.schema,
        "columns": column_lineage(plan.kept, added, source=opened.schema.names),
    }
