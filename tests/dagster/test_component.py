"""The component: in a sandbox as a user writes it, and what it refuses."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from corpusmill import read
from corpusmill.dagster import EnrichmentComponent

if TYPE_CHECKING:
    from tests.dagster.conftest import Runs

    from corpusmill.testing import FakeEndpoint

PAGE = Path(__file__).parents[2] / "docs" / "dagster.md"


def load(attributes: dict[str, Any] | str, **files: str) -> dg.Definitions:
    """Load a component from a `defs.yaml` with these attributes (or this text), beside other files."""
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.defs_folder_path / "translation"
        folder.mkdir(parents=True)
        text = attributes if isinstance(attributes, str) else json.dumps(attributes, indent=1)
        indented = "".join(f"  {line}\n" for line in text.splitlines())
        (folder / "defs.yaml").write_text(
            f"type: corpusmill.dagster.EnrichmentComponent\n\nattributes:\n{indented}", "utf-8"
        )
        for name, content in files.items():
            (folder / name.replace("_", ".")).write_text(content, "utf-8")
        with sandbox.build_all_defs() as definitions:
            definitions.resolve_asset_graph()
            return definitions


def refusal_of(attributes: dict[str, Any] | str) -> str:
    """Give all that is said when a component is refused, causes included."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Dagster's errors are many, and what they say counts
        load(attributes)
    said: list[str] = []
    error: BaseException | None = raised.value
    while error is not None:
        said.append(str(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(said)


def test_a_component_with_its_fields_inline_materialises(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """Several prompts in a pass, partitions, checks and the asset's own attributes, all in YAML."""
    job["prompts"].append({"ask": {"template": "Topic of {text}?", "into": "topic"}})
    attributes = {
        **job,
        "asset": {"key": "corpus/translated", "group_name": "texts", "owners": ["team:corpus"]},
        "partitions": {"lang": {"type": "static", "keys": ["en", "de"], "column": "lang", "hive": "of"}},
        "checks": {"failed_rows": {"blocking": True}, "structure_kept": False},
    }
    definitions = load(attributes)
    node = definitions.resolve_asset_graph().get(dg.AssetKey(["corpus", "translated"]))
    assert (node.group_name, list(node.owners)) == ("texts", ["team:corpus"])
    names = {key.name for key in node.check_keys}
    assert "failed_rows" in names
    assert "structure_kept" not in names
    assert runs.materialise(definitions, partition="de").success
    assert read(job["sink"], partition={"of": "de"}).schema.names[-2:] == ["topic", "topic_outcome"]


def test_the_snippets_of_the_documentation_are_definitions() -> None:
    """Those in Python, the component in YAML, and that with the partitions and the checks that the page shows."""
    page = PAGE.read_text("utf-8")
    snippets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(snippets) == 2
    for snippet in snippets:
        made: dict[str, Any] = {"dg": dg}
        exec(snippet, made)  # noqa: S102 - what a reader would paste
        made["defs"].resolve_asset_graph()
    component, partitions = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    attributes = textwrap.dedent(component.partition("attributes:\n")[2])
    assert len(load(attributes).resolve_asset_graph().get_all_asset_keys()) == 2
    (checks,) = re.findall(r"`(checks: \{.*\})`", page)
    without_prompts = attributes.replace(
        attributes[attributes.index("prompts:") : attributes.index("endpoint:")], ""
    )
    node = (
        load(f"{without_prompts}{textwrap.dedent(partitions)}{checks}")
        .resolve_asset_graph()
        .get(dg.AssetKey("translated"))
    )
    assert node.partitions_def is not None
    assert "structure_kept" not in {key.name for key in node.check_keys}


def test_a_component_may_submit_transform_jobs_apart(job: dict[str, Any]) -> None:
    """Then it has an asset that submits, one that collects, and a sensor; for another endpoint it is refused."""
    transform = {
        "model_name": "m",
        "model": "m",
        "region": "eu-north-1",
        "instance_type": "ml.g6",
        "s3": "s3://any",
    }
    attributes = {
        **job,
        "asset": {"key": "corpus/translated", "group_name": "texts"},
        "endpoint": {"sagemaker_transform": transform},
        "submits_apart": True,
    }
    definitions = load(attributes)
    graph = definitions.resolve_asset_graph()
    collecting = graph.get(dg.AssetKey(["corpus", "translated"]))
    submitting = graph.get(dg.AssetKey(["corpus", "translated_jobs"]))
    assert submitting.key in collecting.parent_keys
    assert submitting.group_name == "texts"
    assert submitting.code_version == collecting.code_version
    assert [sensor.name for sensor in definitions.sensors or ()] == ["collect_corpus__translated"]
    assert "has no transform jobs" in refusal_of({**attributes, "endpoint": job["endpoint"]})


def test_a_component_may_name_a_job_file_beside_it(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """The path is that of a job file, taken from the component's own folder; its keys may not stand beside it."""
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.defs_folder_path / "translation"
        folder.mkdir(parents=True)
        (folder / "job.yaml").write_text(json.dumps(job), "utf-8")
        (folder / "defs.yaml").write_text(
            "type: corpusmill.dagster.EnrichmentComponent\nattributes: {asset: {key: translated}, job: job.yaml}\n",
            "utf-8",
        )
        with sandbox.build_all_defs() as definitions:
            assert runs.materialise(definitions).success
    assert "not in both" in refusal_of({"asset": {"key": "x"}, "job": "job.yaml", "source": "a.parquet"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompts": [{"translate": {"colum": "text", "into": "t", "to": "lv"}}]}, "did you mean 'column'?"),
        ({"limits": {"concurency": 8}}, "is not known in limits; did you mean 'concurrency'?"),
        ({"endpoint": None}, "the key 'endpoint' is missing"),
        ({"promts": []}, "promts"),
        (
            {"prompts": [{"ask": {"template": "Topic of {{ text }}?", "into": "t"}}]},
            "a column is written {text}",
        ),
        ({"prompts": [{"ask": {"template": "Topic?", "into": "t"}}]}, "names no column"),
        ({"partitions": {"lang": {"type": "static"}}}, "need keys"),
        ({"partitions": {"lang": {"type": "daily", "start": "2026-01-01", "keys": ["a"]}}}, "have no keys"),
        ({"checks": {"typo": False}}, "no check is called typo"),
        ({"checks": {"failed_rows": {"most": 7}}}, "most"),
    ],
)
def test_what_is_wrong_is_named(job: dict[str, Any], change: dict[str, Any], message: str) -> None:
    """A wrong key, a template of the wrong kind, a missing field: the error says which."""
    assert message in refusal_of({**job, "asset": {"key": "translated"}, **change})


@pytest.mark.parametrize(
    "beside",
    [
        "endpoint: {openai_compatible: {base_url: 'http://127.0.0.1:1/v1', model: any}}",
        "endpoint: {openai_compatible: {base_url: '${NO_SUCH_URL}', model: any, api_key: '${NO_SUCH_KEY}'}}",
        "endpoint_resource: llm",
        "endpoint_resource: llm\npartitions: {lang: {type: dynamic, name: languages}}",
    ],
)
def test_a_misspelt_key_is_told_as_in_a_job_file(beside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line with file and line, whatever variables are missing, whoever is asked, and without any partition."""
    monkeypatch.delenv("NO_SUCH_URL", raising=False)
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    text = f"""
asset: {{key: translated}}
source: corpus.parquet
sink: out
prompts:
  - translate:
      column: text
      into: t
      to: lv
      tempereture: 1
{beside}
"""
    said = refusal_of(text)
    (line,) = [line for line in said.splitlines() if "tempereture" in line]
    place, _, complaint = line.partition(": ")
    assert place.endswith("translation/defs.yaml:13")
    assert (
        complaint == "the key 'tempereture' is not known in prompts.0.translate; did you mean 'temperature'?"
    )
    assert "validation error" not in said


def test_a_number_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, job: dict[str, Any]) -> None:
    """A variable that is set is filled in before the form is looked at, also where a resource says who is asked."""
    monkeypatch.setenv("AS_MANY", "8")
    del job["endpoint"]
    attributes = {**job, "asset": {"key": "translated"}, "endpoint_resource": "llm"}
    said = refusal_of({**attributes, "limits": {"concurrency": "${AS_MANY}"}})
    assert "resource with key 'llm'" in said
    assert "concurrency" not in said
    monkeypatch.delenv("AS_MANY")
    assert "limits.concurrency: must be a whole number" in refusal_of(
        {**attributes, "limits": {"concurrency": "${AS_MANY}"}}
    )


@pytest.mark.parametrize(
    "written", ["glossary: {no: nē}", "glossary: {yes: on}", "seed: 0123", "stop: [22:30]", "seed: 1_000"]
)
def test_yaml_that_means_something_else_to_dagster_is_refused(written: str, endpoint: FakeEndpoint) -> None:
    """`no` is a text in a job file and false in Dagster's YAML: the component says what to put in quotes."""
    text = f"""
asset: {{key: translated}}
source: corpus.parquet
sink: out
prompts:
  - translate:
      column: text
      into: t
      to: lv
      {written}
endpoint: {{openai_compatible: {{base_url: {endpoint.base_url}, model: any}}}}
"""
    said = refusal_of(text)
    assert "write it as '" in said or "Input should be a valid string" in said
    load(text.replace(written, 'glossary: {"no": nē}'))


def test_a_missing_variable_of_the_environment_does_not_stop_the_definitions(
    job: dict[str, Any], runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key is needed where a run runs: definitions load without it, and the run names what is missing."""
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    job["endpoint"]["openai_compatible"]["api_key"] = "${NO_SUCH_KEY}"
    job["endpoint"]["openai_compatible"]["base_url"] = "${NO_SUCH_URL}"
    definitions = load({**job, "asset": {"key": "translated"}})
    description, _ = runs.failure(runs.materialise(definitions))
    assert "NO_SUCH_" in description


def test_every_field_is_documented_for_those_who_write_the_yaml() -> None:
    """The schema that editors and `dg docs` show has a description of each field, and knows the job's keys."""
    model = EnrichmentComponent.get_model_cls()
    assert model is not None
    schema = model.model_json_schema()
    assert not [name for name, field in schema["properties"].items() if not field.get("description")]
    assert {"source", "sink", "prompts", "endpoint", "partitions", "checks"} <= schema["properties"].keys()
    assert "TranslateModel" in schema["$defs"]
