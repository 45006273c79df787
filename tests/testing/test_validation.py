"""Requests, answers and errors against the OpenAPI document, and the rules that it states in words."""

from __future__ import annotations

import copy
import json
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from ruamel.yaml import YAML

from corpusmill.testing.validation import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from corpusmill.testing import FakeEndpoint

HTTP = httpx.Client(
    verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), limits=httpx.Limits(max_keepalive_connections=0)
)
"""Loads no certificates, which takes longer than a test, and keeps no connection."""

DOCUMENT = Path(__file__).parents[3] / "shared" / "openapi" / "sambanova-chat-completions.yaml"


def _nullable(schema: Any) -> Any:
    """Turn OpenAPI's `nullable`, which JSON Schema does not know, into what it means."""
    if isinstance(schema, list):
        return [_nullable(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    rest = {
        name: _nullable(value) for name, value in schema.items() if name not in {"nullable", "discriminator"}
    }
    return {"anyOf": [rest, {"type": "null"}]} if schema.get("nullable") is True else rest


@pytest.fixture(scope="module")
def validator_of() -> Callable[[str], Draft202012Validator]:
    """Return a function from the name of a schema in the document to its validator."""
    if not DOCUMENT.exists():
        pytest.skip("needs the OpenAPI document in ../shared, which a user's clone does not have")
    resource = DRAFT202012.create_resource(_nullable(YAML(typ="safe").load(DOCUMENT)))
    registry: Registry[Any] = Registry().with_resource("urn:document", resource)

    def of(name: str) -> Draft202012Validator:
        return Draft202012Validator({"$ref": f"urn:document#/components/schemas/{name}"}, registry=registry)

    return of


USER = {"role": "user", "content": "bread, as JSON"}
SOUND: dict[str, Any] = {"model": "m", "messages": [USER]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}


def messages(*more: dict[str, Any]) -> dict[str, Any]:
    """Return a change that puts messages into the request."""
    return {"messages": list(more)}


ACCEPTED: list[dict[str, Any]] = [
    {},
    {"anything": {"at": ["all"]}},
    *(
        {name: None}
        for name in ("max_tokens", "temperature", "top_k", "stream", "stop", "tools", "n", "seed")
    ),
    {"max_tokens": 1, "max_completion_tokens": 4096},
    {"max_tokens": 5.0},
    *({"temperature": value} for value in (0, 2, 1.5)),
    *({"top_p": value} for value in (0, 1)),
    *({"top_k": value} for value in (1, 100)),
    *({"presence_penalty": value, "frequency_penalty": value} for value in (-2, 2)),
    {"do_sample": True},
    {"stop": "a"},
    {"stop": ["a", "b"]},
    {"stream": True, "stream_options": {"include_usage": True}},
    {"stream": True, "stream_options": {"include_usage": None, "other": 1}},
    {"response_format": SCHEMA},
    {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": None, "strict": None},
        }
    },
    {"response_format": {"type": "json_object"}},
    {"response_format": None},
    *({"reasoning_effort": value} for value in ("low", "medium", "high", None)),
    {"tools": [TOOL], "tool_choice": "required"},
    {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
    {"tools": [TOOL] * 128},
    {"tool_choice": "auto", "parallel_tool_calls": False},
    {"chat_template_kwargs": {"enable_thinking": True, "other": None}},
    {"logprobs": True, "top_logprobs": 20},
    {"logprobs": True, "top_logprobs": 0},
    *({"n": value} for value in (1, 8)),
    {"logit_bias": {"50256": -100, "1": 100}},
    {"seed": -1},
    messages({"role": "system", "content": None}, USER),
    messages({"role": "system", "content": [{"type": "text", "text": "a"}]}, USER),
    messages(USER, {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}),
    messages(USER, {"role": "assistant", "content": "a", "reasoning": "b", "channel": None}),
    messages(USER, {"role": "tool", "content": "a", "tool_call_id": "x"}),
    messages({"role": "user", "content": ""}),
    messages({"role": "user", "content": []}),
    messages({"role": "user", "content": [{"type": "text", "text": "a"}]}),
    messages({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}),
    messages({"role": "user", "content": [{"type": "audio_content", "audio_content": {"content": "AA"}}]}),
    messages({"role": "user", "content": [{"type": "video_url", "video_url": {"url": "data:,"}}]}),
]

REFUSED: list[dict[str, Any]] = [
    {"model": 5},
    {"messages": "hello"},
    {"messages": []},
    *({"max_tokens": value} for value in ("5", 1.5, True)),
    *({"temperature": value} for value in (-0.1, 2.1, "1", True)),
    *({"top_p": value} for value in (-0.1, 1.1)),
    *({"top_k": value} for value in (0, 101, 1.5)),
    *({"presence_penalty": value} for value in (-2.1, 2.1)),
    *({"frequency_penalty": value} for value in (-2.1, 2.1, None)),
    {"do_sample": 1},
    {"stop": 5},
    {"stop": ["a", 5]},
    {"stream": "yes"},
    {"stream": True, "stream_options": {"include_usage": 1}},
    {"stream": True, "stream_options": []},
    {"response_format": "json"},
    {"response_format": {}},
    {"response_format": {"type": "xml"}},
    {"response_format": {"type": "json_schema"}},
    {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": []}}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": 1}}},
    {"reasoning_effort": "huge"},
    {"tools": [TOOL] * 129},
    {"tools": TOOL},
    {"tools": [{"type": "function"}]},
    {"tools": [{"function": {"name": "f"}}]},
    {"tools": [{"type": "function", "function": {}}]},
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
    {"tools": [TOOL], "tool_choice": "always"},
    {"tools": [TOOL], "tool_choice": {"type": "function"}},
    {"tools": [TOOL], "tool_choice": {"type": "other", "function": {"name": "f"}}},
    {"parallel_tool_calls": "no"},
    {"chat_template_kwargs": []},
    {"chat_template_kwargs": {"enable_thinking": "yes"}},
    {"logprobs": 1},
    {"logprobs": True, "top_logprobs": 21},
    {"logprobs": True, "top_logprobs": -1},
    *({"n": value} for value in (0, 9, 1.5)),
    {"logit_bias": []},
    {"seed": "x"},
    messages({"role": "user"}),
    messages({"content": "a"}),
    messages({"role": "developerrr", "content": "a"}),
    messages({"role": "user", "content": 5}),
    messages({"role": "user", "content": [{"type": "text"}]}),
    messages({"role": "user", "content": [{"type": "sound", "sound": {}}]}),
    messages({"role": "user", "content": [{"type": "image_url", "image_url": "data:,"}]}),
    messages({"role": "user", "content": [{"type": "image_url", "image_url": {"url": 5}}]}),
    messages({"role": "system", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}),
    messages(USER, {"role": "tool", "content": None}),
    messages(USER, {"role": "assistant", "content": "a", "tool_calls": [{"id": "x"}]}),
    messages(USER, {"role": "assistant", "content": "a", "tool_calls": [{"function": {"name": 5}}]}),
    messages(USER, {"role": "assistant", "content": "a", "tool_calls": [{"function": {}, "type": "x"}]}),
    messages(USER, {"role": "assistant", "content": "a", "tool_calls": [{"function": {}, "index": "x"}]}),
]


