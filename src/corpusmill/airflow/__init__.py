"""Airflow's provider: enrichment as tasks that are scheduled, mapped and tracked.

What stands here translates connections, templates and context into a job, and a report into XCom, assets, links and
lineage; all else is done by `corpusmill` itself. Dag files are parsed again and again, so that importing the operators
loads nothing that reads tables or speaks HTTP.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corpusmill.airflow.link import ReportLink
    from corpusmill.airflow.operator import EnrichOperator
    from corpusmill.airflow.retries import EnrichRetryPolicy
    from corpusmill.airflow.shards import enrich_shards
    from corpusmill.airflow.transform import TransformJobOperator
    from corpusmill.airflow.transform_link import TransformJobLink

_HOME = {
    "EnrichOperator": "corpusmill.airflow.operator",
    "EnrichRetryPolicy": "corpusmill.airflow.retries",
    "ReportLink": "corpusmill.airflow.link",
    "TransformJobLink": "corpusmill.airflow.transform_link",
    "TransformJobOperator": "corpusmill.airflow.transform",
    "enrich_shards": "corpusmill.airflow.shards",
}

__all__ = [
    "EnrichOperator",
    "EnrichRetryPolicy",
    "ReportLink",
    "TransformJobLink",
    "TransformJobOperator",
    "enrich_shards",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
