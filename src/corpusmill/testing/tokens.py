"""Counting and cutting tokens, with the simplest rule that is deterministic: four characters are one token.

A text of `n` code points has `ceil(n / 4)` tokens, each of them a slice of the text, so that the tokens of a
text joined together are the text. Each message costs `MESSAGE_OVERHEAD` more, each picture, sound or film
`MEDIA_TOKENS`. No real tokeniser counts like this; what matters is that anybody can compute it by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKEN_CHARACTERS: Final = 4
MESSAGE_OVERHEAD: Final = 4
MEDIA_TOKENS: Final = 256


def count_tokens(text: str) -> int:
    """Number of tokens in `text`."""
    return -(-len(text) // TOKEN_CHARACTERS)


def split_tokens(text: str) -> list[str]:
    """Return the tokens of `text`; joined together they are `text`."""
    return [text[start : start + TOKEN_CHARACTERS] for start in range(0, len(text), TOKEN_CHARACTERS)]


def cut_tokens(text: str, ceiling: int) -> str:
    """Return the first `ceiling` tokens of `text`."""
    return text[: max(ceiling, 0) * TOKEN_CHARACTERS]


def content_text(content: object) -> str:
    """Text of a message's `content`: a string as it is, text parts joined, anything else nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(
            part["text"] for part in content if isinstance(part, dict) and part.get("type") == "text"
        )
    return ""


def count_prompt_tokens(messages: Sequence[dict[str, Any]]) -> int:
    """Tokens of all messages: their texts, an overhead for each, a flat price for parts that are no text."""
    total = 0
    for message in messages:
        content = message.get("content")
        total += MESSAGE_OVERHEAD + count_tokens(content_text(content))
        if isinstance(content, list):
            total += MEDIA_TOKENS * sum(
                part.get("type") != "text" for part in content if isinstance(part, dict)
            )
    return total