@pytest.mark.parametrize("change", ACCEPTED, ids=json.dumps)
def test_what_the_document_allows_is_accepted(
    validator_of: Callable[[str], Draft202012Validator], change: dict[str, Any]
) -> None:
    """The document's schema and the endpoint agree that a request is sound."""
    request = {**SOUND, **change}
    assert list(validator_of("ChatCompletionRequest").iter_errors(request)) == []
    assert check(request) is None


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: json.dumps(change)[:80])
def test_what_the_document_forbids_is_refused(
    validator_of: Callable[[str], Draft202012Validator], change: dict[str, Any]
) -> None:
    """The document's schema and the endpoint agree that a request is wrong."""
    request = {**SOUND, **change}
    assert list(validator_of("ChatCompletionRequest").iter_errors(request)) != []
    assert check(request) is not None


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_required_fields_are_required(
    validator_of: Callable[[str], Draft202012Validator], missing: str
) -> None:
    """A request without model or messages is refused."""
    request = {name: value for name, value in SOUND.items() if name != missing}
    assert list(validator_of("ChatCompletionRequest").iter_errors(request)) != []
    assert check(request) is not None


IN_WORDS: list[tuple[dict[str, Any], str | None]] = [
    (messages({"role": "user", "content": None}), "messages.[0].content"),
    ({"response_format": {"type": "text"}}, "response_format.type"),
    (
        {"response_format": {"type": "json_object"}, **messages({"role": "user", "content": "bread"})},
        "messages",
    ),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": False, "stream_options": {}}, "stream_options"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": False, "top_logprobs": 2}, "top_logprobs"),
    ({"tools": [{"type": "other", "function": {"name": "f"}}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"logit_bias": {"1": 101}}, "logit_bias.1"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
]


@pytest.mark.parametrize(("change", "param"), IN_WORDS, ids=lambda value: json.dumps(value)[:60])
def test_what_the_document_says_in_words_holds(change: dict[str, Any], param: str) -> None:
    """Rules that a schema cannot state are refused with the name of the parameter."""
    refusal = check({**SOUND, **change})
    assert refusal is not None
    assert (refusal.status, refusal.param) == (400, param)


@pytest.mark.parametrize("role", ["developer", "function"])
def test_the_roles_of_the_error_text_are_accepted(role: str) -> None:
    """The document's own error names two roles more than its schema."""
    assert check({**SOUND, **messages({"role": role, "content": "a"}, USER)}) is None


@pytest.mark.parametrize("body", [[], "x", 5, None])
def test_a_body_that_is_no_object_is_refused(body: object) -> None:
    """An array, a string, a number and null are no request."""
    assert check(body) is not None


ERRORS = {
    "empty_messages": {**SOUND, "messages": []},
    "invalid_role": {**SOUND, **messages({"role": "developerrr", "content": "a"})},
    "null_content": {**SOUND, **messages(*[USER] * 5, {"role": "user", "content": None})},
    "missing_model": {"messages": [USER]},
    "invalid_json": b"{",
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_those_of_the_document(
    validator_of: Callable[[str], Draft202012Validator], fake_endpoint: FakeEndpoint, name: str
) -> None:
    """For each example of a 400 in the document, the endpoint answers the same error."""
    document = YAML(typ="safe").load(DOCUMENT)
    answers = document["paths"]["/chat/completions"]["post"]["responses"]["400"]["content"][
        "application/json"
    ]
    body = ERRORS[name]
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = HTTP.post(f"{fake_endpoint.base_url}/chat/completions", content=content)
    assert response.status_code == 400
    validator_of("GeneralError").validate(response.json())
    assert response.json()["error"] == answers["examples"][name]["value"]["error"]
    assert response.json()["request_id"] == response.headers["x-request-id"]


ANSWERED: dict[str, dict[str, Any]] = {
    "plain": {},
    "several choices": {"n": 3},
    "cut": {"max_tokens": 2},
    "log probabilities": {"logprobs": True, "top_logprobs": 2},
    "reasoning": {"reasoning_effort": "high"},
    "a schema": {"response_format": SCHEMA},
    "an object": {"response_format": {"type": "json_object"}},
    "a tool call": {"tools": [TOOL], "tool_choice": "required"},
    "pictures": messages(
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    ),
}


@pytest.mark.parametrize("change", ANSWERED.values(), ids=ANSWERED.keys())
def test_answers_fit_the_document(
    validator_of: Callable[[str], Draft202012Validator], fake_endpoint: FakeEndpoint, change: dict[str, Any]
) -> None:
    """A whole answer is a `ChatCompletionResponse`, and its usage adds up."""
    response = HTTP.post(f"{fake_endpoint.base_url}/chat/completions", json={**SOUND, **change})
    body = response.json()
    validator_of("ChatCompletionResponse").validate(body)
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert [choice["index"] for choice in body["choices"]] == list(range(change.get("n", 1)))
    assert {"total_latency", "time_to_first_token", "start_time", "end_time"} <= usage.keys()


@pytest.mark.parametrize("change", ANSWERED.values(), ids=ANSWERED.keys())
def test_streams_fit_the_document_and_mean_the_same(
    validator_of: Callable[[str], Draft202012Validator], fake_endpoint: FakeEndpoint, change: dict[str, Any]
) -> None:
    """Every event is a `ChatCompletionStreamResponse`, and together they are the answer without stream."""
    url = f"{fake_endpoint.base_url}/chat/completions"
    whole = HTTP.post(url, json={**SOUND, **change}).json()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    response = HTTP.post(url, json={**SOUND, **change, **options})
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, done = list(_events(response.text))
    assert done == "[DONE]"
    chunks = [json.loads(event) for event in events]
    for chunk in chunks:
        validator_of("ChatCompletionStreamResponse").validate(chunk)
    assert chunks[-1]["choices"] == []
    counted = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [chunks[-1]["usage"][name] for name in counted] == [whole["usage"][name] for name in counted]
    for choice in whole["choices"]:
        assert _joined(chunks, choice["index"]) == _expected(choice)


def test_usage_comes_in_a_stream_only_when_asked_for(fake_endpoint: FakeEndpoint) -> None:
    """Without `include_usage` no event has a usage."""
    response = HTTP.post(f"{fake_endpoint.base_url}/chat/completions", json={**SOUND, "stream": True})
    assert "usage" not in response.text


def _events(text: str) -> Iterator[str]:
    for event in text.split("\n\n"):
        if event:
            assert event.startswith("data: ")
            yield event.removeprefix("data: ")


def _joined(chunks: list[dict[str, Any]], index: int) -> dict[str, Any]:
    """Put the deltas of one choice together."""
    made: dict[str, Any] = {
        "content": "",
        "reasoning": "",
        "arguments": "",
        "finish_reason": None,
        "tokens": [],
    }
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] != index:
                continue
            delta = choice["delta"]
            made["content"] += delta.get("content") or ""
            made["reasoning"] += delta.get("reasoning") or ""
            for call in delta.get("tool_calls") or ():
                made["arguments"] += call["function"]["arguments"]
            made["finish_reason"] = choice["finish_reason"] or made["finish_reason"]
            if choice["logprobs"]:
                made["tokens"] += choice["logprobs"]["content"]
    return made


def _expected(choice: dict[str, Any]) -> dict[str, Any]:
    message = copy.deepcopy(choice["message"])
    calls = message.get("tool_calls") or ()
    return {
        "content": message["content"] or "",
        "reasoning": message.get("reasoning") or "",
        "arguments": "".join(call["function"]["arguments"] for call in calls),
        "finish_reason": choice["finish_reason"],
        "tokens": (choice.get("logprobs") or {"content": []})["content"],
    }
