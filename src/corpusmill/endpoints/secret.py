"""Keys: where they come from, what they may look like, and that they are never shown.

A key that was given as an argument is held in a `Secret`; one that lies in the environment is read when it is
needed and held nowhere, so that an endpoint that relies on the environment can be pickled without it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

MASK = "***"

SHORTEST_MASKED = 6
"""Shorter secrets are not looked for in texts: masking `a` everywhere would hide the text, not the key."""

_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}")
_KEY_LIKE = re.compile(r"\b(?:sk|pk|gsk|hf|xai|key)[-_][A-Za-z0-9_-]{16,}")
_TELLING = re.compile(
    r"auth(?!ors?\b)|key(?!word)|token(?!s)|secret|cookie|passw|passphrase|pwd|credential|signature",
    re.IGNORECASE,
)


class Secret:
    """A text that shows itself as stars; `reveal` gives it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        """Hold the text."""
        self._text = text

    def reveal(self) -> str:
        """Give the text itself, for the wire only."""
        return self._text

    def __repr__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def clean_key(text: object, *, origin: str) -> str:
    """Give a key as it goes on the wire: without the blanks and line ends that copying leaves around it.

    `origin` says in an error where the key came from; the key itself is never shown. Raises `UsageError` for
    anything that could not travel in a header.
    """
    if not isinstance(text, str):
        raise UsageError(f"{origin} is a {type(text).__name__}; it must be text")
    key = text.strip().strip("\ufeff").strip()
    if not key:
        raise UsageError(f"{origin} is empty; give the key, or leave it out where the server wants none")
    if not key.isascii():
        raise UsageError(
            f"{origin} has characters outside ASCII; look for quotation marks or dashes from a document"
        )
    if any(character <= " " or character == "\x7f" for character in key):
        raise UsageError(f"{origin} has a blank or a control character inside; was more than the key copied?")
    return key


def is_telling(name: str) -> bool:
    """Tell whether a header, or a key of a job file, of this name is likely to carry a secret.

    Counts of tokens (`max_tokens`) and the like do not.
    """
    return _TELLING.search(name) is not None


def redact(text: str, secrets: Iterable[str]) -> str:
    """Mask the secrets in a text that a server wrote, and whatever else in it looks like a key."""
    for secret in secrets:
        if len(secret) >= SHORTEST_MASKED and secret in text:
            text = text.replace(secret, MASK)
    return _KEY_LIKE.sub(MASK, _BEARER.sub(rf"\1 {MASK}", text))
