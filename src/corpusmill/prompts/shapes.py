"""What a JSON schema becomes in Arrow, and how a JSON value becomes a value of that type, exactly.

| schema | Arrow |
|---|---|
| `object` with `properties` | struct |
| `array` with one schema for `items` | list |
| `string`, an enumeration of strings | string |
| `integer` | int64; decimal128(38, 0) where `maximum` or `minimum` lies outside of 64 bits |
| `number` | float64 |
| a Pydantic `Decimal`, `format: decimal` | decimal128(38, 18), or the scale of `multipleOf` |
| `boolean` | bool |
| anything else: several types, none, an object without properties, a recursive schema | JSON text |

Every type is nullable, whether or not the schema says so: a row without an answer is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["struct", "list", "text", "integer", "number", "decimal", "boolean", "json"]

DIGITS: Final = 38
DEFAULT_SCALE: Final = 18
_INT64: Final = 2**63

_encode = msgspec.json.Encoder(decimal_format="number").encode


class DoesNotFitError(ValueError):
    """A value that is valid JSON for its schema and cannot be held exactly; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A node of a typed value: its kind, and the shapes of what it contains, by name in a struct."""

    kind: Kind
    members: tuple[tuple[str, Shape], ...] = ()
    scale: int = 0

    def arrow(self) -> pa.DataType:
        """Return the Arrow type."""
        import pyarrow as pa

        match self.kind:
            case "struct":
                return pa.struct([pa.field(name, shape.arrow()) for name, shape in self.members])
            case "list":
                return pa.list_(self.members[0][1].arrow())
            case "integer":
                return pa.int64()
            case "number":
                return pa.float64()
            case "decimal":
                return pa.decimal128(DIGITS, self.scale)
            case "boolean":
                return pa.bool_()
            case "text" | "json":
                return pa.string()

    def value(self, parsed: Any, path: str = "$") -> Any:  # noqa: C901 - one case a kind
        """Convert a parsed JSON value, whose fractions are `Decimal`. Raises `DoesNotFitError`."""
        if self.kind == "json":
            return None if parsed is None else _encode(parsed).decode()
        if parsed is None:
            return None
        match self.kind:
            case "struct" if isinstance(parsed, dict):
                return {name: shape.value(parsed.get(name), f"{path}.{name}") for name, shape in self.members}
            case "list" if isinstance(parsed, list):
                item = self.members[0][1]
                return [item.value(element, f"{path}[{place}]") for place, element in enumerate(parsed)]
            case "text" if isinstance(parsed, str):
                return parsed
            case "boolean" if isinstance(parsed, bool):
                return parsed
            case "integer" if isinstance(parsed, int) and not isinstance(parsed, bool):
                if -_INT64 <= parsed < _INT64:
                    return parsed
                raise DoesNotFitError(f"at {path}: {parsed} needs more than 64 bits")
            case "number" if isinstance(parsed, int | Decimal) and not isinstance(parsed, bool):
                return _float(parsed, path)
            case "decimal" if isinstance(parsed, str | int | Decimal) and not isinstance(parsed, bool):
                return _decimal(parsed, self.scale, path)
        raise DoesNotFitError(f"at {path}: {parsed!r} is no {self.kind}")


def shape_of(schema: Mapping[str, Any]) -> Shape:
    """Return the shape of the values that a JSON schema describes."""
    return _shape(schema, schema, ("#",))


def _shape(schema: Any, root: Mapping[str, Any], seen: tuple[str, ...]) -> Shape:  # noqa: C901 - a table
    if not isinstance(schema, Mapping):
        return Shape("json")
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target = resolve(reference, root)
        if reference in seen or target is None:
            return Shape("json")
        return _shape(target, root, (*seen, reference))
    choices = [name for name in ("anyOf", "oneOf", "allOf") if name in schema]
    if choices:
        return _of_choices(schema[choices[0]], root, seen)
    match _type(schema):
        case "object":
            return _struct(schema, root, seen)
        case "array":
            return _list(schema, root, seen)
        case "string":
            return _decimal_or(schema, Shape("text"))
        case "number":
            return _decimal_or(schema, Shape("number"))
        case "integer":
            return _integer(schema)
        case "boolean":
            return Shape("boolean")
        case _:
            return Shape("json")


def _type(schema: Mapping[str, Any]) -> str | None:
    """Return the one type that a value may have besides null; None where there is not exactly one."""
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    stated = schema.get("type", _types_of(listed) if isinstance(listed, list) else [])
    kinds = set([stated] if isinstance(stated, str) else stated) - {"null"}
    if kinds == {"integer", "number"}:
        return "number"
    return kinds.pop() if len(kinds) == 1 else None


def _integer(schema: Mapping[str, Any]) -> Shape:
    bounds = [schema[name] for name in ("maximum", "minimum") if isinstance(schema.get(name), int)]
    large = any(not -_INT64 <= bound < _INT64 for bound in bounds)
    return Shape("decimal", scale=0) if large else Shape("integer")


def _decimal_or(schema: Mapping[str, Any], otherwise: Shape) -> Shape:
    return Shape("decimal", scale=_scale(schema)) if schema.get("format") == "decimal" else otherwise


def _list(schema: Mapping[str, Any], root: Mapping[str, Any], seen: tuple[str, ...]) -> Shape:
    items = schema.get("items")
    if "prefixItems" in schema or not isinstance(items, Mapping):
        return Shape("json")
    return Shape("list", (("item", _shape(items, root, seen)),))


def _struct(schema: Mapping[str, Any], root: Mapping[str, Any], seen: tuple[str, ...]) -> Shape:
    properties = schema.get("properties")
    if (
        not isinstance(properties, Mapping)
        or not properties
        or isinstance(schema.get("additionalProperties"), Mapping)
    ):
        return Shape("json")
    return Shape("struct", tuple((name, _shape(inner, root, seen)) for name, inner in properties.items()))


def _of_choices(choices: Any, root: Mapping[str, Any], seen: tuple[str, ...]) -> Shape:
    if not isinstance(choices, Sequence):
        return Shape("json")
    real = [one for one in choices if not (isinstance(one, Mapping) and one.get("type") == "null")]
    shapes = {_shape(one, root, seen) for one in real}
    return shapes.pop() if len(shapes) == 1 else Shape("json")


def resolve(reference: str, root: Mapping[str, Any]) -> Any:
    """Return what a reference within the same schema points at, None where it points nowhere or elsewhere."""
    if not reference.startswith("#"):
        return None
    node: Any = root
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and name in node:
            node = node[name]
        elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node


def _types_of(values: Sequence[Any]) -> list[str]:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    return sorted({names.get(type(value), "object") for value in values})


def _scale(schema: Mapping[str, Any]) -> int:
    step = schema.get("multipleOf")
    if isinstance(step, int | float) and not isinstance(step, bool) and step > 0:
        exponent = Decimal(repr(step)).normalize().as_tuple().exponent
        return min(max(-int(exponent), 0), DIGITS) if isinstance(exponent, int) else DEFAULT_SCALE
    return DEFAULT_SCALE


def _float(parsed: int | Decimal, path: str) -> float:
    try:
        number = float(parsed)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise DoesNotFitError(f"at {path}: the number is too large for 64 bits")
    return number


def _decimal(parsed: str | int | Decimal, scale: int, path: str) -> Decimal:
    try:
        number = Decimal(parsed.strip() if isinstance(parsed, str) else parsed)
    except InvalidOperation:
        raise DoesNotFitError(f"at {path}: {parsed!r} is no decimal number") from None
    if not number.is_finite():
        raise DoesNotFitError(f"at {path}: {parsed!r} is no finite number")
    _, digits, exponent = number.normalize().as_tuple()
    places = -int(exponent)
    if number and (places > scale or len(digits) - places > DIGITS - scale):
        raise DoesNotFitError(f"at {path}: {parsed} does not fit decimal128({DIGITS}, {scale}) exactly")
    return number
