"""A prompt that a server cut without a word, told from the tokens that it says it has read. Pure.

Some servers keep only as much of a long prompt as their context holds, and answer what is left of it as if that were
all. Then `usage.prompt_tokens` is far below what the text must come to.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from corpusmill.rows.render import characters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from corpusmill.rows.render import Asked

PROMPT_CUT = "prompt_cut"
"""The note on a row of whose prompt the server has read only a part, going by its count of tokens."""

LONG_ENOUGH = 2_000
"""Characters from which on a text is looked at: what is shorter fits into any context."""

MOST_PER_TOKEN = 12
"""Characters that a token stands for at most. Prose gives two to six in any script and with any tokenizer, source code
no more than eight; only runs of one sign (rulers, blanks) come to more, and they are counted once."""

_RUN = re.compile(r"(.)\1+", re.DOTALL)


def long_rows(asked: Asked) -> frozenset[int]:
    """Name the rows that have so much to say that a context may not hold it: few, as a rule."""
    return frozenset(
        row
        for row, values in enumerate(asked.values)
        for value in values
        if value is not None and (type(value) is not str or len(value) >= LONG_ENOUGH)
    )


def is_prompt_cut(asked: Asked, row: int, prompt_tokens: int | None) -> bool:
    """Tell whether the server has counted far fewer tokens than the characters of a row's request must give.

    Without a count nothing is known.
    """
    if prompt_tokens is None:
        return False
    messages = asked.rendered(row).messages
    least = max(LONG_ENOUGH, MOST_PER_TOKEN * prompt_tokens)
    return characters(messages) >= least and characters(_without_runs(messages)) >= least


def _without_runs(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [{"content": _shortened(message.get("content"))} for message in messages]


def _shortened(content: Any) -> Any:
    if isinstance(content, str):
        return _RUN.sub(r"\1", content)
    if isinstance(content, list):
        return [
            {"text": _shortened(part.get("text"))} if isinstance(part, dict) else part for part in content
        ]
    return content


def prompt_cut_warning(rows: int) -> str:
    """Say once what the note on so many rows means."""
    counted = f"{rows:,} rows: the server" if rows != 1 else "1 row: the server"
    return (
        f"{counted} counted far fewer tokens than were sent, so it has probably read only a part of the text. "
        f"The rows have the note {PROMPT_CUT}; check the context length that the server was started with"
    )
