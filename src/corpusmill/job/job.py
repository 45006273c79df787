"""A job file and the objects that it stands for."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, ValidationError

from corpusmill.endpoints import Capabilities, OpenAICompatible, SambaNova
from corpusmill.endpoints.sagemaker import SageMakerEndpoint, SageMakerTransform
from corpusmill.errors import JobError, UsageError
from corpusmill.job.masking import masked
from corpusmill.job.models import (
    DURATION,
    BudgetModel,
    EndpointModel,
    FailuresModel,
    LimitsModel,
    Model,
    PricesModel,
    RetryModel,
    SinkModel,
    SourceModel,
    StoreModel,
    Text,
)
from corpusmill.job.prompts import PromptModel, build_prompt
from corpusmill.job.yaml_text import Document, Place, job_document, plain, read_job
from corpusmill.policy import DEFAULT_STORE, Budget, FailurePolicy, Limits, RetryPolicy
from corpusmill.tables import SinkSpec, SourceSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from corpusmill.endpoints import Endpoint
    from corpusmill.outcome import Status
    from corpusmill.prompts.prompt import Prompt

_VARIABLE = re.compile(r"(\$?)\$\{([A-Za-z_]\w*)\}")


class JobModel(Model):
    """A job: a source, a sink, prompts and an endpoint; all else has defaults."""

    source: Text | SourceModel
    sink: Text | SinkModel
    prompts: list[PromptModel] = Field(min_length=1)
    endpoint: EndpointModel
    store: Text | StoreModel = StoreModel.model_validate({})
    limits: LimitsModel = LimitsModel.model_validate({})
    retry: RetryModel = RetryModel.model_validate({})
    failures: FailuresModel = FailuresModel.model_validate({})
    budget: BudgetModel | None = None
    prices: PricesModel | None = None
    telemetry: bool = Field(
        default=False, description="add attempts, seconds, origin and request_id to each outcome"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a job file says, as the arguments of `enrich`.

    `written` is the file's content without secrets, `places` has the lines of its keys.
    """

    source: SourceSpec
    sink: SinkSpec
    prompts: tuple[Prompt, ...]
    endpoint: Endpoint
    store: str = DEFAULT_STORE
    mode: str = "read-write"
    refresh: tuple[Status, ...] | None = None
    limits: Limits = field(default_factory=Limits)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    failures: FailurePolicy = field(default_factory=FailurePolicy)
    budget: Budget | None = None
    prices: tuple[float, float] | None = None
    telemetry: bool = False
    written: Mapping[str, Any] = field(default_factory=dict)
    places: Document = field(default_factory=lambda: Document(None), repr=False, compare=False)

    def __repr__(self) -> str:
        # Not by field: the URLs of a store and of tables may hold passwords.
        return f"Job({dict(self.written)!r})"


def load_job(path: str | Path, *, environment: Mapping[str, str] | None = None) -> Job:
    """Read a job file (YAML 1.2 or JSON, UTF-8).

    `${NAME}` in a text is replaced from the environment, after parsing, so that what a variable holds is never
    YAML; `$${NAME}` is the text `${NAME}`. Paths are relative to the working directory. Raises `JobError` naming file,
    line, key and nearest key.
    """
    return build_job(read_job(path), name=str(path), environment=environment)


def parse_job(text: str, *, name: str = "job", environment: Mapping[str, str] | None = None) -> Job:
    """Read the text of a job file; see `load_job`."""
    return build_job(job_document(text, name), name=name, environment=environment)


def job_of(
    values: Mapping[str, Any], *, name: str = "job", environment: Mapping[str, str] | None = None
) -> Job:
    """Build a job from values that were parsed elsewhere, as in a component's YAML."""
    return build_job(Document(dict(values)), name=name, environment=environment)


