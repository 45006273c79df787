"""OpenLineage events, as the file transport writes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openlineage.client import event_v2
from openlineage.client.naming import dataset as naming
from openlineage.client.serde import Serde
from openlineage.client.uuid import generate_new_uuid
from tests.airflow.specification import NotAnEventError, check

from corpusmill import Translate
from corpusmill.lineage.columns import column_lineage
from corpusmill.lineage.openlineage import (
    RUN_FACET,
    dataset_name,
    input_dataset,
    output_dataset,
    run_facet,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from corpusmill.testing import FakeEndpoint

    LoadDag = Callable[..., ModuleType]
    RunDag = Callable[..., Any]
    Events = Callable[[], list[dict[str, Any]]]

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
        check(event)
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


def test_columns_of_any_name_are_read_filled_and_told(
    load_dag: LoadDag, run_dag: RunDag, tmp_path: Path, fake_endpoint: FakeEndpoint, events: Events
) -> None:
    """The lineage names the columns that the table has, however a prompt writes them."""
    written = "gro\u0308\u00dfe"
    table = pa.table({"id": [1], "Text Body (orig.)": ["one"], written: ["s"], "a.b": ["c"], "2024": ["x"]})
    pq.write_table(table, tmp_path / "corpus.parquet")
    ask = {
        "template": "{column:Text Body (orig.)} {gr\u00f6\u00dfe} {a.b}",
        "into": "topic.b",
        "vary_by": "2024",
    }
    module = load_dag(
        DAG, dag_id="names", folder=str(tmp_path), base_url=fake_endpoint.base_url, prompts=[{"ask": ask}]
    )
    assert run_dag(module.dag).state == "success"
    (output,) = of_task(events(), "names.translate")["COMPLETE"]["outputs"]
    lineage = output["facets"]["columnLineage"]["fields"]
    assert list(lineage) == ["id", "topic.b", "topic.b_outcome"]
    assert [field["field"] for field in lineage["topic.b"]["inputFields"]] == [
        "Text Body (orig.)",
        written,
        "a.b",
        "2024",
    ]


def test_a_failed_task_names_the_same_datasets(
    load_dag: LoadDag, run_dag: RunDag, corpus: Path, fake_endpoint: FakeEndpoint, events: Events
) -> None:
    """FAIL has the names of START, and what was counted until then."""
    fake_endpoint.script(lambda request, attempt: "400" if "house 3 " in str(request["messages"]) else None)
    module = load_dag(
        DAG, dag_id="failing", folder=str(corpus.parent), base_url=fake_endpoint.base_url, prompts=[TRANSLATE]
    )
    assert run_dag(module.dag).state == "failed"
    found = events()
    for event in found:
        check(event)
    ours = of_task(found, "failing.translate")
    assert set(ours) == {"START", "FAIL"}
    assert ours["START"]["inputs"][0]["name"] == ours["FAIL"]["inputs"][0]["name"] == str(corpus)
    assert ours["START"]["outputs"][0]["name"] == ours["FAIL"]["outputs"][0]["name"]
    assert ours["FAIL"]["run"]["facets"]["corpusmill_run"]["outcomes"]["failed"] == 2


SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("meta", pa.struct([("origin", pa.struct([("url", pa.string())])), ("page", pa.int32())])),
        ("empty", pa.struct([])),
        ("when", pa.timestamp("us", tz="UTC")),
    ]
)

COUNTS = {
    "rows": 10,
    "outcomes": {"completed": 8, "failed": 2},
    "live": 8,
    "cached": 0,
    "deduplicated": 0,
    "prompt_tokens": 100,
    "completion_tokens": 50,
    "cost": 1,
    "possibly_paid_twice": 0,
    "model": "m",
    "run_key": None,
}


def made_event(kind: event_v2.RunState, source: str, sink: str) -> dict[str, Any]:
    """Make an event of everything that can be told of a run, in the form in which it is sent."""
    prompt = Translate("text", into="text_lv", from_="en", to="lv")
    columns = column_lineage(SCHEMA.names, [(prompt, ["text_lv", "text_lv_outcome"])], source=SCHEMA.names)
    event = event_v2.RunEvent(
        eventType=kind,
        eventTime="2026-01-31T00:00:00+00:00",
        run=event_v2.Run(
            runId=str(generate_new_uuid()),
            facets={RUN_FACET: run_facet(COUNTS)},
        ),
        job=event_v2.Job(namespace="default", name="dag.task"),
        inputs=[input_dataset(source, SCHEMA)],
        outputs=[output_dataset(sink, schema=SCHEMA, columns=columns, source=source, model="m", rows=10)],
    )
    decoded: dict[str, Any] = json.loads(Serde.to_json(event))
    return decoded


@pytest.mark.parametrize(
    "kind", [event_v2.RunState.START, event_v2.RunState.COMPLETE, event_v2.RunState.FAIL]
)
@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("/data/corpus/*.parquet", "/data/out"),
        ("s3://bucket/corpus/", "s3://bucket/out"),
        ("gs://bucket/corpus.parquet", "gs://other/out"),
    ],
)
def test_what_is_told_of_any_store_fits_the_specification(
    kind: event_v2.RunState, source: str, sink: str
) -> None:
    """Schemas of nested columns, the origin of each column, counts and cost, of files, S3 and GCS."""
    event = made_event(kind, source, sink)
    check(event)
    (read,), (written,) = event["inputs"], event["outputs"]
    assert {"schema"} == set(read["facets"])
    assert {"schema", "columnLineage"} == set(written["facets"])
    (pointed,) = {
        (field["namespace"], field["name"])
        for column in written["facets"]["columnLineage"]["fields"].values()
        for field in column["inputFields"]
    }
    assert pointed == (read["namespace"], read["name"])


def broken(*path: str | int, value: Any = None) -> dict[str, Any]:
    """Make an event and put a value into it, or take one out."""
    event = made_event(event_v2.RunState.COMPLETE, "/data/corpus", "/data/out")
    place: Any = event
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return event


OUTPUT = ("outputs", 0)
LINEAGE = (*OUTPUT, "facets", "columnLineage")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("run", "runId"), None),
        (("run", "runId"), "no uuid"),
        (("eventTime",), "yesterday"),
        (("eventType",), "DONE"),
        (("producer",), "nobody"),
        (("outputs",), {}),
        ((*OUTPUT, "namespace"), None),
        ((*OUTPUT, "outputFacets", "outputStatistics", "rowCount"), "10"),
        ((*OUTPUT, "outputFacets", "outputStatistics", "rowCount"), 10.5),
        ((*LINEAGE, "_producer"), None),
        ((*LINEAGE, "fields"), None),
        ((*LINEAGE, "fields", "text_lv", "inputFields"), None),
        ((*LINEAGE, "fields", "text_lv", "inputFields", 0, "transformations", 0, "type"), None),
        ((*LINEAGE, "fields", "text_lv", "inputFields", 0, "transformations", 0, "masking"), "no"),
        ((*OUTPUT, "facets", "schema", "fields", 0, "name"), None),
        (("run", "facets", RUN_FACET, "_schemaURL"), None),
    ],
)
def test_an_event_that_breaks_the_specification_is_told(path: tuple[str | int, ...], value: Any) -> None:
    """A check that lets everything pass would prove nothing."""
    with pytest.raises(NotAnEventError):
        check(broken(*path, value=value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*LINEAGE, "field"), {}),
        ((*LINEAGE, "_schemaURL"), "https://openlineage.io/spec/facets/9-9-9/Other.json#/$defs/Other"),
        ((*OUTPUT, "facets", "schema", "fields", 0, "kind"), "text"),
        (("schemaURL",), "https://openlineage.io/spec/1-0-0/OpenLineage.json#/$defs/RunEvent"),
    ],
)
def test_a_field_or_a_version_that_the_client_does_not_know_is_told(
    path: tuple[str | int, ...], value: Any
) -> None:
    """The schemas let fields of others pass; of ours, one with a wrong name would be lost."""
    with pytest.raises(NotAnEventError):
        check(broken(*path, value=value))


@pytest.mark.parametrize(
    ("address", "namespace", "name"),
    [
        ("/data/corpus", "file", "/data/corpus"),
        ("/data/corpus/", "file", "/data/corpus"),
        ("file:///data/corpus", "file", "/data/corpus"),
        ("file:///data/the%20corpus", "file", "/data/the corpus"),
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


def test_the_names_are_those_that_the_client_gives() -> None:
    """Whoever else tells of the same data calls it the same."""
    for address, theirs in (
        ("/data/corpus", naming.LocalFileSystem(path="/data/corpus")),
        ("s3://bucket/a/b", naming.S3(bucket_name="bucket", object_key="a/b")),
        ("gs://bucket/a/b", naming.GCS(bucket_name="bucket", object_key="a/b")),
    ):
        found = dataset_name(address)
        assert (found.namespace, found.name) == (theirs.get_namespace(), theirs.get_name())
