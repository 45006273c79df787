"""What may go wrong, and how often: kinds of fault, their shares, and who draws which.

Which fault a request meets depends on the seed, the request's digest and the number of the attempt, and on
nothing else: neither the order of arrival nor the clock changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from corpusmill.testing.digests import draw

KINDS: Final[Mapping[str, str]] = {
    "400": "400, JSON: an invalid request",
    "401": "401, JSON: the key is wrong",
    "402": "402, JSON: no credit",
    "403": "403, JSON: the key may not do this",
    "404_model": "404, JSON: no such model",
    "408": "408, JSON: request time-out",
    "410": "410, JSON: the model is withdrawn",
    "429": "429, JSON, with Retry-After",
    "429_bare": "429, JSON, without Retry-After",
    "429_queue_full": "429, JSON, code queue_full, without Retry-After",
    "quota": "429, JSON, code insufficient_quota: a used-up quota",
    "overflow": "400, JSON, code context_length_exceeded",
    "500": "500, plain text",
    "500_model_output": "500, JSON: the model's own output could not be parsed, and is shown",
    "502": "502, an HTML page",
    "503": "503, plain text",
    "504": "504, plain text",
    "reset": "the connection is reset before any byte of the answer",
    "stall": "nothing comes until the client gives up, or the connection is closed after `stall_seconds`",
    "200_error": "200 with an error as its body",
    "200_html": "200 with an HTML page as its body",
    "empty_body": "200 with no body",
    "error_in_stream": "an error event amid the stream; 200_error for a request without stream",
    "reset_after_compute": "the answer is computed, then the connection is reset before any byte of it",
    "cut_body": "the answer is computed, its body ends before its stated length",
    "cut_stream": "the answer is computed, its stream ends tidily before [DONE]; cut_body without stream",
    "malformed_json": "the answer is computed, its JSON breaks off",
    "length": "an answer cut in the middle, finish_reason length",
    "null_content": "an answer whose content is null",
    "empty_answer": "an answer whose content is empty, finish_reason stop",
    "odd_sse": "a sound stream in odd dress: byte order mark, CRLF, comments, ids; harmless without stream",
    "no_usage": "a sound answer without usage",
    "prompt_cut": "an answer whose usage betrays that only the beginning of the prompt was read",
    "reply": "the status, headers and body that the fault itself states",
}
"""Every kind of fault, with what it looks like on the wire."""

COMPUTED_NOT_DELIVERED: Final = frozenset({"reset_after_compute", "cut_body", "cut_stream", "malformed_json"})
"""Kinds for which a complete answer was computed, and paid, and did not arrive."""

ANSWERED: Final = frozenset({"length", "null_content", "empty_answer", "odd_sse", "no_usage", "prompt_cut"})
"""Kinds that end in a complete 200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault; `headers` are added to the answer's own, `status` and `body` are for the kind `reply`."""

    kind: str = field(kw_only=False)
    retry_after: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    body: str | bytes = ""

    def __post_init__(self) -> None:
        """Refuse a kind that does not exist."""
        _check_kind(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Shares of the attempts that meet a fault, by kind.

    `shares` is drawn anew for each attempt; `permanent` once for a request, so that all attempts at it fail
    alike. With `first_attempts`, only that many attempts at each request can meet a passing fault.
    `retry_after` is the Retry-After of the kind `429`, as it stands on the wire; `stall_seconds` bounds the
    kind `stall`.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    permanent: Mapping[str, float] = field(default_factory=dict)
    first_attempts: int | None = None
    retry_after: str = "1"
    stall_seconds: float = 600.0

    def __post_init__(self) -> None:
        """Refuse kinds that do not exist and shares that are no shares."""
        for shares in (self.shares, self.permanent):
            for kind, share in shares.items():
                _check_kind(kind)
                if not 0 <= share <= 1:
                    msg = f"fault {kind}: a share lies between 0 and 1, not {share}"
                    raise ValueError(msg)
            if sum(shares.values()) > 1 + 1e-9:
                msg = "the shares of the faults add up to more than 1"
                raise ValueError(msg)


Script = Callable[[dict[str, Any], int], Fault | str | None]
"""Called with a request and the number of the attempt, from 1; returns a fault, its kind, or None."""


def fault_of(faults: Faults, *, seed: int, digest: str, attempt: int) -> Fault | None:
    """Return the fault that this attempt at this request meets; the same arguments give the same fault."""
    if faults.permanent:
        kind = _pick(faults.permanent, draw(seed, "permanent", digest, 0))
        if kind is not None:
            return Fault(kind)
    if faults.shares and (faults.first_attempts is None or attempt <= faults.first_attempts):
        kind = _pick(faults.shares, draw(seed, "fault", digest, attempt))
        if kind is not None:
            return Fault(kind)
    return None


def _pick(shares: Mapping[str, float], number: float) -> str | None:
    reached = 0.0
    for kind in sorted(shares):
        reached += shares[kind]
        if number < reached:
            return kind
    return None


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        msg = f"no fault is called {kind!r}; there are {', '.join(KINDS)}"
        raise ValueError(msg)
