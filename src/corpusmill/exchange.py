"""What is asked and what is answered, before and after any wire: `ChatRequest`, `Completion`.

Reading is lenient, because servers differ: fields may be missing, null, or of another type, and none of that may
cost a paid answer. What is kept is the raw JSON; the fields of `Completion` are a view of its first choice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

Message = Mapping[str, Any]
"""One message in the JSON shape of the wire: `role`, `content`, and whatever else the role takes."""

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})

CEILINGS = ("max_tokens", "max_completion_tokens")
"""The two names under which a ceiling travels. A ceiling is conduct: it is not part of a request key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request of one row: messages and parameters, before it is put on a wire.

    `parameters` holds the sampling parameters in the JSON shape of the wire, without `model`, `messages`, `stream`
    and the ceilings; all rows of a prompt share one mapping. `ceiling` is the most completion tokens that the
    answer may have, None when the request states none. `vary` enters the request key and not the wire.
    """

    messages: Sequence[Message]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    ceiling: int | None = None
    vary: str | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The model's answer: the raw JSON object in the non-streaming shape, and a view of choice 0.

    A struct, as are the other nouns of which a replay makes one for each row: it is made several times as fast as a
    frozen dataclass.

    `content` is None where the answer has none; a list of parts is joined. `finish_reason` is as the server wrote
    it, None when absent. Token counts are None when the server did not give a whole number. `choices` counts the
    choices. `reasoning` tells whether choice 0 has any.
    """

    body: bytes
    content: str | None
    finish_reason: str | None
    model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    choices: int = 1
    reasoning: bool = False

    def document(self) -> dict[str, Any]:
        """Parse the whole answer again: every field that the server sent."""
        return read_object(self.body)


class NotACompletionError(ValueError):
    """A body that claims to be an answer and is none; the text says what it is instead."""


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    tool_calls: msgspec.Raw | None = None


class _Choice(msgspec.Struct):
    message: _Message
    index: int = 0
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice]
    model: str | None = None
    usage: _Usage | None = None
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode_usual = msgspec.json.Decoder(_Body).decode


def read_completion(body: bytes) -> Completion:
    """Read a response body in the non-streaming shape.

    Raises `NotACompletionError` for anything that is no answer: not JSON, no object, an `error` key (whatever its
    value), no choice. Unusual but usable answers pass: content as a list of parts, missing usage, unknown fields.
    """
    try:
        usual = _decode_usual(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_unusual(body)
    if usual.error is not msgspec.UNSET or not usual.choices:
        return _read_unusual(body)
    choices = usual.choices
    first = choices[0] if len(choices) == 1 else min(choices, key=lambda choice: choice.index)
    usage = usual.usage
    return Completion(
        body=body,
        content=first.message.content,
        finish_reason=first.finish_reason,
        model=usual.model,
        prompt_tokens=usage.prompt_tokens if usage else None,
        completion_tokens=usage.completion_tokens if usage else None,
        choices=len(choices),
        reasoning=bool(first.message.reasoning),
    )


def read_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object, also one with lone surrogates, NaN or invalid UTF-8, which a paid answer may hold."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            document = json.loads(body.decode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            raise NotACompletionError(f"the body is not JSON ({error})") from None
    if not isinstance(document, dict):
        raise NotACompletionError("the body is JSON, but no object")
    return document


def _read_unusual(body: bytes) -> Completion:
    document = read_object(body)
    if "error" in document:
        raise NotACompletionError("the body carries an error")
    found = document.get("choices")
    choices = [choice for choice in found if isinstance(choice, dict)] if isinstance(found, list) else []
    if not choices:
        raise NotACompletionError("the body has no choices")
    first = min(choices, key=lambda choice: _whole(choice.get("index")) or 0)
    message = first.get("message")
    if not isinstance(message, dict):
        raise NotACompletionError("the first choice has no message")
    usage = document.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    finish_reason = first.get("finish_reason")
    model = document.get("model")
    return Completion(
        body=body,
        content=content_text(message.get("content")),
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
        model=model if isinstance(model, str) else None,
        prompt_tokens=_whole(usage.get("prompt_tokens")),
        completion_tokens=_whole(usage.get("completion_tokens")),
        choices=len(choices),
        reasoning=bool(message.get("reasoning")),
    )


def content_text(content: object) -> str | None:
    """Give the text of a message's content: the string itself, or its text parts joined; None where there is none."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(text for text in texts if isinstance(text, str))
    return None


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None
