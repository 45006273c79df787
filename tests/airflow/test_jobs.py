"""From what an operator was given to a job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from corpusmill import Limits, SourceSpec, Translate
from corpusmill.airflow import EnrichOperator
from corpusmill.airflow.jobs import Given, assemble, merged
from corpusmill.endpoints import OpenAICompatible
from corpusmill.errors import JobError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

ENDPOINT = {"openai_compatible": {"base_url": "http://127.0.0.1:1/v1", "model": "m"}}
PROMPTS = [{"translate": {"column": "text", "into": "lv", "from": "en", "to": "${TO}"}}]
VALUES: dict[str, Any] = {"source": "in.parquet", "sink": "out", "prompts": PROMPTS, "endpoint": ENDPOINT}


def test_the_task_lies_over_the_file_and_overrides_over_both(tmp_path: Path) -> None:
    """Mappings meet key by key, and a mere path may have a field laid beside it."""
    path = tmp_path / "job.yaml"
    path.write_text(
        json.dumps(
            {**VALUES, "limits": {"concurrency": 3, "requests_per_minute": 5}, "store": "sqlite:///a.db"}
        ),
        "utf-8",
    )
    made = assemble(
        Given(
            path=str(path),
            values={"limits": {"concurrency": 7}, "sink": None},
            overrides={"source": {"columns": ["text"]}, "sink": {"rows_per_part": 9}},
            parameters={"TO": "lv"},
            partition={"day": "2026-01-31"},
            store_url="postgresql://me:hush@db/x",
        )
    )
    job = made.job
    assert (job.limits.concurrency, job.limits.requests_per_minute) == (7, 5)
    assert (job.source.path, job.source.columns) == ("in.parquet", ["text"])
    assert (job.sink.path, job.sink.rows_per_part, job.sink.partition) == ("out", 9, {"day": "2026-01-31"})
    assert job.store == "postgresql://me:hush@db/x"
    assert "hush" not in str(job.written)


def test_objects_may_stand_where_mappings_do() -> None:
    """A prompt, an endpoint, limits and a table are taken as they are; the report says which they were."""
    table = pa.table({"text": ["a"]})
    prompt = Translate("text", into="lv", to="lv")
    endpoint = OpenAICompatible("http://127.0.0.1:1/v1", "m")
    values = {
        "source": table,
        "sink": "out",
        "prompts": [prompt],
        "endpoint": endpoint,
        "limits": Limits(concurrency=2),
    }
    made = assemble(Given(values=values))
    assert made.source is table
    assert made.job.prompts == (prompt,)
    assert made.job.endpoint is endpoint
    assert made.job.limits.concurrency == 2
    assert made.job.written["source"] == "Table"
    assert made.job.written["prompts"] == [prompt.content()]
    spec = SourceSpec(path="x", limit=3)
    assert assemble(Given(values={**values, "source": spec})).source is spec


def test_prompts_come_in_one_form() -> None:
    """Mappings beside objects are refused."""
    mixed = [*PROMPTS, Translate("text", into="et", to="et")]
    with pytest.raises(UsageError, match="one form"):
        assemble(Given(values={**VALUES, "prompts": mixed}, parameters={"TO": "lv"}))


def test_parameters_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What neither has is an error that names it."""
    with pytest.raises(JobError, match="TO"):
        assemble(Given(values=VALUES))
    monkeypatch.setenv("TO", "et")
    assert assemble(Given(values=VALUES)).job.prompts[0].content()["to"] == "et"
    made = assemble(Given(values=VALUES, parameters={"TO": "lv"}))
    assert made.job.prompts[0].content()["to"] == "lv"


def test_a_wrong_key_is_named(tmp_path: Path) -> None:
    """As in a job file, with the nearest right one."""
    with pytest.raises(JobError, match="concurrency"):
        assemble(Given(values={**VALUES, "limits": {"concurency": 1}}, parameters={"TO": "lv"}))
    with pytest.raises(UsageError, match="cannot be read"):
        assemble(Given(path=str(tmp_path / "none.yaml")))


def test_mappings_are_merged_without_being_changed() -> None:
    """Lists and texts are replaced."""
    below = {"a": {"b": 1, "c": [1]}, "d": 2}
    assert merged(below, {"a": {"c": [2]}, "d": {"e": 3}}) == {"a": {"b": 1, "c": [2]}, "d": {"e": 3}}
    assert below == {"a": {"b": 1, "c": [1]}, "d": 2}


@pytest.mark.parametrize(
    ("sink", "uri"),
    [
        ("/data/out", "file:///data/out"),
        ({"path": "s3://bucket/out/"}, "s3://bucket/out"),
        ("/data/{{ ds }}", None),
        ("relative/out", None),
        (None, None),
    ],
)
def test_an_asset_is_made_of_a_sink_that_is_known_when_the_dag_is_read(sink: Any, uri: str | None) -> None:
    """One with a template is known only when the task runs."""
    operator = EnrichOperator(task_id="t", sink=sink)
    assert (operator.asset.uri if operator.asset else None) == uri
    assert [asset.uri for asset in operator.outlets] == ([uri] if uri else [])


def test_templates_never_read_files_and_never_touch_prompts() -> None:
    """A job file's name ends in .yaml, and a prompt may hold braces."""
    assert tuple(EnrichOperator.template_ext) == ()
    assert "prompts" not in EnrichOperator.template_fields
    assert {"job", "source", "sink", "partition", "parameters", "overrides"} <= set(
        EnrichOperator.template_fields
    )


def test_a_store_with_a_password_in_its_url_is_refused() -> None:
    """Airflow would show it among the rendered fields."""
    operator = EnrichOperator(task_id="t", store="postgresql://me:hush@db/corpus", **VALUES)
    with pytest.raises(UsageError, match="store_conn_id") as caught:
        operator.assembled()
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("executor", "store", "warned"),
    [
        ("LocalExecutor", "sqlite:///store.db", False),
        ("CeleryExecutor", "sqlite:///store.db", True),
        ("LocalExecutor,my.module.KubernetesExecutor", "sqlite:///store.db", True),
        ("CeleryExecutor", "postgresql://db/corpus", False),
    ],
)
def test_a_store_of_one_machine_under_an_executor_of_many_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, executor: str, store: str, *, warned: bool
) -> None:
    """The warning says what to set."""
    said: list[str] = []

    class Log:
        def warning(self, message: str, *values: object) -> None:
            said.append(message % values)

    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    monkeypatch.setattr(EnrichOperator, "log", Log())
    EnrichOperator(task_id="t").warn_of_store(store)
    assert ["postgresql://" in each for each in said] == ([True] if warned else [])
