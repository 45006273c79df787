"""The models of a job file say all that the objects of the library take, and nothing else."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import TYPE_CHECKING, get_args

import pytest

from corpusmill import (
    Budget,
    FailurePolicy,
    Limits,
    OpenAICompatible,
    RetryPolicy,
    SambaNova,
    SinkSpec,
    SourceSpec,
)
from corpusmill.errors import JobError, UsageError
from corpusmill.job import job_schema, parse_job
from corpusmill.job.models import (
    BudgetModel,
    FailuresModel,
    LimitsModel,
    OpenAICompatibleModel,
    RetryModel,
    SambaNovaModel,
    SinkModel,
    SourceModel,
    StoreModel,
)
from corpusmill.policy import DEFAULT_STORE, MODES
from corpusmill.tables.parts import COMPRESSIONS

if TYPE_CHECKING:
    from corpusmill.job.models import Model


@pytest.mark.parametrize(
    ("model", "noun"),
    [
        (SourceModel, SourceSpec),
        (SinkModel, SinkSpec),
        (LimitsModel, Limits),
        (RetryModel, RetryPolicy),
        (FailuresModel, FailurePolicy),
        (BudgetModel, Budget),
    ],
)
def test_a_model_has_the_fields_of_the_object_that_it_becomes(model: type[Model], noun: type) -> None:
    """A field that Python has and a job file lacks is found here, and so is the reverse."""
    assert set(model.model_fields) == {field.name for field in fields(noun)}


@pytest.mark.parametrize(
    ("model", "endpoint"), [(OpenAICompatibleModel, OpenAICompatible), (SambaNovaModel, SambaNova)]
)
def test_an_endpoint_in_a_job_file_takes_what_its_class_takes(model: type[Model], endpoint: type) -> None:
    """Every argument of the class is a key."""
    assert set(model.model_fields) == set(inspect.signature(endpoint).parameters)


@pytest.mark.parametrize("value", [5, 100.0])
def test_a_number_of_rows_is_refused_as_a_share_in_python_too(value: float) -> None:
    """With what to write instead, as in a job file."""
    share = f"{value / 100:g}"
    with pytest.raises(UsageError, match=rf"max_failed is {value:g}; it must be a share .* % write {share}$"):
        FailurePolicy(max_failed=value)


@pytest.mark.parametrize("value", [-0.1, 101, float("nan")])
def test_what_is_no_share_at_all_is_refused_without_advice(value: float) -> None:
    """Nobody can tell what was meant."""
    with pytest.raises(UsageError, match=r"and not their number$"):
        FailurePolicy(max_failed=value)


def test_choices_and_defaults_are_those_of_the_library() -> None:
    """Modes, compressions and the default store are the same, whichever way a job is written."""
    assert get_args(StoreModel.model_fields["mode"].annotation) == MODES
    assert get_args(SinkModel.model_fields["compression"].annotation) == COMPRESSIONS
    assert StoreModel.model_fields["url"].default == DEFAULT_STORE
    assert (
        job_schema()["$defs"]["SinkModel"]["properties"]["compression"]["default"]
        == SinkSpec(path="x").compression
    )


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("sambanova: {model: m, ceiling_field: max_completion_tokens}", "max_completion_tokens"),
        ("sambanova: {model: m}", "max_tokens"),
        ("openai_compatible: {base_url: 'http://h/v1', model: m}", "max_tokens"),
    ],
)
def test_the_name_of_the_ceiling_reaches_the_endpoint(endpoint: str, expected: str) -> None:
    """Both kinds of endpoint take it from the job file."""
    job = parse_job(
        f"source: a\nsink: {{path: b, compression: snappy}}\nendpoint: {{{endpoint}}}\n"
        "prompts: [{ask: {template: '{text}', into: topic}}]\n",
        environment={},
    )
    assert job.endpoint.ceiling_field == expected
    assert job.sink.compression == "snappy"


def test_a_compression_that_does_not_exist_is_refused_with_its_line() -> None:
    """Before anything is read."""
    with pytest.raises(JobError, match=r"job:2: sink\.compression: .*'zstd'"):
        parse_job(
            "source: a\nsink: {path: b, compression: zip}\nendpoint: {sambanova: {model: m}}\n"
            "prompts: [{ask: {template: '{text}', into: topic}}]\n",
            environment={},
        )
