"""The model container: it answers as the reference page of TildeOpen-30b-64k says.

One choice, no log probabilities, no JSON mode and no tools; prompt and answer share a context. What does not fit or
is no JSON is a 4xx with a JSON body. The answers are those of the fake chat endpoint, so that a test can compute them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from corpusmill.testing.answers import answer
from corpusmill.testing.digests import request_digest
from corpusmill.testing.tokens import count_prompt_tokens, split_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEFAULT_MODEL: Final = "tildeopen-30b-64k"
DEFAULT_CEILING: Final = 4_096
_TOKENS_A_CHUNK: Final = 4

encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Answered:
    """What the container says: `events` is the stream of server-sent events when one was asked for."""

    status: int
    body: bytes
    events: bytes | None = None


@dataclass(slots=True, kw_only=True)
class Container:
    """A model server.

    `poison` is a piece of text that it cannot stand: a request that holds it is answered with `poison_status`.
    `computed` counts what was computed by the digest of the request, `cut` the answers that a ceiling cut,
    `requests` every call.
    """

    model: str = DEFAULT_MODEL
    context_tokens: int = 65_536
    poison: str | None = None
    poison_status: int = 500
    clock: Callable[[], float] = time.time
    computed: Counter[str] = field(default_factory=Counter)
    cut: int = 0
    requests: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def invoke(self, body: bytes, *, content_type: str = "application/json") -> Answered:
        """Answer one request."""
        with self._lock:
            self.requests += 1
        kind = content_type.partition(";")[0].strip().lower()
        if kind not in {"application/json", "application/jsonlines"}:
            return _refused(415, f"content type {kind!r} is not supported", "unsupported_media_type")
        try:
            request = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _refused(400, "the body is not valid JSON", "malformed_json")
        wrong = _wrong_with(request)
        if wrong is not None:
            return _refused(400, wrong, "invalid_request")
        prompt = count_prompt_tokens(request["messages"])
        ceiling = request.get("max_tokens") or DEFAULT_CEILING
        if prompt + 1 > self.context_tokens:
            text = (
                f"This model's maximum context length is {self.context_tokens} tokens. However, your messages resulted "
                f"in {prompt} tokens. Please reduce the length of the messages."
            )
            return _refused(400, text, "context_length_exceeded")
        if self.poison is not None and self.poison in str(request["messages"]):
            return _refused(self.poison_status, "the model failed", "internal_error")
        return self._answer(request, prompt, min(ceiling, self.context_tokens - prompt))

    def _answer(self, request: dict[str, Any], prompt: int, room: int) -> Answered:
        made = answer(request, choice=0, room=room)
        digest = request_digest({name: value for name, value in request.items() if name != "model"})
        with self._lock:
            self.computed[digest] += 1
            self.cut += made.finish_reason == "length"
            number = self.computed[digest]
        head = {"id": f"chatcmpl-{digest[:8]}{number}", "created": int(self.clock()), "model": self.model}
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": made.completion_tokens,
            "total_tokens": prompt + made.completion_tokens,
        }
        if request.get("stream"):
            wanted = bool((request.get("stream_options") or {}).get("include_usage"))
            pieces = _events(head, made.content or "", made.finish_reason, usage if wanted else None)
            return Answered(200, b"", b"".join(pieces))
        message = {"role": "assistant", "content": made.content}
        choice = {"index": 0, "message": message, "finish_reason": made.finish_reason}
        document = {
            "id": head["id"],
            "object": "chat.completion",
            "created": head["created"],
            "model": self.model,
            "choices": [choice],
            "usage": usage,
        }
        return Answered(200, encode(document))


def _events(head: dict[str, Any], text: str, reason: str, usage: dict[str, int] | None) -> Iterator[bytes]:
    def event(choices: list[dict[str, Any]], **more: Any) -> bytes:
        return (
            b"data: "
            + encode({**head, "object": "chat.completion.chunk", "choices": choices, **more})
            + b"\n\n"
        )

    tokens = split_tokens(text)
    for start in range(0, len(tokens), _TOKENS_A_CHUNK):
        delta = {"content": "".join(tokens[start : start + _TOKENS_A_CHUNK])}
        yield event([{"index": 0, "delta": delta, "finish_reason": None}])
    yield event([{"index": 0, "delta": {}, "finish_reason": reason}])
    if usage is not None:
        yield event([], usage=usage)
    yield b"data: [DONE]\n\n"


def _refused(status: int, message: str, code: str) -> Answered:
    kind = "invalid_request_error" if status < 500 else "server_error"  # noqa: PLR2004 - a status
    return Answered(status, encode({"error": {"message": message, "type": kind, "code": code}}))


def _wrong_with(request: object) -> str | None:
    if not isinstance(request, dict):
        return "the body must be an object"
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        return "messages must be a list that is not empty"
    if not all(
        isinstance(one, dict) and isinstance(one.get("content"), str) and one.get("role") for one in messages
    ):
        return "each message must have a role and a content of text"
    ceiling = request.get("max_tokens")
    if ceiling is not None and (not isinstance(ceiling, int) or isinstance(ceiling, bool) or ceiling < 1):
        return "max_tokens must be a whole number of at least 1"
    if (request.get("n") or 1) != 1:
        return "n must be 1: the model returns one candidate"
    refused = [name for name in ("logprobs", "tools", "response_format") if request.get(name)]
    return f"{refused[0]} is not supported" if refused else None
