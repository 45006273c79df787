"""What the chat-completions document allows in a request, checked field by field.

Source: SambaNova's OpenAPI page of `POST /chat/completions` (version 1.2.0). Unknown fields are allowed
everywhere. Where the page is silent or contradicts itself: a ceiling below one token is refused; the roles
`function` and `developer`, which only its error texts name, are accepted; null content is refused for `user`
and `tool` messages only; a tool choice that no tool can meet is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from corpusmill.testing.tokens import content_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROLES: Final = ("system", "assistant", "user", "function", "tool", "developer")
MOST_TOOLS: Final = 128
_FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error as the document shapes it: `{"error": {code, message, param, type}, "request_id"}`."""

    message: str
    param: str | None = None
    code: str | None = None
    kind: str = "invalid_request_error"
    status: int = 400


class _RefusedError(Exception):
    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.refusal = Refusal(message=message, param=param, code=code)


def check(request: object) -> Refusal | None:
    """Return what is wrong with a decoded request body, or None when it is sound."""
    try:
        _check(request)
    except _RefusedError as refused:
        return refused.refusal
    return None


def _check(request: object) -> None:
    if not isinstance(request, dict):
        msg = "Invalid request body: expected an object."
        raise _RefusedError(msg)
    model = request.get("model")
    if model is None or model == "":
        msg = "you must provide a model parameter"
        raise _RefusedError(msg)
    if not isinstance(model, str):
        raise _wrong_type("model", "a string", model)
    _check_messages(request.get("messages"))
    for name, checked in _FIELDS.items():
        if name in request:
            checked(name, request[name])
    _check_together(request)


def _check_messages(messages: object) -> None:
    if messages is None:
        msg = "Missing required parameter: 'messages'."
        raise _RefusedError(msg, "messages", "missing_required_parameter")
    if not isinstance(messages, list):
        raise _wrong_type("messages", "an array of objects", messages)
    if not messages:
        msg = (
            "Invalid 'messages': empty array. Expected an array with minimum length 1, "
            "but got an empty array instead."
        )
        raise _RefusedError(msg, "messages", "empty_array")
    for index, message in enumerate(messages):
        _check_message(index, message)


def _check_message(index: int, message: object) -> None:
    where = f"messages[{index}]"
    if not isinstance(message, dict):
        raise _wrong_type(where, "an object", message)
    role = message.get("role")
    if role is None:
        raise _missing(f"{where}.role")
    if role not in ROLES:
        supported = ", ".join(f"'{known}'" for known in ROLES[:-1])
        msg = f"Invalid value: '{role}'. Supported values are: {supported}, and '{ROLES[-1]}'."
        raise _RefusedError(msg, f"{where}.role", "invalid_value")
    if "content" not in message:
        raise _missing(f"{where}.content")
    _check_content(where, index, role, message["content"])
    if role == "assistant":
        _optional(where, message, {"reasoning": str, "channel": str, "tool_calls": list})
        for number, call in enumerate(message.get("tool_calls") or ()):
            _check_tool_call(f"{where}.tool_calls[{number}]", call)


def _check_content(where: str, index: int, role: str, content: object) -> None:
    if content is None and role in {"user", "tool"}:
        msg = "Invalid value for 'content': expected a string, got null."
        raise _RefusedError(msg, f"messages.[{index}].content")
    if isinstance(content, list):
        for number, part in enumerate(content):
            _check_part(f"{where}.content[{number}]", role, part)
    elif content is not None and not isinstance(content, str):
        raise _wrong_type(f"{where}.content", "a string or an array of parts", content)


_PARTS: Final = {"text": "text", "image_url": "url", "audio_content": "content", "video_url": "url"}


def _check_part(where: str, role: str, part: object) -> None:
    if not isinstance(part, dict):
        raise _wrong_type(where, "an object", part)
    kind = part.get("type")
    allowed = _PARTS if role == "user" else ("text",)
    if not isinstance(kind, str) or kind not in allowed:
        msg = f"Invalid value: '{kind}'. Supported values are: {', '.join(repr(name) for name in allowed)}."
        raise _RefusedError(msg, f"{where}.type", "invalid_value")
    if kind not in part:
        raise _missing(f"{where}.{kind}")
    inner = part[kind]
    if kind == "text":
        if not isinstance(inner, str):
            raise _wrong_type(f"{where}.text", "a string", inner)
        return
    if not isinstance(inner, dict):
        raise _wrong_type(f"{where}.{kind}", "an object", inner)
    name = _PARTS[kind]
    if name in inner and not isinstance(inner[name], str):
        raise _wrong_type(f"{where}.{kind}.{name}", "a string", inner[name])


