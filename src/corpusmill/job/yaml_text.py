"""YAML 1.2 into plain values that remember their lines.

What looks like a date, a time or a word stays text: only `true`, `false`, `null` and plain numbers are anything
else. Duplicate keys are an error. A file means the same here and to Dagster's loader where it is written in that
subset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError, RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    ScalarEvent,
)
from ruamel.yaml.scalarbool import ScalarBoolean

from corpusmill.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterable

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

    def where(self, name: str, place: Place) -> str:
        """Give the name of the document, with the line of a place as `line` has it, for the beginning of an error."""
        line = self.line(place)
        return f"{name}:{line}" if line else name


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
    text = text.removeprefix("\ufeff")
    try:
        _check_events(YAML(typ="rt", pure=True).parse(StringIO(text)), name)
        tree = loader.load(StringIO(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise JobError(f"{where}: {_problem(error)}") from None
    except YAMLError as error:
        raise JobError(f"{name}: not YAML: {str(error).splitlines()[0]}") from None
    except ValueError as error:
        raise JobError(f"{name}: a number cannot be read ({error})") from None
    except RecursionError:
        raise JobError(f"{name}: lists and mappings are nested too deeply to be read") from None
    lines: dict[Place, int] = {}
    try:
        return Document(_plain(tree, (), lines), lines)
    except _BombError:
        raise JobError(
            f"{name}: comes to more than {MOST_ITEMS:,} items once its anchors (&, *) are followed"
        ) from None


def read_job(path: str | Path) -> Document:
    """Read a job file (UTF-8) as it is written; raise `JobError` where it cannot be read or is no mapping."""
    name = str(path)
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise JobError(f"{name}: the job file cannot be read ({reason})") from None
    return job_document(text, name)


def job_document(text: str, name: str) -> Document:
    """Parse the text of a job file; raise `JobError` where it is no mapping."""
    document = read_yaml(text, name)
    if not isinstance(document.values, dict):
        raise JobError(f"{name}: a job is a mapping with the keys source, sink, prompts and endpoint")
    return document


def _problem(error: MarkedYAMLError) -> str:
    """Say what is wrong, without values, which may be secrets."""
    problem = (error.problem or "not YAML").splitlines()[0]
    if isinstance(error, DuplicateKeyError):
        return f"the key {problem.split(chr(34))[1]!r} stands twice"
    return f"{error.context} {problem}" if problem.startswith("but ") and error.context else problem


def _check_events(events: Iterable[Any], name: str) -> None:
    """Refuse what would change how the rest is read: tags, another version of YAML, what contains itself."""
    open_anchors: list[str | None] = []
    for event in events:
        where = f"{name}:{event.start_mark.line + 1}"
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise JobError(f"{where}: the tag {str(tag)!r} means nothing here; write the plain value")
        if isinstance(event, ScalarEvent) and _joined(event.value) is None:
            raise JobError(f"{where}: half of a surrogate pair, which is no character")
        if isinstance(event, DocumentStartEvent) and event.version not in (None, (1, 2)):
            raise JobError(f"{where}: a job file is YAML 1.2; leave the %YAML line out")
        if isinstance(event, CollectionStartEvent):
            open_anchors.append(event.anchor)
        elif isinstance(event, CollectionEndEvent):
            open_anchors.pop()
        elif isinstance(event, AliasEvent) and event.anchor in open_anchors:
            raise JobError(f"{where}: what is called {event.anchor!r} contains itself")


def _joined(text: str) -> str | None:
    """Join the halves of characters that JSON has escaped as pairs; None where one half is missing."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return None


def _key(key: Any) -> str:
    """Give a key as it was written."""
    if isinstance(key, WrittenInt | WrittenFloat):
        return key.text
    if key is None or isinstance(key, ScalarBoolean | bool):
        return "null" if key is None else str(bool(key)).lower()
    return _joined(str(key)) or ""


MOST_ITEMS = 200_000
"""Keys and items that a job file may come to, its anchors followed: more is a bomb, not a job."""


class _BombError(Exception):
    pass


def _plain(value: Any, place: Place, lines: dict[Place, int]) -> Any:
    if len(lines) > MOST_ITEMS:
        raise _BombError
    if isinstance(value, CommentedMap):
        made = {}
        for key, item in value.items():
            text = _key(key)
            if key in (value.lc.data or {}):  # a key that was merged in has no line here
                lines[(*place, text)] = value.lc.data[key][0] + 1
            made[text] = _plain(item, (*place, text), lines)
        return made
    if isinstance(value, CommentedSeq):
        for index in range(len(value)):
            if index in (value.lc.data or {}):
                lines[(*place, index)] = value.lc.data[index][0] + 1
        return [_plain(item, (*place, index), lines) for index, item in enumerate(value)]
    if isinstance(value, WrittenInt | WrittenFloat) or value is None:
        return value
    if isinstance(value, ScalarBoolean | bool):
        return bool(value)
    return _joined(str(value)) or ""
