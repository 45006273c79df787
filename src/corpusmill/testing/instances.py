"""A small deterministic generator of JSON values that fit a JSON schema, with words from the text at hand.

It knows type, properties, required, items, prefixItems, enum, const, anyOf, oneOf, allOf, $ref into the same
document, the bounds of numbers, strings and arrays, and common formats. Patterns it does not know: such
strings may not fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

MOST_DEPTH: Final = 12
"""Optional parts and recursive references are left out below this depth."""

_FORMATS: Final = {
    "date": "2024-02-29",
    "date-time": "2024-02-29T12:34:56Z",
    "time": "12:34:56Z",
    "email": "someone@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "hostname": "example.org",
}


def fit(schema: object, text: str) -> Any:
    """Return a JSON value that fits `schema`; the same schema and text give the same value."""
    return _Generator(schema, text).value(schema, "$", 0)


class _Generator:
    def __init__(self, root: object, text: str) -> None:
        self._root = root
        self._text = text
        self._words = re.findall(r"\w+", text) or ["nothing"]

    def value(self, schema: object, path: str, depth: int) -> Any:
        schema = self._resolved(schema, depth)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][self._number(path) % len(schema["enum"])]
        for alternatives in ("anyOf", "oneOf"):
            if schema.get(alternatives):
                return self._alternative(schema, alternatives, path, depth)
        kind = _type(schema, self._number(path), deep=depth >= MOST_DEPTH)
        if kind == "object":
            return self._object(schema, path, depth)
        if kind == "array":
            return self._array(schema, path, depth)
        if kind == "string":
            return self._string(schema, path)
        if kind in {"integer", "number"}:
            return self._numeric(schema, path, integer=kind == "integer")
        if kind == "boolean":
            return self._number(path) % 2 == 0
        return None

    def _number(self, path: str) -> int:
        return int.from_bytes(sha256(f"{path}\0{self._text}".encode("utf-8", "surrogatepass")).digest()[:6])

    def _resolved(self, schema: object, depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = dict(schema) if isinstance(schema, Mapping) else {}
        for _ in range(MOST_DEPTH):
            reference = merged.pop("$ref", None)
            if reference is None:
                break
            merged = {**_look_up(self._root, reference), **merged}
        for part in merged.pop("allOf", ()):
            addition = self._resolved(part, depth + 1) if depth < 4 * MOST_DEPTH else {}
            properties = {**merged.get("properties", {}), **addition.get("properties", {})}
            required = [*merged.get("required", ()), *addition.get("required", ())]
            merged = {**addition, **merged}
            if properties:
                merged["properties"] = properties
            if required:
                merged["required"] = required
        return merged

    def _alternative(self, schema: dict[str, Any], alternatives: str, path: str, depth: int) -> Any:
        rest = {name: value for name, value in schema.items() if name != alternatives}
        options = [self._resolved(option, depth) for option in schema[alternatives]]
        # Null, where it is allowed, ends what would otherwise go on for ever.
        simple = [
            option
            for option in options
            if option.get("type") not in {"object", "array"} and "anyOf" not in option
        ]
        if depth >= MOST_DEPTH and simple:
            options = [option for option in simple if option.get("type") == "null"] or simple
        return self.value({**rest, **options[self._number(path) % len(options)]}, path, depth + 1)

    def _object(self, schema: dict[str, Any], path: str, depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", ())
        names = [name for name in properties if depth < MOST_DEPTH or name in required]
        names += [name for name in required if name not in properties]
        made = {name: self.value(properties.get(name, {}), f"{path}.{name}", depth + 1) for name in names}
        while len(made) < schema.get("minProperties", 0):
            made[f"more_{len(made)}"] = self._string({}, f"{path}.more")
        return made

    def _array(self, schema: dict[str, Any], path: str, depth: int) -> list[Any]:
        first = [
            self.value(part, f"{path}[{index}]", depth + 1)
            for index, part in enumerate(schema.get("prefixItems", ()))
        ]
        least = schema.get("minItems", 0)
        most = schema.get("maxItems", max(least, 3))
        wanted = min(max(least, len(first) or 1 + self._number(path) % 2), most)
        if depth >= MOST_DEPTH:
            wanted = least
        items = schema.get("items", {})
        unique = schema.get("uniqueItems", False)
        index = len(first)
        attempts = 0
        while len(first) < wanted and attempts < 50 * wanted + 50:
            item = self.value(items, f"{path}[{index + attempts}]", depth + 1)
            attempts += 1
            if not unique or item not in first:
                first.append(item)
        return first[:most]

    def _string(self, schema: dict[str, Any], path: str) -> str:
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        start = self._number(path) % len(self._words)
        made = " ".join(self._words[start : start + 3])
        least = schema.get("minLength", 0)
        while len(made) < least:
            made += " " + self._words[len(made) % len(self._words)]
        return made[: schema.get("maxLength", len(made))]

    def _numeric(self, schema: dict[str, Any], path: str, *, integer: bool) -> int | float:
        low, high = schema.get("minimum"), schema.get("maximum")
        step: int | float = schema.get("multipleOf", 1 if integer else 0.25)
        above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
        if isinstance(above, int | float) and not isinstance(above, bool):
            low = above if low is None else max(low, above)
        if isinstance(below, int | float) and not isinstance(below, bool):
            high = below if high is None else min(high, below)
        if low is None:
            low = 0 if high is None or high >= 0 else high - 100 * step
        if high is None:
            high = low + 100 * step
        first = math.ceil(low / step) + (
            1 if above is not None and math.ceil(low / step) * step <= above else 0
        )
        last = math.floor(high / step) - (
            1 if below is not None and math.floor(high / step) * step >= below else 0
        )
        if last < first:
            return int(low) if integer else (low + high) / 2
        number = (first + self._number(path) % (last - first + 1)) * step
        return int(number) if integer else number


def _type(schema: Mapping[str, Any], number: int, *, deep: bool) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        return "null" if deep and "null" in kind else str(kind[number % len(kind)])
    if isinstance(kind, str):
        return kind
    if "properties" in schema or "required" in schema:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    if {"minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"} & schema.keys():
        return "number"
    return "string"


def _look_up(root: object, reference: str) -> dict[str, Any]:
    """Follow a reference such as `#/$defs/Person`; one that leads nowhere allows everything."""
    found = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        if not step:
            continue
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}