def _check_tool_call(where: str, call: object) -> None:
    if not isinstance(call, dict):
        raise _wrong_type(where, "an object", call)
    if "function" not in call:
        raise _missing(f"{where}.function")
    if not isinstance(call["function"], dict):
        raise _wrong_type(f"{where}.function", "an object", call["function"])
    _optional(f"{where}.function", call["function"], {"name": str, "arguments": str})
    _optional(where, call, {"id": str})
    if call.get("type") is not None:
        _check_only_function(where, call)
    if call.get("index") is not None and not _is_integer(call["index"]):
        raise _wrong_type(f"{where}.index", "an integer", call["index"])


def _check_only_function(where: str, holder: Mapping[str, Any]) -> None:
    if holder.get("type") != "function":
        msg = f"Invalid value: '{holder.get('type')}'. Supported values are: 'function'."
        raise _RefusedError(msg, f"{where}.type", "invalid_value")


def _check_together(request: Mapping[str, Any]) -> None:
    """Check what one field demands of another."""
    if request.get("stream_options") is not None and not request.get("stream"):
        msg = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise _RefusedError(msg, "stream_options")
    if request.get("top_logprobs") is not None and not request.get("logprobs"):
        msg = "The 'logprobs' parameter must be true when 'top_logprobs' is used."
        raise _RefusedError(msg, "top_logprobs")
    response_format = request.get("response_format")
    if response_format is not None and response_format["type"] == "json_object":
        said = (content_text(message.get("content")) for message in request["messages"])
        if not any("json" in text.lower() for text in said):
            msg = "A message must contain the word 'json' when 'response_format' is of type 'json_object'."
            raise _RefusedError(msg, "messages")
    choice = request.get("tool_choice")
    names = {tool["function"]["name"] for tool in request.get("tools") or ()}
    if choice == "required" and not names:
        msg = "'tool_choice' is 'required', but no 'tools' are given."
        raise _RefusedError(msg, "tool_choice")
    if isinstance(choice, dict) and choice["function"]["name"] not in names:
        msg = f"Tool choice '{choice['function']['name']}' is not among the given 'tools'."
        raise _RefusedError(msg, "tool_choice")


def _check_stop(name: str, value: object) -> None:
    sequences = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(sequence, str) for sequence in sequences):
        raise _wrong_type(name, "a string or an array of strings", value)


