"""The summary of each paragraph, made in Python: a job's objects, and an asset of them."""

import dagster as dg

from corpus_assets.places import folder
from corpusmill.dagster import enriched_asset


@dg.definitions
def summary() -> dg.Definitions:
    """Summarise the corpus whenever it changes."""
    return enriched_asset(
        dg.AssetSpec(
            "summarised_corpus",
            group_name="corpus",
            description="Each paragraph in one sentence.",
            automation_condition=dg.AutomationCondition.eager(),
        ),
        {
            "source": str(folder() / "raw_corpus.parquet"),
            "sink": {"path": str(folder() / "summarised"), "columns": ["id", "text"]},
            "prompts": [{"summarise": {"column": "text", "into": "summary", "length": "one sentence"}}],
        },
        source_asset="raw_corpus",
        endpoint_resource="endpoint",
        store_resource="store",
        limits_resource="limits",
    )
