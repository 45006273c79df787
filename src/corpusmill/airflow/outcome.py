"""From a report to what Airflow keeps of it: a small manifest, the record of the report, the asset event."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from corpusmill.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corpusmill.report import RunReport
    from corpusmill.tables import SinkSpec

EXTRA = (
    "rows",
    "outcomes",
    "live",
    "cached",
    "prompt_tokens",
    "completion_tokens",
    "cost",
    "run_key",
    "model",
    "output",
    "report",
)


def recorded(sink: SinkSpec) -> dict[str, Any] | None:
    """Give the record of the report that lies in the sink. None when there is none."""
    from corpusmill.tables.reports import report_address

    try:
        return record_at(report_address(sink))
    except SourceError:
        return None


def record_at(address: str) -> dict[str, Any]:
    """Give the record of the report at an address: where it is, and what it is.

    Raises `SourceError` when no report can be read there.
    """
    from corpusmill.tables.reports import read_report

    return {"address": address, "sha256": read_report(address)[1]}


def manifest(report: RunReport, *, record: Mapping[str, Any] | None) -> dict[str, Any]:
    """Give what becomes the XCom: counts, keys and places, no text of the corpus."""
    from corpusmill.report import summary

    made = {
        **summary(report),
        "run_key": report.run_key,
        "model": report.model,
        "endpoint": report.endpoint,
        "prompts": [
            {"into": prompt.into, "outcomes": dict(prompt.outcomes), "errors": dict(prompt.errors)}
            for prompt in report.prompts
        ],
        "report": None if record is None else record["address"],
    }
    cleaned: dict[str, Any] = finite(made)
    return cleaned


def event_extra(made: Mapping[str, Any]) -> dict[str, Any]:
    """Give what an event on the output asset carries."""
    return {name: made[name] for name in EXTRA}


def key_of_partition(partition: Mapping[str, str | None]) -> str:
    """Give the key of a partition: its value, or the names of its folders where it has several."""
    from corpusmill.tables.layout import HIVE_NULL, partition_folder

    if len(partition) == 1:
        (value,) = partition.values()
        return HIVE_NULL if value is None else value
    return "/".join(partition_folder(name, value) for name, value in partition.items())


def finite(value: Any) -> Any:
    """Give the same values, with None in place of what JSON cannot hold (NaN, infinity)."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