def build_job(document: Document, *, name: str, environment: Mapping[str, str] | None) -> Job:
    """Check the values of a document and make the objects; without `environment` `${NAME}` is filled in from ours."""
    filled = _fill(document.values, (), document, name, os.environ if environment is None else environment)
    try:
        model = JobModel.model_validate(filled)
    except ValidationError as error:
        raise JobError(_explain(error, document, name)) from None
    places: Place = ()
    try:
        places = ("endpoint",)
        endpoint = _endpoint(model.endpoint)
        prompts = []
        for position, prompt in enumerate(model.prompts):
            places = ("prompts", position)
            prompts.append(build_prompt(prompt, wording=_wording_for(endpoint)))
        places = ("source",)
        source = _source(model.source)
        places = ("sink",)
        sink = _sink(model.sink)
        places = ("failures",)
        failures = FailurePolicy(
            max_failed=model.failures.max_failed,
            statuses=tuple(model.failures.statuses),  # type: ignore[arg-type]
        )
        places = ("limits",)
        limits = Limits(**model.limits.model_dump())
        places = ("retry",)
        retry = RetryPolicy(**model.retry.model_dump())
    except UsageError as error:
        where = document.where(name, places)
        raise JobError(f"{where}: {_path(places)}: {error}") from None
    store = StoreModel.model_validate({"url": model.store}) if isinstance(model.store, str) else model.store
    return Job(
        source=source,
        sink=sink,
        prompts=tuple(prompts),
        endpoint=endpoint,
        store=store.url,
        mode=store.mode,
        refresh=None if store.refresh is None else tuple(store.refresh),
        limits=limits,
        retry=retry,
        failures=failures,
        budget=None if model.budget is None else Budget(**model.budget.model_dump()),
        prices=None if model.prices is None else (model.prices.prompt, model.prices.completion),
        telemetry=model.telemetry,
        written=masked(plain(document.values)),
        places=Document(None, document.lines),
    )


def job_schema() -> dict[str, Any]:
    """Give the JSON schema of a job file."""
    schema = JobModel.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "corpusmill job"
    return schema


def _source(model: str | SourceModel) -> SourceSpec:
    if isinstance(model, str):
        return SourceSpec(path=model)
    return SourceSpec(**plain(model.model_dump()))


def _sink(model: str | SinkModel) -> SinkSpec:
    if isinstance(model, str):
        return SinkSpec(path=model)
    return SinkSpec(**plain(model.model_dump()))


def _endpoint(model: EndpointModel) -> Endpoint:
    given = [name for name in type(model).model_fields if getattr(model, name) is not None]
    if len(given) != 1:
        known = ", ".join(type(model).model_fields)
        raise UsageError(f"exactly one of {known} is needed; given: {' and '.join(given) or 'none'}")
    fields = {
        key: value for key, value in plain(getattr(model, given[0]).model_dump()).items() if value is not None
    }
    if given[0] == "sagemaker_transform" and "real_time" in fields:
        fields["real_time"] = _sagemaker(fields["real_time"])
    if given[0] == "sagemaker":
        return _sagemaker(fields)
    if "capabilities" in fields:
        fields["capabilities"] = _capabilities(fields["capabilities"])
    if given[0] == "sagemaker_transform":
        return SageMakerTransform(**fields)
    if given[0] == "sambanova":
        return SambaNova(fields.pop("model"), **fields)
    return OpenAICompatible(fields.pop("base_url"), fields.pop("model"), **fields)


def _sagemaker(values: Mapping[str, Any]) -> SageMakerEndpoint:
    fields = {key: value for key, value in values.items() if value is not None}
    if "capabilities" in fields:
        fields["capabilities"] = _capabilities(fields["capabilities"])
    return SageMakerEndpoint(**fields)


def _wording_for(endpoint: Endpoint) -> str | None:
    """Name the wording that a model on SageMaker is asked in, unless a prompt has one of its own; None: the usual."""
    return "tildeopen" if isinstance(endpoint, SageMakerEndpoint | SageMakerTransform) else None


def _capabilities(values: Mapping[str, Any]) -> Capabilities:
    known = Capabilities.__dataclass_fields__
    for key in values:
        if key not in known:
            raise UsageError(f"capabilities has the unknown key {key!r}{nearest(key, known)}")
    made = dict(values)
    for key in ("languages", "unchecked"):
        if made.get(key) is not None:
            if not isinstance(made[key], list) or not all(isinstance(item, str) for item in made[key]):
                raise UsageError(f"capabilities.{key} must be a list of texts")
            made[key] = frozenset(made[key])
    return Capabilities(**made)


def nearest(key: str, known: Any) -> str:
    """Say which known name is meant, or which there are."""
    names = list(known)
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(names)}"


