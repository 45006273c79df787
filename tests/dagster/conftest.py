"""What the tests of the Dagster integration share: one fake endpoint, small corpora, one way to run an asset."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.testing import FakeEndpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What these tests start shall neither look for news nor leave anything in the home folder.
os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Let Dagster use what Pydantic calls old, and say which of its own parameters are young."""
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            for what in (".*is currently in (beta|preview)", ".*parse_obj_as.* is deprecated"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{what}"))


TEXTS = {
    "en": ["The sea is calm today.", "Two ships\ncame back.", "", "Who lit the lamp?"],
    "de": ["Das Meer ist heute ruhig.", "Zwei Schiffe kamen zurück."],
}


@pytest.fixture(scope="session")
def server() -> Iterator[FakeEndpoint]:
    """The fake endpoint of all these tests."""
    with FakeEndpoint() as endpoint:
        yield endpoint


@pytest.fixture
def endpoint(server: FakeEndpoint) -> Iterator[FakeEndpoint]:
    """The fake endpoint as new."""
    server.reset()
    yield server
    server.configure(faults=None, limits=None, latency=None)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A small corpus in two languages, with a day and a number for each row."""
    rows = [
        {"id": number, "lang": lang, "day": f"2026-01-0{1 + number % 2}", "text": text}
        for number, (lang, text) in enumerate((lang, text) for lang, texts in TEXTS.items() for text in texts)
    ]
    path = tmp_path / "corpus.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.fixture
def job(tmp_path: Path, corpus: Path, endpoint: FakeEndpoint) -> dict[str, Any]:
    """The content of a job file that translates the corpus."""
    return {
        "source": str(corpus),
        "sink": str(tmp_path / "translated"),
        "prompts": [{"translate": {"column": "text", "into": "latvian", "to": "lv"}}],
        "endpoint": {"openai_compatible": {"base_url": endpoint.base_url, "model": "any"}},
        "store": f"sqlite:///{tmp_path / 'store.db'}",
    }


class Runs:
    """Runs assets in this process, against an instance of its own."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance

    def materialise(
        self,
        definitions: dg.Definitions,
        *,
        partition: str | None = None,
        span: tuple[str, str] | None = None,
        resources: dict[str, Any] | None = None,
        assets: Sequence[str] | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Run the assets of some definitions; `span` is a range of partitions in one run."""
        graph = dg.Definitions.merge(definitions, dg.Definitions(resources=resources or {}))
        tags = {} if partition is None else {"dagster/partition": partition}
        if span is not None:
            tags = {
                "dagster/asset_partition_range_start": span[0],
                "dagster/asset_partition_range_end": span[1],
            }
        return graph.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=self.instance,
            raise_on_error=False,
            tags=tags,
            asset_selection=None if assets is None else [dg.AssetKey(name) for name in assets],
        )

    @staticmethod
    def events(result: dg.ExecuteInProcessResult, asset: str) -> dict[str | None, dg.AssetMaterialization]:
        """Give the last materialisation of each partition of an asset in a run; None is that of the whole asset."""
        return {
            event.materialization.partition: event.materialization
            for event in result.get_asset_materialization_events()
            if event.asset_key == dg.AssetKey(asset)
        }

    def told(self, result: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
        """Give the values of the metadata of an asset without partitions."""
        return {name: value.value for name, value in self.events(result, asset)[None].metadata.items()}

    @staticmethod
    def failure(result: dg.ExecuteInProcessResult) -> tuple[str, dict[str, Any]]:
        """Give the description and the metadata of the failure that ended a step."""
        (event,) = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
        data = event.step_failure_data
        assert data.user_failure_data is not None, data.error
        return data.user_failure_data.description or "", {
            name: value.value for name, value in data.user_failure_data.metadata.items()
        }


@pytest.fixture
def runs() -> Iterator[Runs]:
    """Runs in an instance that is gone after the test."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield Runs(instance)
