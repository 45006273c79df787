"""Messages that the service would refuse are found before they are sent."""

from __future__ import annotations

from typing import Any

import pytest

from corpusmill.endpoints import Capabilities, check_messages
from corpusmill.errors import PromptError
from corpusmill.exchange import ROLES

JSON_MODE = {"response_format": {"type": "json_object"}}

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.mark.parametrize("role", sorted(ROLES))
def test_every_role_is_taken(role: str) -> None:
    """The document's roles, and `function`, which its error message names."""
    check_messages([{"role": role, "content": "x"}], {}, capabilities=Capabilities())


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "empty"),
        ([{"role": "developerrr", "content": "x"}], r"messages\[0\]\.role is 'developerrr'"),
        ([{"content": "x"}], r"messages\[0\]\.role is None"),
        (
            [{"role": "user", "content": "x"}, {"role": "user", "content": None}],
            r"messages\[1\]\.content is null",
        ),
        ([{"role": "user"}], "null"),
        ([{"role": "user", "content": 5}], "is a int"),
        ([{"role": "user", "content": ["x"]}], "must be an object with a type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "text must be text"),
    ],
)
def test_messages_that_would_be_refused_are_named(messages: list[dict[str, Any]], said: str) -> None:
    """The error says which message."""
    with pytest.raises(PromptError, match=said):
        check_messages(messages, {}, capabilities=Capabilities())


def test_an_assistant_may_have_said_nothing() -> None:
    """A message that only calls tools has null content."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    check_messages(messages, {}, capabilities=Capabilities())


@pytest.mark.parametrize(
    "content", ["Give JSON.", "give json", [{"type": "text", "text": "As JSON, please"}, IMAGE]]
)
def test_json_mode_is_allowed_where_a_message_asks_for_json(content: object) -> None:
    """The word may stand anywhere, in any case, in text or in a part."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "x"},
        {"role": "user", "content": content},
    ]
    check_messages(messages, JSON_MODE, capabilities=Capabilities())


def test_json_mode_without_the_word_json_is_refused() -> None:
    """The document demands that a message asks for JSON too."""
    with pytest.raises(PromptError, match="JSON"):
        check_messages(
            [{"role": "user", "content": "Give an object."}], JSON_MODE, capabilities=Capabilities()
        )


@pytest.mark.parametrize(
    ("kind", "capabilities"),
    [
        ("image_url", Capabilities(images=False)),
        ("audio_content", Capabilities(audio=False)),
        ("video_url", Capabilities(video=False)),
    ],
)
def test_parts_that_an_endpoint_does_not_take_are_refused(kind: str, capabilities: Capabilities) -> None:
    """A picture is not sent to a model that cannot see."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": kind}]}]
    with pytest.raises(PromptError, match=kind):
        check_messages(messages, {}, capabilities=capabilities)
    check_messages(messages, {}, capabilities=Capabilities())
