"""The Dagster integration: enriched tables as assets.

This module is in Dagster's registry and is loaded by every command that looks at it, so that neither Arrow nor an HTTP
library is imported before a job is made or run.
"""

from corpusmill.dagster.assets import enriched_asset
from corpusmill.dagster.component import EnrichmentComponent
from corpusmill.dagster.io_manager import ArrowParquetIOManager
from corpusmill.dagster.partitions import Dimension
from corpusmill.dagster.quality import Rule
from corpusmill.dagster.resources import (
    EndpointResource,
    LimitsResource,
    OpenAICompatibleResource,
    SambaNovaResource,
    StoreResource,
)
from corpusmill.dagster.sensor import resume_after_quota
from corpusmill.dagster.transform import transform_assets

__all__ = [
    "ArrowParquetIOManager",
    "Dimension",
    "EndpointResource",
    "EnrichmentComponent",
    "LimitsResource",
    "OpenAICompatibleResource",
    "Rule",
    "SambaNovaResource",
    "StoreResource",
    "enriched_asset",
    "resume_after_quota",
    "transform_assets",
]
