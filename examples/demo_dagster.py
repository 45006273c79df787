"""The Dagster act of the demonstration: the corpus that the command line has enriched, as assets.

Two assets of the very job that the command line ran: one over its own output, where nothing is left to do, and one
that writes the corpus anew, elsewhere, with every answer from the store. The endpoint counts that it was asked nothing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import dagster as dg

NUMBERS = {
    "rows": "dagster/row_count",
    "asked for now": "corpusmill/answers/live",
    "from the store": "corpusmill/answers/cached",
    "skipped run": "corpusmill/skipped_run",
}


def act(folder: Path, requests: Callable[[], int]) -> None:
    """Materialise the job of the folder, and show that the endpoint was not asked: `requests` counts what it was."""
    if importlib.util.find_spec("dagster") is None:
        print("Dagster is not installed here: pip install 'corpusmill[dagster]' shows this act.")
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = requests()
        results = materialise(folder)
        asked = requests() - before
    for name, numbers in results.items():
        shown = ", ".join(f"{said}: {numbers[key]}" for said, key in NUMBERS.items() if key in numbers)
        print(f"  asset {name:<20}{shown}")
    print(f"  The endpoint was asked {asked} times.", flush=True)


def materialise(folder: Path) -> dict[str, dict[str, Any]]:
    """Run both assets in an instance that is gone afterwards; give the metadata of each."""
    import dagster as dg

    from corpusmill import load_job
    from corpusmill.dagster import enriched_asset

    job = load_job(folder / "job.yaml")
    elsewhere = replace(job, sink=replace(job.sink, path=folder / "enriched-by-dagster"))
    definitions = dg.Definitions.merge(
        enriched_asset("enriched", job),
        enriched_asset("enriched_elsewhere", elsewhere),
    )
    logging.getLogger("dagster").setLevel(logging.ERROR)
    # Dagster's own log of a run in this process goes to standard error, a line for each event.
    with contextlib.redirect_stderr(io.StringIO()), dg.DagsterInstance.ephemeral() as instance:
        result = definitions.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
    return {
        event.asset_key.to_user_string(): numbers_of(event.materialization)
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None
    }


def numbers_of(event: dg.AssetMaterialization) -> dict[str, Any]:
    """Give the values of the metadata of a materialisation."""
    return {name: entry.value for name, entry in event.metadata.items()}