def _check_stream_options(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        raise _wrong_type(name, "an object", value)
    if value.get("include_usage") is not None and not isinstance(value["include_usage"], bool):
        raise _wrong_type(f"{name}.include_usage", "a boolean", value["include_usage"])


def _check_response_format(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        raise _wrong_type(name, "an object", value)
    kind = value.get("type")
    if kind == "text":
        msg = "'response_format' of type 'text' is not supported; leave 'response_format' out instead."
        raise _RefusedError(msg, f"{name}.type", "unsupported_value")
    if kind not in {"json_object", "json_schema"}:
        msg = f"Invalid value: '{kind}'. Supported values are: 'json_object' and 'json_schema'."
        raise _RefusedError(msg, f"{name}.type", "invalid_value")
    if kind == "json_object":
        return
    if "json_schema" not in value:
        raise _missing(f"{name}.json_schema")
    described = value["json_schema"]
    where = f"{name}.json_schema"
    if not isinstance(described, dict):
        raise _wrong_type(where, "an object", described)
    _required_string(where, described, "name")
    _optional(where, described, {"description": str, "schema": dict, "strict": bool})


def _optional(where: str, holder: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
    """Check fields that may be absent or null, and otherwise are of one type."""
    for name, kind in kinds.items():
        if holder.get(name) is not None and not isinstance(holder[name], kind):
            raise _wrong_type(f"{where}.{name}", _JSON_TYPES[kind], holder[name])


def _required_string(where: str, holder: Mapping[str, Any], name: str) -> None:
    if name not in holder:
        raise _missing(f"{where}.{name}")
    if not isinstance(holder[name], str):
        raise _wrong_type(f"{where}.{name}", "a string", holder[name])


def _check_tools(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, list):
        raise _wrong_type(name, "an array", value)
    if len(value) > MOST_TOOLS:
        msg = (
            f"Invalid '{name}': array too long. Expected at most {MOST_TOOLS}, but got {len(value)} instead."
        )
        raise _RefusedError(msg, name, "array_above_max_length")
    for index, tool in enumerate(value):
        where = f"{name}[{index}]"
        if not isinstance(tool, dict):
            raise _wrong_type(where, "an object", tool)
        _required_string(where, tool, "type")
        _check_only_function(where, tool)
        if "function" not in tool:
            raise _missing(f"{where}.function")
        if not isinstance(tool["function"], dict):
            raise _wrong_type(f"{where}.function", "an object", tool["function"])
        _check_function(f"{where}.function", tool["function"])


def _check_function(where: str, function: Mapping[str, Any]) -> None:
    _required_string(where, function, "name")
    if not _FUNCTION_NAME.fullmatch(function["name"]):
        msg = f"Invalid '{where}.name': letters, digits, underscores and dashes only."
        raise _RefusedError(msg, f"{where}.name", "invalid_value")
    _optional(where, function, {"description": str})
    if "parameters" in function and not isinstance(function["parameters"], dict):
        raise _wrong_type(f"{where}.parameters", "an object", function["parameters"])


def _check_tool_choice(name: str, value: object) -> None:
    if value is None or value in ("none", "auto", "required"):
        return
    if not isinstance(value, dict):
        msg = f"Invalid value: '{value}'. Supported values are: 'none', 'auto', 'required', and an object."
        raise _RefusedError(msg, name, "invalid_value")
    _check_only_function(name, value)
    if not isinstance(value.get("function"), dict):
        raise _missing(f"{name}.function")
    _required_string(f"{name}.function", value["function"], "name")


def _check_chat_template_kwargs(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        raise _wrong_type(name, "an object", value)
    if "enable_thinking" in value and not isinstance(value["enable_thinking"], bool):
        raise _wrong_type(f"{name}.enable_thinking", "a boolean", value["enable_thinking"])


def _check_logit_bias(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        raise _wrong_type(name, "an object", value)
    for token, bias in value.items():
        _number(-100, 100)(f"{name}.{token}", bias)


def _check_effort(name: str, value: object) -> None:
    if value not in (None, "low", "medium", "high"):
        msg = f"Invalid value: '{value}'. Supported values are: 'low', 'medium', and 'high'."
        raise _RefusedError(msg, name, "invalid_value")


def _boolean(name: str, value: object) -> None:
    if value is not None and not isinstance(value, bool):
        raise _wrong_type(name, "a boolean", value)


def _number(low: float, high: float, *, nullable: bool = True) -> Callable[[str, object], None]:
    def checked(name: str, value: object) -> None:
        if value is None and nullable:
            return
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong_type(name, "a number", value)
        _check_range(name, value, low, high)

    return checked


def _integer(low: float, high: float) -> Callable[[str, object], None]:
    def checked(name: str, value: object) -> None:
        if value is None:
            return
        if not _is_integer(value):
            raise _wrong_type(name, "an integer", value)
        _check_range(name, value, low, high)

    return checked


def _is_integer(value: object) -> bool:
    """JSON knows one kind of number: 5.0 is an integer, true is not."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and value.is_integer()
    )


def _check_range(name: str, value: Any, low: float, high: float) -> None:
    if value < low:
        msg = f"Invalid '{name}': {value} is below the minimum of {low}."
        raise _RefusedError(
            msg, name, "integer_below_min_value" if isinstance(value, int) else "decimal_below_min_value"
        )
    if value > high:
        msg = f"Invalid '{name}': {value} is above the maximum of {high}."
        raise _RefusedError(
            msg, name, "integer_above_max_value" if isinstance(value, int) else "decimal_above_max_value"
        )


_INFINITE: Final = float("inf")
_FIELDS: Final[Mapping[str, Callable[[str, object], None]]] = {
    "max_tokens": _integer(1, _INFINITE),
    "max_completion_tokens": _integer(1, _INFINITE),
    "temperature": _number(0, 2),
    "top_p": _number(0, 1),
    "top_k": _integer(1, 100),
    "presence_penalty": _number(-2, 2),
    "frequency_penalty": _number(-2, 2, nullable=False),
    "do_sample": _boolean,
    "stop": _check_stop,
    "stream": _boolean,
    "stream_options": _check_stream_options,
    "response_format": _check_response_format,
    "reasoning_effort": _check_effort,
    "tool_choice": _check_tool_choice,
    "parallel_tool_calls": _boolean,
    "tools": _check_tools,
    "chat_template_kwargs": _check_chat_template_kwargs,
    "logprobs": _boolean,
    "top_logprobs": _integer(0, 20),
    "n": _integer(1, 8),
    "logit_bias": _check_logit_bias,
    "seed": _integer(-_INFINITE, _INFINITE),
}


def _wrong_type(param: str, wanted: str, got: object) -> _RefusedError:
    msg = (
        f"Invalid type for '{param}': expected {wanted}, got {_JSON_TYPES.get(type(got), 'something else')}."
    )
    return _RefusedError(msg, param, "invalid_type")


def _missing(param: str) -> _RefusedError:
    msg = f"Missing required parameter: '{param}'."
    return _RefusedError(msg, param, "missing_required_parameter")


_JSON_TYPES: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}
