"""Lineage in the words of OpenLineage: names of datasets, schemas, where each column comes from, what a run cost.

Made from prompts, Arrow schemas and counts; nothing is read. The objects are those of the package
`openlineage-python`, which whoever calls this has.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import attr
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    RunFacet,
    column_lineage_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from corpusmill.lineage.columns import ColumnOrigin

RUN_FACET = "corpusmill_run"
"""The name of the run facet that carries tokens, cost and counts."""

_OBJECT_STORES = ("s3", "gs")
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetName:
    """What OpenLineage calls a dataset: `file` and an absolute path, or `s3://bucket` and a key."""

    namespace: str
    name: str


def dataset_name(address: str) -> DatasetName:
    """Name the dataset at a path or URL; a glob is known by the folder above its first wildcard."""
    scheme, found, rest = address.partition("://")
    if not found:
        scheme, rest = "file", address
    elif scheme == "file":
        rest = unquote(rest)
    match = _WILD.search(rest)
    if match is not None:
        rest = rest[: match.start()].rpartition("/")[0]
    if scheme in _OBJECT_STORES:
        bucket, _, key = rest.partition("/")
        return DatasetName(namespace=f"{scheme}://{bucket}", name=key.strip("/") or "/")
    return DatasetName(namespace="file", name=os.path.abspath(os.path.expanduser(rest or "/")))  # noqa: PTH100, PTH111 - a link keeps its name


def input_dataset(address: str, schema: pa.Schema | None = None) -> InputDataset:
    """Describe what is read."""
    name = dataset_name(address)
    return InputDataset(namespace=name.namespace, name=name.name, facets=_schema_facets(schema))


def output_dataset(
    address: str,
    *,
    schema: pa.Schema | None = None,
    columns: Sequence[ColumnOrigin] = (),
    source: str | None = None,
    model: str | None = None,
    rows: int | None = None,
) -> OutputDataset:
    """Describe what is written.

    `columns` say where each column comes from, and `source` is the address of what they come from; without one (a
    table in memory) there is nothing that they could point to. `rows` are those that were written.
    """
    name = dataset_name(address)
    facets = _schema_facets(schema)
    if columns and source is not None:
        facets["columnLineage"] = column_lineage_facet(columns, source=dataset_name(source), model=model)
    statistics: dict[str, Any] = {}
    if rows is not None:
        statistics["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=rows
        )
    return OutputDataset(namespace=name.namespace, name=name.name, facets=facets, outputFacets=statistics)


def column_lineage_facet(
    columns: Sequence[ColumnOrigin], *, source: DatasetName, model: str | None
) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    """Say of each column which columns of the source it comes from, and how."""
    fields = {}
    for origin in columns:
        transformation = _transformation(origin, model)
        fields[origin.column] = column_lineage_dataset.Fields(
            inputFields=[
                column_lineage_dataset.InputField(
                    namespace=source.namespace, name=source.name, field=name, transformations=[transformation]
                )
                for name in origin.inputs
            ]
        )
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields)


def _transformation(origin: ColumnOrigin, model: str | None) -> column_lineage_dataset.Transformation:
    if origin.prompt is None:
        return column_lineage_dataset.Transformation(type="DIRECT", subtype="IDENTITY", masking=False)
    by = f" by {model}" if model else ""
    return column_lineage_dataset.Transformation(
        type="DIRECT",
        subtype="TRANSFORMATION",
        description=f"{origin.prompt}{by}, prompt {origin.fingerprint}",
        masking=False,
    )


@attr.define
class EnrichRunFacet(RunFacet):
    """What a run did and cost: the counts of its report. `cost` is in US dollars, None when it is not known."""

    rows: int = 0
    outcomes: dict[str, int] = attr.field(factory=dict)
    live: int = 0
    cached: int = 0
    deduplicated: int = 0
    promptTokens: int = 0  # noqa: N815 - the names of facets are written so
    completionTokens: int = 0  # noqa: N815
    cost: float | None = None
    possiblyPaidTwice: int = 0  # noqa: N815
    model: str | None = None
    runKey: str | None = None  # noqa: N815


def run_facet(report: Mapping[str, Any]) -> EnrichRunFacet:
    """Make the run facet of a report, given as its dictionary; what JSON cannot hold is left out."""
    cost = report.get("cost")
    return EnrichRunFacet(
        rows=report["rows"],
        outcomes=dict(report["outcomes"]),
        live=report["live"],
        cached=report["cached"],
        deduplicated=report["deduplicated"],
        promptTokens=report["prompt_tokens"],
        completionTokens=report["completion_tokens"],
        cost=cost if isinstance(cost, int | float) and math.isfinite(cost) else None,
        possiblyPaidTwice=report["possibly_paid_twice"],
        model=report.get("model"),
        runKey=report.get("run_key"),
    )


def _schema_facets(schema: pa.Schema | None) -> dict[str, Any]:
    if schema is None:
        return {}
    return {"schema": schema_dataset.SchemaDatasetFacet(fields=[_field(field) for field in schema])}


def _field(field: pa.Field[Any]) -> schema_dataset.SchemaDatasetFacetFields:
    import pyarrow as pa

    inner = list(field.type) if pa.types.is_struct(field.type) else []
    return schema_dataset.SchemaDatasetFacetFields(
        name=field.name,
        type="struct" if inner else str(field.type),
        fields=[_field(one) for one in inner],
    )
