"""The check of messages, fast enough to be made for every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from corpusmill.errors import PromptError
from corpusmill.exchange import ROLES, content_text

if TYPE_CHECKING:
    from corpusmill.endpoints.capabilities import Capabilities
    from corpusmill.exchange import Message

_PART_CAPABILITY = {
    "image_url": "images",
    "audio_content": "audio",
    "video_url": "video",
    "video_content": "video",
}
"""Parts by their type. The document has `video_url` as the type and calls its schema video content."""


def check_messages(
    messages: Sequence[Message], parameters: Mapping[str, Any], *, capabilities: Capabilities
) -> None:
    """Raise `PromptError` for messages that the service would refuse, naming the message by its position.

    With `response_format` of type `json_object` a message must ask for JSON by that word: the document
    demands it.
    """
    if not messages:
        raise PromptError("messages is empty; a request needs at least one message")
    for position, message in enumerate(messages):
        role = message.get("role")
        if role not in ROLES:
            raise PromptError(
                f"messages[{position}].role is {role!r}; it must be one of {', '.join(sorted(ROLES))}"
            )
        content = message.get("content")
        if isinstance(content, str):
            continue
        if content is None:
            if role in {"user", "tool"}:
                raise PromptError(f"messages[{position}].content is null; a message of the {role} needs text")
        else:
            _check_parts(f"messages[{position}].content", content, capabilities)
    wanted = parameters.get("response_format")
    if isinstance(wanted, Mapping) and wanted.get("type") == "json_object" and not _asks_for_json(messages):
        raise PromptError("response_format is json_object; a message must then ask for it with the word JSON")


def _check_parts(path: str, content: object, capabilities: Capabilities) -> None:
    if not isinstance(content, list | tuple):
        raise PromptError(f"{path} is a {type(content).__name__}; it must be text or a list of parts")
    for position, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(kind, str):
            raise PromptError(f"{path}[{position}] must be an object with a type")
        if kind == "text" and not isinstance(part.get("text"), str):
            raise PromptError(f"{path}[{position}].text must be text")
        capability = _PART_CAPABILITY.get(kind)
        if capability is not None and not getattr(capabilities, capability):
            raise PromptError(f"{path}[{position}] is of type {kind}; this endpoint takes no {capability}")


def _asks_for_json(messages: Sequence[Message]) -> bool:
    return any("json" in (content_text(message.get("content")) or "").lower() for message in messages)
