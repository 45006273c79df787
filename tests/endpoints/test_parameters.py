"""What the document does not allow is refused before the first call, by name, value and range."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from corpusmill.endpoints import Capabilities, IgnoredParameterWarning, OpenAICompatible, SambaNova, sambanova
from corpusmill.endpoints.parameters import KNOWN, check_parameters
from corpusmill.errors import PromptError

DOCUMENT = Path(__file__).parents[3] / "shared" / "openapi" / "sambanova-chat-completions.yaml"

TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}

ALLOWED: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"temperature": 2.0},
    {"top_p": 0},
    {"top_p": 1},
    {"top_k": 1},
    {"top_k": 100},
    {"presence_penalty": -2, "frequency_penalty": 2},
    {"do_sample": False},
    {"stop": "\n"},
    {"stop": ["a", "b"]},
    {"stop": []},
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"default": None}}}},
    {"reasoning_effort": "low"},
    {"tools": [TOOL], "tool_choice": "required"},
    {"tools": [TOOL] * 128, "tool_choice": {"type": "function", "function": {"name": "look_up"}}},
    {"parallel_tool_calls": True},
    {"chat_template_kwargs": {"enable_thinking": True, "more": [1, {"a": None}]}},
    {"logprobs": True, "top_logprobs": 20},
    {"logprobs": True, "top_logprobs": 0},
    {"n": 8},
    {"logit_bias": {"50256": -100, "1": 100}},
    {"seed": -1},
    {"max_tokens": 1},
    {"max_completion_tokens": 4096},
    {"temperature": None, "n": None, "stop": None},
    {"min_p": 0.1, "guided_regex": "[a-z]+", "nested": {"deep": [1, 2.5, "x"]}},
]

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"temperature": -0.1}, "temperature is -0.1; it must be a number from 0 to 2"),
    ({"temperature": 2.1}, "temperature is 2.1"),
    ({"temperature": "0"}, "temperature is '0'"),
    ({"temperature": True}, "temperature is True"),
    ({"temperature": float("nan")}, "finite"),
    ({"temperature": float("inf")}, "finite"),
    ({"unknown": {"deep": [float("nan")]}}, r"unknown\.deep\[0\] is nan"),
    ({"top_p": 1.01}, "top_p"),
    ({"top_k": 0}, "top_k is 0; it must be a whole number from 1 to 100"),
    ({"top_k": 101}, "top_k"),
    ({"top_k": 5.0}, "top_k"),
    ({"presence_penalty": 2.5}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"do_sample": "yes"}, "do_sample"),
    ({"stop": 5}, "stop"),
    ({"stop": ["a", 5]}, "stop"),
    ({"response_format": {"type": "text"}}, "leave it out"),
    ({"response_format": "json_object"}, "response_format"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, "response_format"),
    (
        {"reasoning_effort": "extreme"},
        "reasoning_effort is 'extreme'; it must be one of 'low', 'medium', 'high'",
    ),
    ({"tools": {}}, "tools"),
    ({"tools": [TOOL] * 129}, "at most 128"),
    ({"tools": [{"type": "function", "function": {"name": "look up"}}]}, "tools"),
    ({"tools": ["x"]}, "tools"),
    ({"tools": [TOOL], "tool_choice": "maybe"}, "tool_choice"),
    ({"tool_choice": "auto"}, "needs tools"),
    ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs"),
    ({"logprobs": 1}, "logprobs"),
    ({"top_logprobs": 5}, "needs logprobs"),
    ({"top_logprobs": 5, "logprobs": False}, "needs logprobs"),
    ({"top_logprobs": 21, "logprobs": True}, "from 0 to 20"),
    ({"n": 0}, "n is 0"),
    ({"n": 9}, "n is 9; it must be a whole number from 1 to 8"),
    ({"logit_bias": {"1": 101}}, "logit_bias"),
    ({"logit_bias": [1]}, "logit_bias"),
    ({"seed": 1.5}, "seed"),
    ({"seed": 2**70}, "seed"),
    ({"max_tokens": 0}, "max_tokens is 0; it must be a whole number of at least 1"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"stream": True}, "set it at the endpoint"),
    ({"stream_options": {"include_usage": True}}, "only with stream"),
    ({"model": "other"}, "model"),
    ({"messages": []}, "messages"),
    ({"metadata": {"x": b"bytes"}}, "bytes"),
    ({"metadata": {5: "x"}}, "keys are texts"),
    ({"stop": "\ud800"}, "surrogate"),
]


@pytest.mark.parametrize("parameters", ALLOWED, ids=str)
def test_what_the_document_allows_passes(parameters: dict[str, Any]) -> None:
    """Both ends of each range, null for absent, and fields that nobody here knows."""
    check_parameters(parameters, capabilities=Capabilities())


@pytest.mark.parametrize(("parameters", "said"), REFUSED, ids=lambda value: str(value)[:50])
def test_what_the_document_does_not_allow_is_refused(parameters: dict[str, Any], said: str) -> None:
    """The error names the parameter and what would be allowed."""
    with pytest.raises(PromptError, match=said):
        check_parameters(parameters, capabilities=Capabilities())


def test_options_of_a_stream_go_with_a_stream() -> None:
    """At a streaming endpoint they are allowed."""
    parameters = {"stream": True, "stream_options": {"include_usage": False}}
    check_parameters(parameters, capabilities=Capabilities(), stream=True)


def test_nesting_without_end_is_refused() -> None:
    """A value that contains itself is an error, not an overflow of the stack."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(PromptError, match="nested"):
        check_parameters({"x": endless}, capabilities=Capabilities())


