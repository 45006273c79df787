"""From what an operator was given, its templates filled in, to the job that `enrich` runs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corpusmill.endpoints import Endpoint
    from corpusmill.endpoints.sagemaker import AwsCredentials, SageMakerEndpoint
    from corpusmill.job import Job
    from corpusmill.tables import SourceLike

# A job is checked as a whole. What comes as an object, which no file could hold, is stood in for meanwhile.
_STAND_INS: dict[str, Any] = {
    "source": "object",
    "prompts": [{"ask": {"template": "{object}", "into": "object"}}],
    "endpoint": {"openai_compatible": {"base_url": "http://localhost/v1", "model": "object"}},
}
SOME_REGION = "us-east-1"
"""Stands in for the region that a connection names, where connections are not to be looked at."""

_SHORT_FORMS = {"source": "path", "sink": "path", "store": "url"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A job, and the source, which may be something that no job file can name (a table, a reader)."""

    job: Job
    source: SourceLike


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsAccess:
    """What a connection of type `aws` holds: credentials, and where AWS is. What the job says lies over it."""

    region: str | None = None
    profile: str | None = None
    sagemaker_url: str | None = None
    runtime_url: str | None = None
    s3_url: str | None = None
    credentials: AwsCredentials | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What an operator was given.

    `path` is a job file. `values` lie over it, in the words of a job file, some perhaps as objects of this package;
    `overrides` lie over both. `parameters` fill in `${NAME}`, before the environment does. `endpoint` and `store_url`
    come from connections, and `aws` lies under an endpoint on SageMaker.
    """

    path: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    partition: Mapping[str, str | None] | None = None
    endpoint: Mapping[str, Any] | None = None
    store_url: str | None = None
    aws: AwsAccess | None = None


def assemble(given: Given) -> Assembled:
    """Make the job. Raises `JobError`, naming the key, for what could not be in a job file either."""
    from corpusmill.job.job import build_job
    from corpusmill.job.yaml_text import Document, read_job

    document = Document({}) if given.path is None else read_job(given.path)
    plain, objects = _apart(given.values)
    values = merged(merged(_long(document.values), _long(plain)), _long(given.overrides))
    values = _connected(values, given)
    values.update({key: stand_in for key, stand_in in _STAND_INS.items() if key in objects})
    parameters = {key: _as_text(value) for key, value in given.parameters.items()}
    job = build_job(
        Document(values, document.lines),
        name=given.path or "the task's job",
        environment={**os.environ, **parameters},
    )
    shown = {key: _shown(value) for key, value in objects.items()}
    source: SourceLike = objects.pop("source", job.source)
    if "prompts" in objects:
        objects["prompts"] = tuple(objects["prompts"])
    job = replace(job, **objects, written={**job.written, **shown})
    if given.aws is not None:
        job = replace(job, endpoint=_on_amazon(job.endpoint, given.aws))
    return Assembled(job=job, source=source)


def _connected(values: dict[str, Any], given: Given) -> dict[str, Any]:
    """Lay over what connections hold, and the partition."""
    if given.endpoint is not None:
        values["endpoint"] = dict(given.endpoint)
    if given.aws is not None and given.aws.region and isinstance(values.get("endpoint"), dict):
        values["endpoint"] = _located(values["endpoint"], given.aws.region)
    if given.store_url is not None:
        values = merged(values, {"store": {"url": given.store_url}})
    if given.partition is not None:
        values = merged(values, {"sink": {"partition": dict(given.partition)}})
    return values


def _located(endpoint: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Lay an endpoint on SageMaker over the region of a connection: of what is written, it is wanted at once."""
    found = dict(endpoint)
    for kind in ("sagemaker", "sagemaker_transform"):
        if isinstance(found.get(kind), dict):
            found[kind] = fields = {"region": region, **found[kind]}
            if isinstance(fields.get("real_time"), dict):
                fields["real_time"] = {"region": region, **fields["real_time"]}
    return found


def _on_amazon(endpoint: Endpoint, aws: AwsAccess) -> Endpoint:
    """Hand to an endpoint on SageMaker what a connection holds; raise `UsageError` for any other.

    Profile and addresses are those of the endpoint where it has any; credentials are those of the connection where
    that has any.
    """
    from corpusmill.endpoints.sagemaker import SageMakerEndpoint, SageMakerTransform

    if isinstance(endpoint, SageMakerEndpoint):
        return _in_real_time(endpoint, aws)
    if not isinstance(endpoint, SageMakerTransform):
        raise UsageError(
            f"aws_conn_id is given, and the endpoint is a {type(endpoint).__name__}, which has nothing to do with AWS"
        )
    return replace(
        endpoint,
        profile=endpoint.profile or aws.profile,
        endpoint_url=endpoint.endpoint_url or aws.sagemaker_url,
        s3_endpoint_url=endpoint.s3_endpoint_url or aws.s3_url,
        credentials=aws.credentials or endpoint.credentials,
        real_time=endpoint.real_time and _in_real_time(endpoint.real_time, aws),
    )


def _in_real_time(endpoint: SageMakerEndpoint, aws: AwsAccess) -> SageMakerEndpoint:
    return replace(
        endpoint,
        profile=endpoint.profile or aws.profile,
        endpoint_url=endpoint.endpoint_url or aws.runtime_url,
        credentials=aws.credentials or endpoint.credentials,
    )


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one mapping over another: mappings meet key by key, everything else is replaced."""
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        both = isinstance(value, dict) and isinstance(under, dict)
        result[key] = merged(under, value) if both else value  # type: ignore[arg-type] # told by `both`
    return result


def _long(values: Mapping[str, Any]) -> dict[str, Any]:
    """Write out the keys that may be a mere text, so that something can be laid over one of their fields."""
    return {
        key: {_SHORT_FORMS[key]: value} if key in _SHORT_FORMS and isinstance(value, str) else value
        for key, value in values.items()
    }


def _apart(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part what a job file could hold from objects of this package and of Arrow."""
    plain: dict[str, Any] = {}
    objects: dict[str, Any] = {}
    for key, value in values.items():
        if value is None:
            continue
        told = os.fspath(value) if isinstance(value, os.PathLike) else value
        (plain if _is_plain(told) else objects)[key] = told
    if "prompts" in objects and any(_is_plain(prompt) for prompt in objects["prompts"]):
        raise UsageError("prompts holds mappings beside prompt objects; give all of them in one form")
    return plain, objects


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, str | int | float | bool)


def _shown(value: object) -> object:
    content = getattr(value, "content", None)
    if callable(content):
        return content()
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    if hasattr(value, "path"):
        return value.path
    return repr(value) if hasattr(value, "__dataclass_fields__") else type(value).__name__


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
