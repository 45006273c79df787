"""OpenLineage events, as the file transport writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from corpusmill.lineage.openlineage import dataset_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from corpusmill.testing import FakeEndpoint

    LoadDag = Callable[..., ModuleType]
    RunDag = Callable[..., Any]
    Events = Callable[[], list[dict[str, Any]]]

FACET = {"type": "object", "required": ["_producer", "_schemaURL"]}
FACETS = {"type": "object", "additionalProperties": FACET}
INPUT_FIELD = {
    "type": "object",
    "required": ["namespace", "name", "field"],
    "properties": {
        "transformations": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type"],
                "properties": {
                    "type": {"enum": ["DIRECT", "INDIRECT"]},
                    "subtype": {"type": "string"},
                    "description": {"type": "string"},
                    "masking": {"type": "boolean"},
                },
            },
        }
    },
}
FIELDS: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "type": {"type": "string"}, "fields": {"type": "array"}},
    },
}
DATASETS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["namespace", "name"],
        "properties": {
            "namespace": {"type": "string"},
            "name": {"type": "string"},
            "facets": {
                **FACETS,
                "properties": {
                    "schema": {**FACET, "properties": {"fields": FIELDS}},
                    "columnLineage": {
                        **FACET,
                        "required": ["fields"],
                        "properties": {
                            "fields": {
                                "type": "object",
                                "additionalProperties": {
                                    "type": "object",
                                    "required": ["inputFields"],
                                    "properties": {"inputFields": {"type": "array", "items": INPUT_FIELD}},
                                },
                            }
                        },
                    },
                },
            },
            "outputFacets": {
                **FACETS,
                "properties": {
                    "outputStatistics": {
                        **FACET,
                        "properties": {"rowCount": {"type": "integer", "minimum": 0}},
                    }
                },
            },
        },
    },
}
RUN_EVENT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["eventTime", "producer", "schemaURL", "run", "job"],
    "properties": {
        "eventTime": {"type": "string", "format": "date-time"},
        "producer": {"type": "string", "format": "uri"},
        "schemaURL": {"type": "string", "format": "uri"},
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "run": {
            "type": "object",
            "required": ["runId"],
            "properties": {"runId": {"type": "string", "format": "uuid"}, "facets": FACETS},
        },
        "job": {"type": "object", "required": ["namespace", "name"], "properties": {"facets": FACETS}},
        "inputs": DATASETS,
        "outputs": DATASETS,
    },
}
"""What the OpenLineage specification (2-0-2, and its facets) requires of the parts that are ours, in our own words."""

DAG = """
from airflow.sdk import DAG
from corpusmill.airflow import EnrichOperator

with DAG(dag_id, schedule=None) as dag:
    EnrichOperator(
        task_id="translate",
        source={"path": folder + "/corpus.parquet"},
        sink={"path": folder + "/" + dag_id, "columns": ["id"]},
        prompts=prompts,
        endpoint={"openai_compatible": {"base_url": base_url, "model": "fake"}},
        store="sqlite:///" + folder + "/store.db",
        failures={"max_failed": 0.0},
        prices={"prompt": 1.0, "completion": 2.0},
    )
