"""The request fields of SambaNova's OpenAPI document, and the check of their values.

Where the document contradicts itself, the wider range holds (`top_logprobs`: 0 to 20). Null means absent.
Fields that the document does not know pass, as long as they can be written as JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from corpusmill.errors import PromptError
from corpusmill.exchange import CEILINGS

if TYPE_CHECKING:
    from corpusmill.endpoints.capabilities import Capabilities

Check = Callable[[Any], str | None]
"""A check of one value: None when it is allowed, else what would be ("from 0 to 2")."""

MAX_TOOLS = 128
MAX_BIAS = 100
LARGEST_INTEGER = 2**63 - 1
DEEPEST = 64

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]+")
_SHOWN = 80


def _integer(low: int, high: int | None = None) -> Check:
    allowed = (
        f"a whole number from {low} to {high}" if high is not None else f"a whole number of at least {low}"
    )

    def check(value: object) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return allowed
        return None if low <= value and (high is None or value <= high) else allowed

    return check


def _number(low: float, high: float) -> Check:
    allowed = f"a number from {low:g} to {high:g}"

    def check(value: object) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return allowed
        return None if low <= value <= high else allowed

    return check


def _one_of(*values: str) -> Check:
    allowed = "one of " + ", ".join(repr(value) for value in values)

    def check(value: object) -> str | None:
        return None if isinstance(value, str) and value in values else allowed

    return check


def _boolean(value: object) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _mapping(value: object) -> str | None:
    return None if isinstance(value, Mapping) else "an object"


def _stop(value: object) -> str | None:
    if isinstance(value, str):
        return None
    texts = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    return None if texts else "a text or a list of texts"


def _seed(value: object) -> str | None:
    return None if isinstance(value, int) and not isinstance(value, bool) else "a whole number"


def _stream_options(value: object) -> str | None:
    usage = value.get("include_usage") if isinstance(value, Mapping) else 0
    return (
        None if usage is None or isinstance(usage, bool) else "an object whose include_usage is true or false"
    )


def _logit_bias(value: object) -> str | None:
    allowed = f"an object that maps token ids to numbers from -{MAX_BIAS} to {MAX_BIAS}"
    if not isinstance(value, Mapping):
        return allowed
    bias = _number(-MAX_BIAS, MAX_BIAS)
    return allowed if any(bias(item) is not None for item in value.values()) else None


def _response_format(value: object) -> str | None:
    allowed = 'an object with type "json_object", or "json_schema" beside a json_schema with a name'
    if not isinstance(value, Mapping):
        return allowed
    if value.get("type") == "json_object":
        return None
    schema = value.get("json_schema")
    if value.get("type") != "json_schema" or not isinstance(schema, Mapping):
        return allowed
    if not isinstance(schema.get("name"), str) or not schema["name"]:
        return allowed
    return (
        None
        if isinstance(schema.get("schema", {}), Mapping | None)
        else "a json_schema whose schema is an object"
    )


def _tools(value: object) -> str | None:
    if not isinstance(value, list | tuple) or len(value) > MAX_TOOLS:
        return f"a list of at most {MAX_TOOLS} tools"
    for tool in value:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if tool.get("type") != "function" if isinstance(tool, Mapping) else True:
            return 'a list of objects, each with type "function"'
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            return "a list of tools, each with a function whose name is letters, digits, _ and -"
    return None


def _tool_choice(value: object) -> str | None:
    allowed = '"none", "auto", "required", or {"type": "function", "function": {"name": ...}}'
    if isinstance(value, str):
        return None if value in {"none", "auto", "required"} else allowed
    if not isinstance(value, Mapping) or value.get("type") != "function":
        return allowed
    function = value.get("function")
    return None if isinstance(function, Mapping) and isinstance(function.get("name"), str) else allowed


_CHECKS: dict[str, Check] = {
    "max_tokens": _integer(1),
    "max_completion_tokens": _integer(1),
    "temperature": _number(0, 2),
    "top_p": _number(0, 1),
    "top_k": _integer(1, 100),
    "presence_penalty": _number(-2, 2),
    "frequency_penalty": _number(-2, 2),
    "do_sample": _boolean,
    "stop": _stop,
    "stream": _boolean,
    "stream_options": _stream_options,
    "response_format": _response_format,
    "reasoning_effort": _one_of("low", "medium", "high"),
    "tool_choice": _tool_choice,
    "parallel_tool_calls": _boolean,
    "tools": _tools,
    "chat_template_kwargs": _mapping,
    "logprobs": _boolean,
    "top_logprobs": _integer(0, 20),
    "n": _integer(1, 8),
    "logit_bias": _logit_bias,
    "seed": _seed,
}

KNOWN = frozenset(_CHECKS) | {"model", "messages"}
"""Every request field of the document."""


def check_parameters(
    parameters: Mapping[str, Any], *, capabilities: Capabilities, stream: bool = False
) -> None:
    """Raise `PromptError`, naming parameter, value and allowed range, for what the endpoint would refuse.

    `stream` tells whether the endpoint is asked for streams, which some parameters need.
    """
    for name, value in parameters.items():
        if not isinstance(name, str):
            raise PromptError(f"a parameter has the name {name!r}; names are texts")
        if name in {"model", "messages"}:
            raise PromptError(
                f"{name} is no parameter of a prompt; it comes from the endpoint or from the prompt itself"
            )
        _check_json(name, value)
        if value is None or name not in _CHECKS or name in capabilities.unchecked:
            continue
        if name == "response_format" and isinstance(value, Mapping) and value.get("type") == "text":
            raise PromptError(
                "response_format is of type text, which is refused although it is the default: leave it out"
            )
        allowed = _CHECKS[name](value)
        if allowed is not None:
            raise PromptError(f"{name} is {_shown(value)}; it must be {allowed}")
    _check_together({name: value for name, value in parameters.items() if value is not None}, stream=stream)
    _check_capabilities(parameters, capabilities)


def _check_together(parameters: Mapping[str, Any], *, stream: bool) -> None:
    if "stream" in parameters and parameters["stream"] != stream:
        raise PromptError(
            f"stream is {parameters['stream']!r} here and {stream!r} at the endpoint; set it at the endpoint"
        )
    if "stream_options" in parameters and not stream:
        raise PromptError(
            "stream_options goes only with stream; set stream at the endpoint, or leave the options out"
        )
    if "top_logprobs" in parameters and parameters.get("logprobs") is not True:
        raise PromptError(f"top_logprobs is {parameters['top_logprobs']}; it needs logprobs: true beside it")
    if "tool_choice" in parameters and parameters["tool_choice"] != "none" and not parameters.get("tools"):
        raise PromptError(f"tool_choice is {_shown(parameters['tool_choice'])}; it needs tools beside it")


def _check_capabilities(parameters: Mapping[str, Any], capabilities: Capabilities) -> None:
    choices = parameters.get("n")
    if isinstance(choices, int) and choices > capabilities.n:
        raise PromptError(f"n is {choices}; this endpoint gives at most {capabilities.n}")
    if not capabilities.logprobs and parameters.get("logprobs"):
        raise PromptError("logprobs is true; this endpoint gives none: leave it out")
    if not capabilities.tools and parameters.get("tools"):
        raise PromptError("tools are given; this endpoint takes none: leave them out")
    wanted = parameters.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, Mapping) else None
    if (kind == "json_object" and not capabilities.json_object) or (
        kind == "json_schema" and not capabilities.json_schema
    ):
        raise PromptError(f"response_format is of type {kind}; this endpoint cannot do that: leave it out")
    for name in CEILINGS:
        ceiling, context = parameters.get(name), capabilities.context_tokens
        if isinstance(ceiling, int) and context is not None and ceiling > context:
            raise PromptError(f"{name} is {ceiling}; the context of this endpoint holds {context} tokens")


def _check_json(path: str, value: object, depth: int = 0) -> None:
    if depth > DEEPEST:
        raise PromptError(f"{path[:_SHOWN]} is nested more than {DEEPEST} deep")
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str):
                raise PromptError(f"{path} has the key {name!r}; keys are texts")
            _check_json(f"{path}.{name}", item, depth + 1)
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            _check_json(f"{path}[{position}]", item, depth + 1)
    else:
        _check_scalar(path, value)


def _check_scalar(path: str, value: object) -> None:
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise PromptError(f"{path} has half a surrogate pair inside, which is no text")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise PromptError(f"{path} is {value}; JSON has only finite numbers")
    elif isinstance(value, int):
        if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
            raise PromptError(f"{path} is {_shown(value)}; whole numbers go up to {LARGEST_INTEGER}")
    elif value is not None:
        raise PromptError(f"{path} is a {type(value).__name__}, which cannot be written as JSON")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
