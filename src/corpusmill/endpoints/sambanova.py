"""SambaNova Cloud: the service whose OpenAPI document the request checks are taken from."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from corpusmill.endpoints.openai_compatible import OpenAICompatible
from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from corpusmill.endpoints.capabilities import Capabilities
    from corpusmill.endpoints.endpoint import CeilingField
    from corpusmill.exchange import Message

BASE_URL = "https://api.sambanova.ai/v1"

KEY_VARIABLE = "SAMBANOVA_API_KEY"

IGNORED = ("presence_penalty", "frequency_penalty")
"""The document: "Not currently implemented; accepted for API compatibility"."""


class IgnoredParameterWarning(UserWarning):
    """A parameter that the service accepts and does nothing with."""


@dataclass(frozen=True, slots=True, init=False)
class SambaNova(OpenAICompatible):
    """A model on SambaNova Cloud.

    Without `api_key` the key is taken from `SAMBANOVA_API_KEY` when the first request is made. Models are not
    checked against a list: the document's list is out of date the day it is printed.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str = BASE_URL,
        identity: str | None = None,
        stream: bool = False,
        headers: Mapping[str, str] | None = None,
        capabilities: Capabilities | None = None,
        context_tokens: int | None = None,
        ceiling_field: CeilingField | None = None,
    ) -> None:
        OpenAICompatible.__init__(
            self,
            base_url,
            model,
            api_key=api_key,
            identity=identity,
            stream=stream,
            headers=headers,
            capabilities=capabilities,
            context_tokens=context_tokens,
            ceiling_field=ceiling_field,
        )
        object.__setattr__(self, "_key_variable", KEY_VARIABLE)

    def auth_headers(self) -> dict[str, str]:
        """Give the header that carries the key; raise `UsageError` when there is none."""
        headers = OpenAICompatible.auth_headers(self)
        if not headers and "authorization" not in self.headers:
            raise UsageError(f"SambaNova needs a key: set {KEY_VARIABLE} or give api_key")
        return headers

    def check(self, parameters: Mapping[str, Any], messages: Sequence[Message] | None = None) -> None:
        """Raise `PromptError` for what the document does not allow; warn once of what the service ignores."""
        OpenAICompatible.check(self, parameters, messages)
        for name in IGNORED:
            if parameters.get(name):
                _warn_of(name)


@cache  # once per process, whatever filters are set
def _warn_of(name: str) -> None:
    warnings.warn(
        f"SambaNova accepts {name} and ignores it; leave it out, or expect no effect",
        IgnoredParameterWarning,
        stacklevel=3,
    )