"""
TRANSLATE = {"translate": {"column": "text", "into": "text_lv", "from": "en", "to": "lv"}}
SUMMARISE = {"summarise": {"column": "text", "into": "short", "length": "one sentence"}}


def of_task(events: list[dict[str, Any]], name: str) -> dict[str, dict[str, Any]]:
    """Give the events of one task by their type."""
    return {event["eventType"]: event for event in events if event["job"]["name"] == name}


def test_events_name_the_same_datasets_at_the_start_and_at_the_end(
    load_dag: LoadDag, run_dag: RunDag, corpus: Path, fake_endpoint: FakeEndpoint, events: Events
) -> None:
    """They hold schema, the origin of each column, counts and cost, and fit the specification."""
    module = load_dag(
        DAG,
        dag_id="lineage",
        folder=str(corpus.parent),
        base_url=fake_endpoint.base_url,
        prompts=[TRANSLATE, SUMMARISE],
    )
    assert run_dag(module.dag).state == "success"
    found = events()
    for event in found:
        jsonschema.validate(event, RUN_EVENT, format_checker=jsonschema.FormatChecker())
    ours = of_task(found, "lineage.translate")
    assert set(ours) == {"START", "COMPLETE"}
    names = {
        kind: [[(one["namespace"], one["name"]) for one in event[side]] for side in ("inputs", "outputs")]
        for kind, event in ours.items()
    }
    expected = [[("file", str(corpus))], [("file", f"{corpus.parent}/lineage")]]
    assert names == {"START": expected, "COMPLETE": expected}
    (output,) = ours["COMPLETE"]["outputs"]
    columns = [field["name"] for field in output["facets"]["schema"]["fields"]]
    assert columns == ["id", "text_lv", "text_lv_outcome", "short", "short_outcome"]
    lineage = output["facets"]["columnLineage"]["fields"]
    assert set(lineage) == set(columns)
    assert [field["field"] for field in lineage["short"]["inputFields"]] == ["text"]
    (how,) = lineage["text_lv"]["inputFields"][0]["transformations"]
    assert (how["type"], how["subtype"]) == ("DIRECT", "TRANSFORMATION")
    assert how["description"].startswith("translate by fake, prompt ")
    assert lineage["id"]["inputFields"][0]["transformations"][0]["subtype"] == "IDENTITY"
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 60
    run = ours["COMPLETE"]["run"]["facets"]["corpusmill_run"]
    assert (run["rows"], run["outcomes"]) == (60, {"completed": 114, "skipped": 6})
    assert run["promptTokens"] == fake_endpoint.stats().prompt_tokens
    assert run["cost"] > 0
    assert "strikes" not in str(found)


def test_a_failed_task_names_the_same_datasets(
    load_dag: LoadDag, run_dag: RunDag, corpus: Path, fake_endpoint: FakeEndpoint, events: Events
) -> None:
    """FAIL has the names of START, and what was counted until then."""
    fake_endpoint.script(lambda request, attempt: "400" if "house 3 " in str(request["messages"]) else None)
    module = load_dag(
        DAG, dag_id="failing", folder=str(corpus.parent), base_url=fake_endpoint.base_url, prompts=[TRANSLATE]
    )
    assert run_dag(module.dag).state == "failed"
    ours = of_task(events(), "failing.translate")
    assert set(ours) == {"START", "FAIL"}
    assert ours["START"]["inputs"][0]["name"] == ours["FAIL"]["inputs"][0]["name"] == str(corpus)
    assert ours["START"]["outputs"][0]["name"] == ours["FAIL"]["outputs"][0]["name"]
    assert ours["FAIL"]["run"]["facets"]["corpusmill_run"]["outcomes"]["failed"] == 2


@pytest.mark.parametrize(
    ("address", "namespace", "name"),
    [
        ("/data/corpus", "file", "/data/corpus"),
        ("/data/corpus/", "file", "/data/corpus"),
        ("file:///data/corpus", "file", "/data/corpus"),
        ("/data/2026-*/part?.parquet", "file", "/data"),
        ("s3://bucket/a/b/", "s3://bucket", "a/b"),
        ("s3://bucket/a/*.parquet", "s3://bucket", "a"),
        ("s3://bucket", "s3://bucket", "/"),
        ("gs://bucket/a=1/b.parquet", "gs://bucket", "a=1/b.parquet"),
    ],
)
def test_datasets_have_the_names_of_the_naming_rules(address: str, namespace: str, name: str) -> None:
    """A scheme and authority as the namespace, the path as the name."""
    found = dataset_name(address)
    assert (found.namespace, found.name) == (namespace, name)
