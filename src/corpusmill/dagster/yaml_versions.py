"""Whether a piece of YAML means the same in YAML 1.1, which Dagster reads, and in 1.2, which job files are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagster_shared.yaml_utils.source_position import SourcePositionTree


_NUMBER = re.compile(r"0o[0-7]+|[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?")
"""Numbers of YAML 1.2; those that are none in 1.1 are texts there."""


def refuse_differences(tree: SourcePositionTree | None, path: Sequence[str | int]) -> None:
    """Raise `JobError` where the value at `path` of a component's file means something else in YAML 1.2.

    `tree` says where things stand in the file; None for a component that was made in Python.
    """
    if tree is None:
        return
    place = tree
    for step in path:
        if step not in place.children:
            return
        place = place.children[step]
    file = Path(place.position.filename)
    if not file.is_file():
        return
    import yaml  # type: ignore[import-untyped] # Dagster brings it

    lines = file.read_text("utf-8").splitlines(keepends=True)
    root = yaml.compose("".join(_document(lines, place.position.start.line)), Loader=yaml.SafeLoader)
    node: Any = root
    for step in path:
        node = _below(node, step)
        if node is None:
            return
    _check(
        node,
        [str(step) for step in path],
        first_line=place.position.start.line - node.start_mark.line,
        file=file,
    )


def _document(lines: list[str], line: int) -> list[str]:
    """Give the lines of the document in which a line (from 1) stands; a file may hold several."""
    begin = end = 0
    for number, text in enumerate(lines, start=1):
        if text.rstrip() == "---" or text.startswith("--- "):
            if number > line:
                break
            begin = number
        end = number
    return lines[begin:end]


def _below(node: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return node.value[step] if isinstance(node.value, list) and step < len(node.value) else None
    return next((value for key, value in node.value if key.value == step), None)


def _check(node: Any, path: list[str], *, first_line: int, file: Path) -> None:
    import yaml

    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _check(key, [*path, str(key.value)], first_line=first_line, file=file)
            _check(value, [*path, str(key.value)], first_line=first_line, file=file)
        return
    if isinstance(node, yaml.SequenceNode):
        for position, value in enumerate(node.value):
            _check(value, [*path, str(position)], first_line=first_line, file=file)
        return
    if node.style is not None or not _differs(node.tag, node.value):
        return
    raise JobError(
        f"{file}:{node.start_mark.line + first_line}: {'.'.join(path)}: {node.value} is a text in a job file, and "
        f"Dagster reads it as something else; write it as '{node.value}'"
    )


def _differs(tag: str, text: str) -> bool:
    kind = tag.rpartition(":")[2]
    if kind == "bool":
        return text.lower() not in {"true", "false"}
    if kind == "int":
        digits = text.lstrip("+-")
        return "_" in text or ":" in text or (digits.startswith("0") and digits != "0")
    if kind == "str":
        return _NUMBER.fullmatch(text) is not None
    return kind == "float" and ("_" in text or ":" in text)
