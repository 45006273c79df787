"""YAML 1.2 into plain values that remember their lines.

What looks like a date, a time or a word stays text: only `true`, `false`, `null` and plain numbers are anything
else. Duplicate keys are an error. A file means the same here and to Dagster's loader where it is written in that
subset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq, TaggedScalar
from ruamel.yaml.constructor import RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.scalarbool import ScalarBoolean

from corpusmill.errors import JobError

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a YAML text, and the line (from 1) on which each key or item stands."""

    values: Any
    lines: dict[Place, int] = field(default_factory=dict)

    def line(self, place: Place) -> int | None:
        """Give the line of a place, or of the nearest thing around it."""
        while place:
            if place in self.lines:
                return self.lines[place]
            place = place[:-1]
        return None


class WrittenInt(int):
    """A whole number that remembers how it was written, for fields that take text (`0123`)."""

    text: str


class WrittenFloat(float):
    """A number that remembers how it was written."""

    text: str


class _Constructor(RoundTripConstructor):
    """Dates stay text, numbers keep their text."""

    def construct_text(self, node: Any) -> str:
        return str(node.value)

    def construct_int(self, node: Any) -> Any:
        if "_" in node.value:
            return str(node.value)
        made = WrittenInt(int(super().construct_yaml_int(node)))
        made.text = node.value
        return made

    def construct_float(self, node: Any) -> Any:
        if "_" in node.value:
            return str(node.value)
        made = WrittenFloat(float(super().construct_yaml_float(node)))
        made.text = node.value
        return made


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", _Constructor.construct_text)
_Constructor.add_constructor("tag:yaml.org,2002:int", _Constructor.construct_int)
_Constructor.add_constructor("tag:yaml.org,2002:float", _Constructor.construct_float)


def plain(value: Any) -> Any:
    """Give values without the memory of how their numbers were written, as JSON encoders want them."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, WrittenInt):
        return int(value)
    if isinstance(value, WrittenFloat):
        return float(value)
    return value


def read_yaml(text: str, name: str) -> Document:
    """Parse one YAML document (JSON is YAML too); raise `JobError` naming `name` and the line."""
    loader = YAML(typ="rt", pure=True)
    loader.Constructor = _Constructor
    try:
        tree = loader.load(StringIO(text.removeprefix("\ufeff")))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise JobError(f"{where}: {(error.problem or 'not YAML').splitlines()[0]}") from None
    except YAMLError as error:
        raise JobError(f"{name}: not YAML: {str(error).splitlines()[0]}") from None
    lines: dict[Place, int] = {}
    return Document(_plain(tree, (), lines, name), lines)


def _plain(value: Any, place: Place, lines: dict[Place, int], name: str) -> Any:
    if isinstance(value, CommentedMap):
        made = {}
        for key, item in value.items():
            text = key.text if isinstance(key, WrittenInt | WrittenFloat) else str(key)
            lines[(*place, text)] = value.lc.data[key][0] + 1 if key in value.lc.data else 0
            made[text] = _plain(item, (*place, text), lines, name)
        return made
    if isinstance(value, CommentedSeq):
        for index in range(len(value)):
            lines[(*place, index)] = value.lc.data[index][0] + 1 if index in (value.lc.data or {}) else 0
        return [_plain(item, (*place, index), lines, name) for index, item in enumerate(value)]
    if isinstance(value, TaggedScalar):
        line = Document(None, lines).line(place)
        raise JobError(
            f"{name}:{line}: the tag {value.tag.value!r} means nothing here; write the plain value"
        )
    if isinstance(value, WrittenInt | WrittenFloat) or value is None:
        return value
    if isinstance(value, ScalarBoolean | bool):
        return bool(value)
    return str(value)
