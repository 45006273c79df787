"""An endpoint that needs no key and no network: the fake one, started by each run for itself."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from pydantic import PrivateAttr

from corpusmill import OpenAICompatible
from corpusmill.dagster import EndpointResource
from corpusmill.testing import FakeEndpoint


class FakeResource(EndpointResource):
    """A fake endpoint on loopback. It has another port each time, and is the same endpoint to the store."""

    _base_url: str = PrivateAttr(default="")

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator["FakeResource"]:  # noqa: ARG002
        """Serve while the run goes on."""
        with FakeEndpoint(latency=0.02) as server:
            self._base_url = server.base_url
            yield self

    def endpoint(self, model: str | None = None) -> OpenAICompatible:
        """Give the endpoint for a model."""
        name = model or self.model or "fake"
        return OpenAICompatible(self._base_url, name, identity=f"fake {name}")
