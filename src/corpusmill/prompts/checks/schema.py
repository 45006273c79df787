"""Validation against a JSON schema. Nothing is fetched: a schema that points outside of itself is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsonschema.exceptions import SchemaError as Invalid
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

_SHOWN: Final = 300
_TYPES: Final = ("string", "number", "integer", "boolean", "array", "object", "null")


class SchemaError(ValueError):
    """A schema that no answer can be checked against; the text says what is wrong with it."""


def checked_schema(schema: object) -> dict[str, Any]:
    """Return a plain copy of a schema. Raises `SchemaError` where it is none, or points outside of itself."""
    from jsonschema.exceptions import SchemaError as Invalid
    from jsonschema.validators import Draft202012Validator, validator_for

    if not isinstance(schema, Mapping):
        raise SchemaError(f"is {schema!r}; it must be a JSON schema, the path of one, or a Pydantic model")
    try:
        plain: dict[str, Any] = json.loads(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SchemaError(f"is no JSON: {error}") from error
    try:
        validator_for(plain, default=Draft202012Validator).check_schema(plain)
    except Invalid as error:
        place = "/".join(map(str, error.absolute_path)) or "its top"
        raise SchemaError(f"is no valid JSON schema, at {place}: {_wrong(error)}") from error
    for key, value in _members(plain):
        if key in {"$ref", "$dynamicRef"} and isinstance(value, str) and not value.startswith("#"):
            raise SchemaError(f"refers to {value!r}; references outside of the schema are not followed")
        if key == "pattern" and isinstance(value, str):
            try:
                re.compile(value)
            except re.error as error:
                raise SchemaError(f"has the pattern {value!r}, which cannot be used: {error}") from error
    return plain


def _wrong(error: Invalid) -> str:
    """Say what is wrong with a schema; of a type, which types there are."""
    if error.validator == "anyOf" and error.absolute_path and error.absolute_path[-1] == "type":
        several = " (or a list of them)" if isinstance(error.instance, list) else ""
        close = get_close_matches(str(error.instance), _TYPES, n=1)
        near = f"; did you mean {close[0]!r}?" if close and not several else ""
        return f"{error.instance!r} is no type; known are {', '.join(_TYPES)}{several}{near}"
    if isinstance(error.instance, str) and error.instance in _TYPES and error.validator == "type":
        return f'{error.instance!r} is no schema; write {{"type": "{error.instance}"}}'
    return error.message[:_SHOWN]


def violation(schema: str, parsed: Any) -> str | None:
    """Return the first violation of a schema (JSON text) and where it is; None if the answer is valid."""
    for error in _validator(schema).iter_errors(parsed):
        return f"at {error.json_path}: {error.message[:_SHOWN]}"
    return None


@lru_cache(maxsize=64)
def _validator(schema: str) -> Validator:
    from jsonschema.validators import Draft202012Validator, extend, validator_for
    from referencing import Registry

    parsed = json.loads(schema)
    exact = extend(  # type: ignore[no-untyped-call]
        validator_for(parsed, default=Draft202012Validator), {"multipleOf": _multiple_of}
    )
    # An empty registry: without it a reference to an address would be fetched.
    return cast("Validator", exact(parsed, registry=Registry()))


def _multiple_of(_: object, step: float, number: object, __: object) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    # Exactly: as floats, 0.3 is no multiple of 0.1.
    if isinstance(number, int | Decimal) and not isinstance(number, bool):
        try:
            whole = Decimal(number) % Decimal(repr(step)) == 0
        except InvalidOperation:
            whole = False
        if not whole:
            yield ValidationError(f"{number} is not a multiple of {step}")


def _members(node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield key, value
            yield from _members(value)
    elif isinstance(node, list):
        for item in node:
            yield from _members(item)
