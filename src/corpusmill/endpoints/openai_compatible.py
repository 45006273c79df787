"""Any server that speaks the chat-completions protocol."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from corpusmill.endpoints.capabilities import Capabilities
from corpusmill.endpoints.endpoint import CeilingField, chat_url, identity_of, split_base_url
from corpusmill.endpoints.messages import check_messages
from corpusmill.endpoints.parameters import check_parameters
from corpusmill.endpoints.secret import Secret, clean_key, is_telling, redact
from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from corpusmill.exchange import Message

_OPENAI_HOST = "api.openai.com"


@dataclass(frozen=True, slots=True, init=False)
class OpenAICompatible:
    """A model behind an OpenAI-compatible server.

    Without `api_key` the key is taken from `CORPUSMILL_API_KEY`, for api.openai.com from `OPENAI_API_KEY`;
    without either no key is sent. `identity` says which model answers when the same one is reached by
    several routes; by default it is the normalised base URL and the model's name. `headers` are sent with
    every request. Raises `UsageError` for a URL, key or header that could not work, without showing the
    key.
    """

    base_url: str = field(repr=False)
    model: str
    url: str = field(repr=False)
    identity: str
    stream: bool
    ceiling_field: CeilingField
    capabilities: Capabilities
    headers: Mapping[str, str] = field(repr=False, hash=False)
    _key: Secret | None = field(repr=False)
    _key_variable: str = field(repr=False)

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        identity: str | None = None,
        stream: bool = False,
        headers: Mapping[str, str] | None = None,
        capabilities: Capabilities | None = None,
        context_tokens: int | None = None,
        ceiling_field: CeilingField | None = None,
    ) -> None:
        parts = split_base_url(base_url)
        at_openai = parts.hostname == _OPENAI_HOST
        put = object.__setattr__
        put(self, "base_url", parts.geturl())
        put(self, "model", checked_name(model, "model"))
        put(self, "url", chat_url(parts))
        put(
            self,
            "identity",
            identity_of(parts, model) if identity is None else checked_name(identity, "identity"),
        )
        put(self, "stream", stream)
        put(self, "ceiling_field", ceiling_field or ("max_completion_tokens" if at_openai else "max_tokens"))
        put(self, "capabilities", merged(capabilities, context_tokens))
        put(self, "headers", checked_headers(headers))
        put(self, "_key", None if api_key is None else Secret(clean_key(api_key, origin="api_key")))
        put(self, "_key_variable", "OPENAI_API_KEY" if at_openai else "CORPUSMILL_API_KEY")

    def auth_headers(self) -> dict[str, str]:
        """Give the headers that carry the key: none when there is no key."""
        key = self._reveal()
        return {} if key is None else {"authorization": f"Bearer {key}"}

    def missing_key(self) -> str | None:
        """Say that requests carry no key, and how to give one; None where they carry one, or a header that may be."""
        if self.auth_headers() or any(is_telling(name) for name in self.headers):
            return None
        return f"none was sent; set {self._key_variable}, or give api_key (on the command line --api-key-env NAME)"

    def check(self, parameters: Mapping[str, Any], messages: Sequence[Message] | None = None) -> None:
        """Raise `PromptError` for parameters or messages that the document does not allow."""
        check_parameters(parameters, capabilities=self.capabilities, stream=self.stream)
        if messages is not None:
            check_messages(messages, parameters, capabilities=self.capabilities)

    def redact(self, text: str) -> str:
        """Mask this endpoint's key, and whatever else looks like one, in a text that came from outside."""
        key = self._reveal()
        secrets = [value for name, value in self.headers.items() if is_telling(name)]
        return redact(text, secrets if key is None else [key, *secrets])

    def _reveal(self) -> str | None:
        if self._key is not None:
            return self._key.reveal()
        found = os.environ.get(self._key_variable)
        return (
            None
            if found is None
            else clean_key(found, origin=f"the environment variable {self._key_variable}")
        )


def checked_name(name: object, what: str) -> str:
    """Refuse a name that is no text, is blank, or could not be written down."""
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"{what} is {name!r}; it must be a text that is not blank")
    if any(character < " " or "\ud800" <= character <= "\udfff" for character in name):
        raise UsageError(f"{what} is {name!r}; it has a control character inside")
    return name


def checked_headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Refuse headers that could not be sent, naming them but not their values; give a copy, names lowered."""
    checked: dict[str, str] = {}
    for name, value in (headers or {}).items():
        if not name or not name.isascii() or any(c <= " " or c in ':"(),/;<=>?@[\\]{}\x7f' for c in name):
            raise UsageError(f"headers has the name {name!r}; a header's name is letters, digits and dashes")
        if not value.isascii() or any(c < " " or c == "\x7f" for c in value.strip()):
            raise UsageError(f"headers[{name!r}] must be ASCII text without control characters")
        checked[name.lower()] = value.strip()
    return checked


def merged(capabilities: Capabilities | None, context_tokens: int | None) -> Capabilities:
    """Give the capabilities, with the size of the context where it is given by itself."""
    known = Capabilities() if capabilities is None else capabilities
    return known if context_tokens is None else replace(known, context_tokens=context_tokens)
