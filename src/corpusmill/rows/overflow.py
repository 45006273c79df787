"""What to do about rows that do not fit into the model's context, from what the server said of them. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

OVERFLOW = "context_overflow"
"""The kind of such a failure."""

_SIZE = re.compile(
    r"(?:(?:context|sequence|seq|model)[ _-]?(?:length|window|size|limit|len)|n_ctx)(?:[\s:=(]|of|is|limit)*(\d[\d,]*)"
    r"|must be <= (\d[\d,]*)"
    r"|> (\d[\d,]*) maximum"
    r"|tokens allowed \((\d[\d,]*)",
    re.IGNORECASE,
)


def context_size(said: str) -> int | None:
    """Read the size of its context, in tokens, from what a server said of a request that did not fit."""
    found = _SIZE.search(said)
    if found is None:
        return None
    return int(next(filter(None, found.groups())).replace(",", "")) or None


def overflow_warning(errors: Iterable[str], *, stated: int | None) -> str:
    """Say what to do, from the errors of such rows; `stated` is what the endpoint has as `context_tokens`."""
    told = next(filter(None, map(context_size, errors)), None)
    if stated is None:
        number = f"context_tokens: {told}" if told else "context_tokens"
        return (
            f"Requests do not fit into the model's context: state its size under the endpoint, {number}. Answers then "
            "get what a text leaves of it, and what is too long for it is not sent"
        )
    if told and told < stated:
        return (
            f"The model's context holds {told:,} tokens, and the endpoint states context_tokens: {stated}; "
            f"write context_tokens: {told}"
        )
    return (
        f"Texts are too long for the model's context ({stated:,} tokens): shorten them, or ask a model that has a "
        "larger one"
    )
