"""A run worker of its own: materialises the asset of the job file that it is called with, and prints its numbers."""

from __future__ import annotations

import json
import sys
import warnings

warnings.simplefilter("ignore")

import dagster as dg  # noqa: E402

from corpusmill.dagster import enriched_asset  # noqa: E402

definitions = enriched_asset("translated", sys.argv[1])
with dg.DagsterInstance.ephemeral() as instance:
    result = definitions.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
    (event,) = result.get_asset_materialization_events()
    print(  # noqa: T201 - this is what the test reads
        json.dumps(
            {
                name: value.value
                for name, value in event.materialization.metadata.items()
                if isinstance(value.value, int | float)
            }
        )
    )
