"""Telling an endpoint that is not what the user thinks: it answers each request in the same useless way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.errors import BrokenEndpointError
from corpusmill.quoting import texts_in, unquoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corpusmill.exchange import Message
    from corpusmill.rows.judge import Answer

FIRST_ALIKE = 20
"""When the first so many distinct requests all fail in one way, the endpoint is not what the user thinks."""

MANY_ALIKE = 100
"""And so many in a row, later on."""

# These are faults of a row's own text, so that many of them in a row say nothing about the endpoint.
_OF_THE_ROW = frozenset(
    {"transform_failed", "context_overflow", "larger_than_limit", "content_filter", "unsendable"}
)

_SAID = {
    "truncated": "cut at a ceiling of tokens that this job does not state; state one with max_tokens, or shorten "
    "what is asked for",
    "empty_answer": "an empty answer to a text that is not blank",
}


class Alike:
    """Counts how many requests in a row came to the same failure."""

    def __init__(self, *, url: str, model: str) -> None:
        """Name who is asked, for the error."""
        self._url = url
        self._model = model
        self._kind: str | None = None
        self._count = 0
        self._succeeded = False

    def hear(self, answer: Answer, *, ceiling: int | None, hits: int, messages: Sequence[Message]) -> None:
        """Count what a request under this ceiling came to; raise `BrokenEndpointError` when it is once too often.

        `hits` are the answers that the run has found in the store so far, `messages` what was asked: the error does not
        quote them.
        """
        kind = answer.kind
        # An answer that the user's own cap has cut is what was asked for.
        capped = kind == "truncated" and ceiling is not None and not _climbed(answer)
        if kind is None or kind in _OF_THE_ROW or capped:
            self._succeeded = self._succeeded or kind is None
            self._kind, self._count = None, 0
            return
        self._count = self._count + 1 if kind == self._kind else 1
        self._kind = kind
        if self._count >= self._too_many(hits):
            said = answer.error and unquoted(answer.error, texts_in(messages))
            reason = said or _SAID.get(kind) or kind.replace("_", " ")
            raise BrokenEndpointError(
                f"{self._count} requests in a row failed in the same way: {reason}. The run asks {self._url} for the "
                f"model {self._model!r}; look at the URL, the model and the parameters. What was answered is kept"
            )

    def _too_many(self, hits: int) -> int:
        if hits:
            # What failed last time is all that a run asks that goes on, and it may well fail alike again.
            return max(MANY_ALIKE, hits)
        return MANY_ALIKE if self._succeeded else FIRST_ALIKE


def _climbed(answer: Answer) -> bool:
    return any(note.startswith("ceiling_raised") for note in answer.notes)
