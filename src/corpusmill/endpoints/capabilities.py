"""What an endpoint can do, so that what it cannot is refused before the first call."""

from __future__ import annotations

from dataclasses import dataclass

from corpusmill.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an endpoint can do. The defaults are what SambaNova's document offers.

    `n` is the most choices that one request may ask for. `context_tokens` is the size of the context for
    prompt and answer together, None when it is not known. `languages` are ISO codes, None for any.
    `unchecked` names request fields that this server takes in forms which the document does not have: their
    values pass unchecked.
    """

    json_object: bool = True
    json_schema: bool = True
    tools: bool = True
    n: int = 8
    logprobs: bool = True
    context_tokens: int | None = None
    languages: frozenset[str] | None = None
    images: bool = True
    audio: bool = True
    video: bool = True
    unchecked: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse sizes that could not mean anything."""
        if self.n < 1:
            raise UsageError(f"capabilities.n is {self.n}; it must be at least 1")
        if self.context_tokens is not None and self.context_tokens < 1:
            raise UsageError(f"capabilities.context_tokens is {self.context_tokens}; it must be at least 1")
