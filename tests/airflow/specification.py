"""What OpenLineage asks of an event, as far as it is at hand.

The classes of `openlineage-python` are generated from the schemas of the specification and are always there: an event
must load into them, with every required field, no unknown one, the very types, and the version of each facet that
they stand for. No package carries the schemas themselves; where `OPENLINEAGE_SPEC` names the folder `spec` of the
specification's repository, events are validated against those too.
"""

from __future__ import annotations

import enum
import importlib
import json
import os
import pkgutil
import types
import typing
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import attr
import jsonschema
import openlineage.client.generated
from openlineage.client.generated import base
from referencing import Registry, Resource

SPEC = "OPENLINEAGE_SPEC"

# Every client may send custom facets under the URL of their kind; what else they hold is their own.
KINDS = (
    base.RunFacet,
    base.JobFacet,
    base.DatasetFacet,
    base.InputDatasetFacet,
    base.OutputDatasetFacet,
)

SENT = frozenset({"producer", "schemaURL", "_producer", "_schemaURL"})
"""What the classes fill in by themselves, so that it must be in what was sent."""


class NotAnEventError(ValueError):
    """The event breaks the specification; the text says where."""


def check(event: dict[str, Any]) -> None:
    """Raise `NotAnEventError` for a run event that does not fit."""
    _load(base.RunEvent, event, "event")
    folder = os.environ.get(SPEC)
    if folder:
        _validate(event, Path(folder))


# by the generated classes


@cache
def _fields(made: type) -> dict[str, tuple[Any, bool]]:
    """Give the type of each field of a class, and whether it is required."""
    namespace = {**vars(typing), **vars(importlib.import_module(made.__module__))}
    attr.resolve_types(made, namespace)
    return {
        field.name: (field.type, field.name in SENT or (field.init and field.default is attr.NOTHING))
        for field in attr.fields(made)
    }


@cache
def _facets() -> dict[str, type]:
    """Give the class of each facet by the URL of its schema."""
    package = openlineage.client.generated
    found: dict[str, type] = {}
    for module in pkgutil.iter_modules(package.__path__):
        for made in vars(importlib.import_module(f"{package.__name__}.{module.name}")).values():
            if isinstance(made, type) and issubclass(made, base.BaseFacet):
                found[made._get_schema()] = made
    return found


def _load(made: type, value: object, where: str) -> None:
    """Hold an object against a generated class."""
    if not isinstance(value, dict):
        raise NotAnEventError(f"{where} is no object: {value!r}")
    fields = _fields(made)
    for name, (kind, required) in fields.items():
        if name in value:
            _hold(kind, value[name], f"{where}.{name}")
        elif required:
            raise NotAnEventError(f"{where}.{name} is missing")
    unknown = sorted(value.keys() - fields.keys())
    if unknown and made not in KINDS:
        raise NotAnEventError(f"{where} has the unknown fields {unknown}")
    if issubclass(made, base.BaseEvent) and value["schemaURL"] != made._get_schema():
        raise NotAnEventError(f"{where}.schemaURL is {value['schemaURL']}")
    _check_formats(made, value, where)


def _check_formats(made: type, value: dict[str, Any], where: str) -> None:
    """Let a class check what it checks when one is made: times and UUIDs. URLs it lets pass whatever they are."""
    for name in SENT & value.keys():
        if not _is_uri(value[name]):
            raise NotAnEventError(f"{where}.{name} is no URI: {value[name]}")
    for field in attr.fields(made):
        if field.validator is not None and field.name in value:
            try:
                field.validator(made, field, value[field.name])
            except ValueError as error:
                raise NotAnEventError(f"{where}.{field.name}: {error}") from error


def _hold(kind: Any, value: object, where: str) -> None:
    """Hold a value against the type of a field."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        (kind,) = [one for one in inside if one is not type(None)]
        _hold(kind, value, where)
    elif origin in (list, dict):
        if not isinstance(value, origin):
            raise NotAnEventError(f"{where} is no {origin.__name__}: {value!r}")
        items = value.items() if isinstance(value, dict) else enumerate(typing.cast("list[Any]", value))
        for name, item in items:
            _hold(inside[-1], item, f"{where}.{name}")
    elif kind is not Any:
        _hold_one(kind, value, where)


def _hold_one(kind: type, value: object, where: str) -> None:
    if issubclass(kind, base.BaseFacet):
        _load(_facet(kind, value, where), value, where)
    elif attr.has(kind):
        _load(kind, value, where)
    elif issubclass(kind, enum.Enum):
        if value not in {one.value for one in kind}:
            raise NotAnEventError(f"{where} is {value!r}, which is no {kind.__name__}")
    elif type(value) is not kind and (kind, type(value)) != (float, int):
        raise NotAnEventError(f"{where} is no {kind.__name__}: {value!r}")


def _facet(kind: type, value: object, where: str) -> type:
    """Find the class of a facet by its URL; it must be of the kind that belongs where it is."""
    url = value.get("_schemaURL") if isinstance(value, dict) else None
    made = _facets().get(str(url))
    if made is None or not issubclass(made, kind):
        raise NotAnEventError(f"{where}._schemaURL is {url!r}, which is no {kind.__name__} of this client")
    return made


# by the schemas


@cache
def _registry(folder: Path) -> Registry[Any]:
    """Find every schema by its name, whatever version refers to it: a folder holds one version of each."""

    def retrieve(uri: str) -> Resource[Any]:
        name = PurePosixPath(urlsplit(uri).path).name
        path = folder / name if name == "OpenLineage.json" else folder / "facets" / name
        return Resource.from_contents(json.loads(path.read_text("utf-8")))

    return Registry(retrieve=retrieve)  # type: ignore[call-arg] # attrs takes it under this name


def _validate(event: dict[str, Any], folder: Path) -> None:
    """Validate an event, then each of its facets against the schema that it names."""
    against = _Against(folder)
    against.schema(event["schemaURL"], event, "event")
    run, job = event["run"], event["job"]
    against.facets(run.get("facets", {}), "run")
    against.facets(job.get("facets", {}), "job")
    for dataset in (*event.get("inputs", ()), *event.get("outputs", ())):
        for place in ("facets", "inputFacets", "outputFacets"):
            against.facets(dataset.get(place, {}), place)


class _Against:
    def __init__(self, folder: Path) -> None:
        self._registry = _registry(folder)
        self._formats = jsonschema.FormatChecker()
        self._formats.checks("uri")(_is_uri)

    def schema(self, url: str, value: object, where: str) -> None:
        validator = jsonschema.Draft202012Validator(
            {"$ref": url}, registry=self._registry, format_checker=self._formats
        )
        for error in validator.iter_errors(value):
            raise NotAnEventError(f"{where}, {error.json_path}: {error.message}")

    def facets(self, facets: dict[str, Any], where: str) -> None:
        for key, facet in facets.items():
            url = facet["_schemaURL"]
            self.schema(url, facet, f"{where}.{key}")
            document = urlsplit(url)._replace(fragment="").geturl()
            known = (
                self._registry.get_or_retrieve(document).value.contents["properties"]
                if "/facets/" in url
                else {key}
            )
            if key not in known:
                raise NotAnEventError(f"{where}.{key} is no name of {url}")


def _is_uri(value: object) -> bool:
    return not isinstance(value, str) or bool(urlsplit(value).scheme)
