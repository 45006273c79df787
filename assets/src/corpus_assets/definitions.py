"""All definitions: those of the folder `defs`, and the resources that they share."""

import os
from pathlib import Path

import dagster as dg

from corpus_assets.fake import FakeAmazonResource, FakeResource
from corpus_assets.places import folder
from corpusmill.dagster import (
    ArrowParquetIOManager,
    LimitsResource,
    OpenAICompatibleResource,
    StoreResource,
    resume_after_quota,
)


def endpoint() -> FakeResource | OpenAICompatibleResource:
    """Who is asked: the server that the environment names, or a fake one that a run starts for itself."""
    if "CORPUS_BASE_URL" not in os.environ:
        return FakeResource(model="fake")
    return OpenAICompatibleResource(
        base_url=dg.EnvVar("CORPUS_BASE_URL"),
        model=dg.EnvVar("CORPUS_MODEL"),
        api_key=dg.EnvVar("CORPUS_API_KEY") if "CORPUS_API_KEY" in os.environ else None,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """Give the definitions of this code location."""
    return dg.Definitions.merge(
        dg.load_from_defs_folder(path_within_project=Path(__file__)),
        dg.Definitions(
            resources={
                "endpoint": endpoint(),
                "amazon": FakeAmazonResource(model="tildeopen-30b-64k"),
                "store": StoreResource(url=f"sqlite:///{folder() / 'store.db'}"),
                "limits": LimitsResource(concurrency=16),
                "io_manager": ArrowParquetIOManager(base=str(folder())),
            },
            sensors=[resume_after_quota()],
            executor=dg.in_process_executor,  # a run waits for the endpoint, not for this machine
        ),
    )
