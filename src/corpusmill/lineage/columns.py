"""Where each column of an output comes from, worked out from the prompts alone.

Nothing is read and nothing is asked: the same prompts over the same columns have the same lineage, before a run
and after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from corpusmill.fingerprint import canonical, digest
from corpusmill.prompts.columns import named

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from corpusmill.prompts.prompt import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOrigin:
    """Where one column of an output comes from.

    `inputs` are top-level columns of the source. `prompt` is the kind of prompt that made the column (`translate`),
    and `fingerprint` is that of the prompt, hexadecimal; both are None for a column that passes through.
    """

    column: str
    inputs: tuple[str, ...]
    prompt: str | None = None
    fingerprint: str | None = None


def column_lineage(
    kept: Sequence[str], added: Iterable[tuple[Prompt, Sequence[str]]], *, source: Collection[str]
) -> tuple[ColumnOrigin, ...]:
    """Give the origin of each column of an output, in order.

    `kept` are the columns that pass through, `added` the prompts with the names of the columns that each of them
    fills, and `source` the top-level names of the source, by which `a.b` is a column or the field of one.
    """
    origins = [ColumnOrigin(column=name, inputs=(name,)) for name in kept]
    for prompt, columns in added:
        inputs = tuple(dict.fromkeys(top_level(wanted.path, source) for wanted in prompt.inputs))
        origins.extend(
            ColumnOrigin(
                column=name, inputs=inputs, prompt=kind_of(prompt), fingerprint=fingerprint_of(prompt)
            )
            for name in columns
        )
    return tuple(origins)


def top_level(path: str, source: Collection[str]) -> str:
    """Give the top-level column of a dotted path: the longest beginning of it that is the name of one."""
    steps = path.split(".")
    for length in range(len(steps), 0, -1):
        name = named(".".join(steps[:length]), source)
        if name is not None:
            return name
    return steps[0]


def kind_of(prompt: Prompt) -> str:
    """Name the kind of a prompt as a job file does; a kind of a user's own has the name of its class."""
    named = prompt.content().get("prompt")
    return named if isinstance(named, str) else type(prompt).__name__


def fingerprint_of(prompt: Prompt) -> str:
    """Give the digest over everything that makes a prompt what it is, hexadecimal."""
    return digest(canonical(dict(prompt.content()), ordered=True)).hex()
