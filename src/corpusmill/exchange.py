"""What is asked and what is answered, before and after any wire: `ChatRequest`, `Completion`.

Reading is lenient, because servers differ: fields may be missing, null, or of another type, and none of that may
cost a paid answer. What is kept is the raw JSON; the fields of `Completion` are a view of its first choice, in which
text is text that every file can hold, and a count is one that every account can add up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

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


REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

MOST_TOKENS = 2**32
"""More than any context holds: a count above it is made up, and in sums it would overflow 64 bits."""

Ending = Literal["itself", "cut", "filtered", "unknown"]
"""How an answer ended: `cut` by a ceiling or the end of the context, `filtered` by the endpoint. An `unknown` ending,
or none at all, may mean that the answer is incomplete."""

_ENDINGS: dict[str, Ending] = {
    "stop": "itself",
    "eos": "itself",
    "eos_token": "itself",
    "stop_sequence": "itself",
    "end_turn": "itself",
    "tool_calls": "itself",
    "function_call": "itself",
    "length": "cut",
    "max_tokens": "cut",
    "model_length": "cut",
    "max_output_tokens": "cut",
    "content_filter": "filtered",
}


def ending_of(finish_reason: object) -> Ending:
    """Say what a finish reason means, however the server capitalises it."""
    if not isinstance(finish_reason, str):
        return "unknown"
    known = _ENDINGS.get(finish_reason)
    return known if known is not None else _ENDINGS.get(finish_reason.strip().lower(), "unknown")


def clean_text(text: str) -> str:
    """Replace NUL and lone surrogates by U+FFFD; anything else stays as it is."""
    if "\0" in text:
        text = text.replace("\0", REPLACEMENT)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # A pair that was written as two halves is one character.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean_value(value: Any) -> Any:
    """Clean all text in lists and dictionaries; the very value where there is nothing to clean.

    Raises `RecursionError` for what is nested too deeply.
    """
    if _is_clean(value):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_value(name): clean_value(item) for name, item in value.items()}
    return type(value)(map(clean_value, value))


def _is_clean(value: Any) -> bool:
    if isinstance(value, str):
        return clean_text(value) is value
    if isinstance(value, dict):
        return all(_is_clean(name) and _is_clean(item) for name, item in value.items())
    if type(value) is list or type(value) is tuple:
        return all(map(_is_clean, value))
    return True


class Completion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The model's answer: the raw JSON object in the non-streaming shape, and a view of choice 0.

    A struct, as are the other nouns of which a replay makes one for each row: it is made several times as fast as a
    frozen dataclass.

    `content` is None where the answer has none; a list of parts is joined. `finish_reason` is as the server wrote
    it, None when absent; of several choices it is that of the first that was cut, if any was. Texts are cleaned
    (`clean_text`), and `cleaned` tells whether that changed `content`. Token counts are None when the server did not
    give a whole number from 0 to `MOST_TOKENS`. `choices` counts the choices. `reasoning` tells whether choice 0
    has any.
    """

    body: bytes
    content: str | None
    finish_reason: str | None
    model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    choices: int = 1
    reasoning: bool = False
    cleaned: bool = False

    def document(self) -> dict[str, Any]:
        """Parse the whole answer again: every field that the server sent."""
        return read_object(self.body)


class NotACompletionError(ValueError):
    """A body that claims to be an answer and is none; the text says what it is instead."""


class _Message(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message
    finish_reason: str | None = None


_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None


class _Body(msgspec.Struct, gc=False):
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
    if usual.error is not msgspec.UNSET or len(usual.choices) != 1:
        return _read_unusual(body)
    first = usual.choices[0]
    usage = usual.usage
    content, finish_reason, model = first.message.content, first.finish_reason, usual.model
    # Halves of surrogate pairs do not come this way: the decoder refuses them.
    if (
        (content and "\0" in content)
        or (finish_reason and "\0" in finish_reason)
        or (model and "\0" in model)
    ):
        return _read_unusual(body)
    return Completion(
        body=body,
        content=content,
        finish_reason=finish_reason,
        model=model,
        prompt_tokens=usage.prompt_tokens if usage else None,
        completion_tokens=usage.completion_tokens if usage else None,
        reasoning=bool(first.message.reasoning),
    )


def read_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object, also one with lone surrogates or invalid UTF-8, which a paid answer may hold.

    Numbers that 64 bits cannot hold (NaN, 1e400) are None, unless they are whole.
    """
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            document = json.loads(
                body.decode("utf-8", "replace"),
                parse_constant=lambda _: None,
                parse_float=_finite,
                parse_int=_integer,
            )
        except (ValueError, RecursionError) as error:
            raise NotACompletionError(f"the body is not JSON ({error})") from None
    if not isinstance(document, dict):
        raise NotACompletionError("the body is JSON, but no object")
    return document


def choices_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give the choices of an answer in the order of their indexes, or as written where those are no whole numbers."""
    found = document.get("choices")
    choices = [choice for choice in found if isinstance(choice, dict)] if isinstance(found, list) else []
    indexes = [_whole(choice.get("index")) for choice in choices]
    if len(choices) < 2 or None in indexes:  # noqa: PLR2004 - one choice has no order
        return choices
    order = {position: index for position, index in enumerate(indexes) if index is not None}
    return [choices[position] for position in sorted(order, key=order.__getitem__)]


def message_of(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Give the message of a choice; an empty one where it has none."""
    message = choice.get("message")
    return message if isinstance(message, dict) else {}


def _read_unusual(body: bytes) -> Completion:
    document = read_object(body)
    if "error" in document:
        raise NotACompletionError("the body carries an error")
    choices = choices_of(document)
    if not choices:
        raise NotACompletionError("the body has no choices")
    first = choices[0]
    if not isinstance(first.get("message"), dict):
        raise NotACompletionError("the first choice has no message")
    usage = document.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    message = message_of(first)
    written = content_text(message.get("content"))
    content = None if written is None else clean_text(written)
    reasons = [choice.get("finish_reason") for choice in choices]
    return Completion(
        body=body,
        content=content,
        finish_reason=_text(next((reason for reason in reasons if ending_of(reason) == "cut"), reasons[0])),
        model=_text(document.get("model")),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        choices=len(choices),
        reasoning=bool(message.get("reasoning")),
        cleaned=content != written,
    )


def content_text(content: object) -> str | None:
    """Give the text of a message's content: the string itself, or its text parts joined; None where there is none."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(text for text in texts if isinstance(text, str))
    return None


def _text(value: object) -> str | None:
    return clean_text(value) if isinstance(value, str) else None


def _count(value: object) -> int | None:
    number = _whole(value)
    return number if number is not None and 0 <= number <= MOST_TOKENS else None


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _integer(text: str) -> int | None:
    # Python itself refuses to read a number of more than 4,300 digits.
    return int(text) if len(text) < 400 else None  # noqa: PLR2004 - more than a float can hold