@pytest.mark.skipif(
    not DOCUMENT.exists(), reason="../shared is not there: the OpenAPI document is read from it"
)
def test_every_field_of_the_document_is_known() -> None:
    """No request field of the document is taken for an unknown extra."""
    schemas = YAML(typ="safe").load(DOCUMENT)["components"]["schemas"]
    assert set(schemas["ChatCompletionRequest"]["properties"]) == KNOWN


@pytest.mark.parametrize(
    ("capabilities", "parameters", "said"),
    [
        (Capabilities(n=1), {"n": 2}, "at most 1"),
        (Capabilities(logprobs=False), {"logprobs": True}, "logprobs"),
        (Capabilities(tools=False), {"tools": [TOOL]}, "tools"),
        (Capabilities(json_object=False), {"response_format": {"type": "json_object"}}, "json_object"),
        (
            Capabilities(json_schema=False),
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "json_schema",
        ),
        (Capabilities(context_tokens=100), {"max_tokens": 101}, "holds 100 tokens"),
    ],
)
def test_what_an_endpoint_cannot_do_is_refused(
    capabilities: Capabilities, parameters: dict[str, Any], said: str
) -> None:
    """Each capability is asked before the first call."""
    endpoint = OpenAICompatible("http://127.0.0.1/v1", "m", capabilities=capabilities)
    with pytest.raises(PromptError, match=said):
        endpoint.check(parameters)


def test_a_server_may_take_more_than_the_document() -> None:
    """What is declared unchecked passes as it is."""
    wide = Capabilities(unchecked=frozenset({"top_k", "reasoning_effort"}))
    check_parameters({"top_k": -1, "reasoning_effort": "minimal"}, capabilities=wide)


def test_penalties_warn_once_in_a_process() -> None:
    """The service ignores them, which is said once and not for each row."""
    sambanova._warn_of.cache_clear()
    endpoint = SambaNova("m", api_key="k" * 8)
    with pytest.warns(IgnoredParameterWarning, match="presence_penalty"):
        endpoint.check({"presence_penalty": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        endpoint.check({"presence_penalty": 1})
        endpoint.check({"frequency_penalty": 0})
