"""What goes out is the request and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from corpusmill.chat import wire
from corpusmill.chat.wire import Encoder
from corpusmill.endpoints import OpenAICompatible
from corpusmill.exchange import ChatRequest

PLAIN = OpenAICompatible("http://127.0.0.1/v1", 'a "model"')
STREAMING = OpenAICompatible("http://127.0.0.1/v1", "m", stream=True)

MESSAGES = [{"role": "user", "content": "Ž \u2028 \u0085 \x00 \n"}]


def sent(endpoint: OpenAICompatible, **fields: Any) -> dict[str, Any]:
    """Give the body that is sent for the same messages and these fields."""
    body = json.loads(Encoder(endpoint).encode(ChatRequest(messages=MESSAGES, **fields)))
    assert isinstance(body, dict)
    return body


def test_a_bare_request_is_model_and_messages() -> None:
    """Nothing is added that was not asked for."""
    assert sent(PLAIN) == {"model": 'a "model"', "messages": MESSAGES}


def test_parameters_and_ceiling_are_sent_as_they_are() -> None:
    """Null is absent; zero and unknown fields are not."""
    body = sent(PLAIN, parameters={"temperature": 0, "top_p": None, "x": {"b": 1, "a": None}}, ceiling=7)
    assert body == {
        "model": 'a "model"',
        "messages": MESSAGES,
        "temperature": 0,
        "x": {"b": 1, "a": None},
        "max_tokens": 7,
    }


def test_the_ceiling_takes_the_endpoint_s_name_for_it() -> None:
    """And a ceiling among the parameters does not travel beside it."""
    endpoint = OpenAICompatible("http://127.0.0.1/v1", "m", ceiling_field="max_completion_tokens")
    body = sent(endpoint, ceiling=7, parameters={"max_tokens": 100})
    assert body["max_completion_tokens"] == 7
    assert "max_tokens" not in body


def test_a_stream_is_asked_for_with_its_usage() -> None:
    """Without usage nobody would know what was paid; a user's own options hold."""
    body = sent(STREAMING, parameters={"stream_options": {"x": 1}})
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True, "x": 1})


def test_the_order_of_keys_inside_a_schema_is_kept() -> None:
    """It reaches the model and changes answers."""
    schema = {"type": "object", "properties": {"z": {}, "a": {}, "m": {}}}
    body = sent(PLAIN, parameters={"response_format": {"type": "json_schema", "json_schema": schema}})
    assert list(body["response_format"]["json_schema"]["properties"]) == ["z", "a", "m"]


def test_each_mapping_of_parameters_keeps_its_own_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many mappings, made and dropped, are never taken for one another, and are not all kept."""
    monkeypatch.setattr(wire, "KEPT", 4)
    encoder = Encoder(PLAIN)
    for seed in range(50):
        body = json.loads(encoder.encode(ChatRequest(messages=MESSAGES, parameters={"seed": seed})))
        assert body["seed"] == seed
        assert len(encoder._tails) <= 4


def test_half_a_surrogate_pair_is_an_error() -> None:
    """It is no text, and no replacement is made up for it here."""
    request = ChatRequest(messages=[{"role": "user", "content": "\ud800"}])
    with pytest.raises(UnicodeEncodeError):
        Encoder(PLAIN).encode(request)