def _fill(value: Any, place: Place, document: Document, name: str, environment: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _fill(item, (*place, key), document, name, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, (*place, index), document, name, environment) for index, item in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        found = environment.get(match[2])
        if found is None:
            where = document.where(name, place)
            literal = f"; write $${{{match[2]}}} for the text {match[0]}" if place[0] == "prompts" else ""
            raise JobError(
                f"{where}: {_path(place)} needs the environment variable {match[2]}, which is not set"
                f"{literal}"
            )
        return found

    # Elsewhere, as in a template, it may be a text like any other.
    if place[0] in ("endpoint", "store") and "${" in _VARIABLE.sub("", value):
        where = document.where(name, place)
        raise JobError(
            f"{where}: {_path(place)} has a ${{ that begins no name; write ${{NAME}}, with letters, "
            "digits and underscores in it"
        )
    return _VARIABLE.sub(replace, value)


def _explain(error: ValidationError, document: Document, name: str) -> str:
    """Write one line for each thing that is wrong, with what was written where no secret belongs."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    placed = [(_place(each["loc"], each["type"], document.values), each) for each in found]
    lines = []
    for place, each in placed:
        kinds = {
            _KINDS[other["type"]] for where, other in placed if where == place and other["type"] in _KINDS
        }
        inside = any(where[: len(place)] == place and where != place for where, _ in placed)
        if each["type"] in _KINDS and inside:
            continue  # of a field that may be a text or a mapping: what is wrong inside the mapping says more
        where = document.where(name, place)
        lines.append(f"{where}: {_complaint(place, each, kinds)}{_quoted(place, each, document.values)}")
    return "\n".join(dict.fromkeys(lines))


_KINDS = {
    "string_type": "a text",
    "list_type": "a list",
    "tuple_type": "a list",
    "model_type": "a mapping",
    "dict_type": "a mapping",
}
"""What a value must be that is of another kind altogether."""


def _complaint(place: Place, found: ErrorDetails, kinds: Collection[str]) -> str:
    around, path = _path(place[:-1]), _path(place) or "the job"
    key = found["loc"][-1]
    within = f" in {around}" if around else ""
    if found["type"] == "extra_forbidden":
        return f"the key {key!r} is not known{within}{nearest(str(key), _keys_at(found['loc'][:-1]))}"
    if found["type"] == "missing":
        if isinstance(key, int):
            return f"{around} needs more than {key} value{'s' if key != 1 else ''}"
        return f"the key {key!r} is missing{within}"
    if found["type"] in _KINDS:
        return (
            f"{path} must be {' or '.join(kind for kind in dict.fromkeys(_KINDS.values()) if kind in kinds)}"
        )
    said = _WORDS.get(found["type"]) or found["msg"].removeprefix("Value error, ")
    return f"{path}: {said[0].lower()}{said[1:]}"


_WORDS = {
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
}
"""What is said where Pydantic's words are those of a programmer."""

_QUOTED = frozenset(
    {
        *_WORDS,
        DURATION,
        "greater_than",
        "greater_than_equal",
        "less_than",
        "less_than_equal",
        "literal_error",
    }
)
"""The errors to which what was written is added; others tell it already, or there is nothing to tell."""

_SHOWN = 60
"""Characters of what was written."""


def _quoted(place: Place, found: ErrorDetails, values: Any) -> str:
    """Quote what was written, references unfilled: what a variable holds, and what an endpoint takes, may be secret."""
    if found["type"] not in _QUOTED or place[:1] == ("endpoint",) or place == ("store", "url"):
        return ""
    written: Any = masked(plain(values))
    for step in place:
        written = written[step]
    text = repr(written)
    near = ""
    if found["type"] == "literal_error" and isinstance(written, str):
        close = difflib.get_close_matches(written, re.findall(r"'([^']+)'", found["msg"]), n=1, cutoff=0.6)
        near = f"; did you mean {close[0]!r}?" if close else ""
    return f", and is {text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}{near}"


def _path(place: Place) -> str:
    return ".".join(str(step) for step in place)


def _place(loc: tuple[int | str, ...], kind: str, values: Any) -> Place:
    """Turn Pydantic's location, which also names alternatives of a union, into a place in the document."""
    place: list[str | int] = []
    current: Any = values
    for position, step in enumerate(loc):
        if (isinstance(current, dict) and step in current) or (
            isinstance(current, list) and isinstance(step, int) and step < len(current)
        ):
            current = current[step]  # type: ignore[index] # a list by its number, a mapping by its key
        elif position == len(loc) - 1 and kind == "missing":
            current = None
        else:
            continue
        place.append(step)
    return tuple(place)


def _keys_at(loc: tuple[int | str, ...]) -> list[str]:
    """Give the keys that the models allow at one of Pydantic's locations."""
    model: type[BaseModel] = JobModel
    for step in loc:
        for candidate in _models_of(model, step):
            model = candidate
            break
    return [field.alias or name for name, field in model.model_fields.items()]


def _models_of(model: type[BaseModel], step: int | str) -> list[type[BaseModel]]:
    if isinstance(step, str) and step in model.model_fields:
        return _models_in(model.model_fields[step].annotation)
    return []


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    found: list[type[BaseModel]] = []
    for inner in getattr(annotation, "__args__", ()):
        found.extend(_models_in(inner))
    return found
