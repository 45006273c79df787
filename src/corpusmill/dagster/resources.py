"""What the assets of a code location share: who is asked, where answers are kept, how fast may be asked.

Keys are given as `dg.EnvVar`, so that they are read where a run runs, and stand neither in the definitions nor in the
web interface.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from corpusmill.errors import UsageError
from corpusmill.policy import Limits, Mode

if TYPE_CHECKING:
    from corpusmill.endpoints import Endpoint

_USUAL = Limits()


class EndpointResource(dg.ConfigurableResource[Any], ABC):
    """Who is asked. An asset may name its own model; `model` is for those that do not."""

    model: str | None = Field(default=None, description="the model that is asked where an asset names none")
    api_key: str | None = Field(default=None, repr=False, description="the key, as dg.EnvVar")
    headers: dict[str, str] | None = Field(
        default=None, repr=False, description="further headers of every request"
    )
    identity: str | None = Field(
        default=None, description="which model answers, when several routes lead to it; only with model"
    )
    stream: bool = Field(default=False, description="ask for answers in pieces")
    context_tokens: int | None = Field(default=None, description="tokens of prompt and answer together")

    @abstractmethod
    def endpoint(self, model: str | None = None) -> Endpoint:
        """Give the endpoint for a model; raise `UsageError` when neither the asset nor the resource names one."""

    def _model(self, model: str | None) -> str:
        chosen = model or self.model
        if chosen is None:
            raise UsageError(
                f"no model is named: give model to the asset, or to its {type(self).__name__} for all assets"
            )
        return chosen

    def _identity(self, model: str | None) -> str | None:
        # An identity stands for one model, and must not be handed to another.
        return self.identity if model in {None, self.model} else None


class SambaNovaResource(EndpointResource):
    """SambaNova Cloud. Without `api_key` the key is taken from SAMBANOVA_API_KEY where the run runs."""

    base_url: str | None = Field(default=None, description="another address of the service")

    def endpoint(self, model: str | None = None) -> Endpoint:
        """Give the endpoint for a model."""
        from corpusmill.endpoints import SambaNova

        address: dict[str, Any] = {} if self.base_url is None else {"base_url": self.base_url}
        return SambaNova(
            self._model(model),
            api_key=self.api_key,
            identity=self._identity(model),
            stream=self.stream,
            headers=self.headers,
            context_tokens=self.context_tokens,
            **address,
        )


class OpenAICompatibleResource(EndpointResource):
    """Any server that speaks the chat-completions protocol."""

    base_url: str = Field(description="such as https://llm.example.org/v1")

    def endpoint(self, model: str | None = None) -> Endpoint:
        """Give the endpoint for a model."""
        from corpusmill.endpoints import OpenAICompatible

        return OpenAICompatible(
            self.base_url,
            self._model(model),
            api_key=self.api_key,
            identity=self._identity(model),
            stream=self.stream,
            headers=self.headers,
            context_tokens=self.context_tokens,
        )


class StoreResource(dg.ConfigurableResource[Any]):
    """Where answers are kept: one store for all assets, so that none asks what another has paid for."""

    url: str = Field(repr=False, description="such as sqlite:////var/lib/corpusmill/store.db")
    mode: Mode = Field(default="read-write", description="how the store is used")


class LimitsResource(dg.ConfigurableResource[Any]):
    """How fast the endpoint may be asked by each run."""

    concurrency: int = Field(
        default=_USUAL.concurrency, description="the most requests that are sent and not yet kept"
    )
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    patience: float = Field(
        default=_USUAL.patience, description="seconds that the endpoint may be down before a run ends"
    )
    connect_timeout: float = Field(default=_USUAL.connect_timeout, description="seconds")
    read_timeout: float = Field(default=_USUAL.read_timeout, description="seconds")

    def limits(self) -> Limits:
        """Give the limits; raise `UsageError` for values that could not mean anything."""
        return Limits(
            concurrency=self.concurrency,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
            patience=self.patience,
            connect_timeout=self.connect_timeout,
            read_timeout=self.read_timeout,
        )
