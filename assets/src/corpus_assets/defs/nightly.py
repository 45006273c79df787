"""The corpus in Latvian, by SageMaker transform jobs: one asset submits them, a sensor waits, another one collects.

On AWS leave `endpoint_resource` out, and say in the job `endpoint: {sagemaker_transform: {…}}`.
"""

import dagster as dg

from corpus_assets.places import folder
from corpusmill.dagster import transform_assets


@dg.definitions
def nightly_translation() -> dg.Definitions:
    """Translate the corpus at the price of the night."""
    return transform_assets(
        dg.AssetSpec(
            "nightly_translation",
            group_name="corpus",
            description="The corpus in Latvian, translated by transform jobs.",
        ),
        {
            "source": str(folder() / "raw_corpus.parquet"),
            "sink": str(folder() / "nightly"),
            "prompts": [
                {
                    "translate": {
                        "column": "text",
                        "into": "text_lv",
                        "from": "en",
                        "to": "lv",
                        "wording": "tildeopen",
                    }
                }
            ],
        },
        source_asset="raw_corpus",
        endpoint_resource="amazon",
        endpoint_model="tildeopen-30b-64k",
        store_resource="store",
    )
