"""Whether what a component says of its job has the form of a job file: the same check, and the same message.

It is held against that form whatever the environment holds: a key that no job file knows is wrong with and without the
variables that others need.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from corpusmill.dagster.blueprint import Lenient

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dagster_shared.yaml_utils.source_position import SourcePositionTree

    from corpusmill.job.yaml_text import Place


def refuse_wrong_form(
    values: Mapping[str, Any], tree: SourcePositionTree | None, path: Sequence[str | int]
) -> None:
    """Raise `JobError`, naming file, line, key and nearest key, where the keys of a job are not those of a job file.

    `tree` says where things stand in the component's file and `path` where in it the job's keys do; None for a
    component that was made in Python.
    """
    from corpusmill.job.job import JobModel, build_job
    from corpusmill.job.yaml_text import Document

    try:
        JobModel.model_validate(values)
    except ValidationError:
        for step in path:
            tree = tree.children.get(step) if tree is not None else None
        lines = dict(_lines(tree, ())) if tree is not None else {}
        name = tree.position.filename if tree is not None else "job"
        # It reads them in the same way, with the variables that are set, and says what is wrong in a job's words.
        build_job(Document(dict(values), lines), name=name, environment=Lenient(os.environ))


def _lines(tree: SourcePositionTree, place: Place) -> Iterator[tuple[Place, int]]:
    for step, below in tree.children.items():
        yield (*place, step), below.position.start.line
        yield from _lines(below, (*place, step))
