"""One attempt at a SageMaker endpoint: signed, sent, freed of frames, judged.

A call that the service gave up waiting for is asked again as a stream, which may take minutes where a plain call
gets one. Credentials that the service calls expired are looked for anew, once.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from corpusmill.chat.client import ChatClient
from corpusmill.chat.eventstream import EventStreamTransport
from corpusmill.chat.sagemaker_verdicts import EXPIRED, TIMED_OUT, classify_sagemaker
from corpusmill.chat.sigv4 import Signer, SigningTransport
from corpusmill.chat.verdict import RetryAfter, RunEnds
from corpusmill.endpoints.sagemaker import SageMakerEndpoint
from corpusmill.errors import AuthenticationError, EndpointError
from corpusmill.fingerprint import digest

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from corpusmill.chat.client import Client
    from corpusmill.chat.transport import Timeouts
    from corpusmill.chat.verdict import Verdict
    from corpusmill.endpoints import Endpoint
    from corpusmill.exchange import ChatRequest

REMEMBERED = 10_000
"""Requests that are remembered as too slow for a plain call."""

_encode = msgspec.json.Encoder().encode


class SageMakerClient:
    """Asks one SageMaker endpoint. It belongs to the event loop that it is made in."""

    def __init__(
        self,
        endpoint: SageMakerEndpoint,
        *,
        transport: httpx.AsyncBaseTransport,
        timeouts: Timeouts | None = None,
        signer: Signer | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Prepare what all requests share; credentials are looked for with the first of them."""
        self._endpoint = endpoint
        self._signer = signer or Signer(
            region=endpoint.region, profile=endpoint.profile, credentials=endpoint.credentials
        )
        self._transport = transport
        signing = SigningTransport(transport, self._signer)

        def client(of: SageMakerEndpoint, by: httpx.AsyncBaseTransport) -> ChatClient:
            return ChatClient(
                of,
                transport=by,
                timeouts=timeouts,
                clock=clock,
                wall=wall,
                judge=classify_sagemaker,
                largest_request=endpoint.max_body_bytes,
            )

        self._streaming = client(endpoint.as_stream(), EventStreamTransport(signing))
        self._plain = self._streaming if endpoint.stream else client(endpoint, signing)
        self._slow: OrderedDict[bytes, None] = OrderedDict()

    async def send(self, request: ChatRequest, *, deadline: float | None = None) -> Verdict:
        """Make one attempt, as `ChatClient.send` does; looking for credentials is not under its deadline."""
        try:
            credentials = await self._signer.credentials()
            verdict = await self._route(request).send(request, deadline=deadline)
            if isinstance(verdict, RetryAfter) and verdict.kind == EXPIRED:
                if await self._signer.renew(credentials):
                    return verdict
                return _expired(verdict, self._endpoint.profile)
        except EndpointError as error:
            return RunEnds(error=error)
        if isinstance(verdict, RetryAfter) and verdict.kind == TIMED_OUT:
            self._slow[digest(_encode(request.messages))] = None
            if len(self._slow) > REMEMBERED:
                self._slow.popitem(last=False)
        return verdict

    def _route(self, request: ChatRequest) -> ChatClient:
        if self._slow and digest(_encode(request.messages)) in self._slow:
            return self._streaming
        return self._plain

    async def aclose(self) -> None:
        """Close the transport and its connections."""
        await self._transport.aclose()


def _expired(verdict: RetryAfter, profile: str | None) -> RunEnds:
    how = f"aws sso login --profile {profile}" if profile else "aws sso login"
    text = (
        f"{verdict.reason}; no fresh credentials were found: log in again (`{how}`) and run the same command"
    )
    return RunEnds(error=AuthenticationError(text), request_id=verdict.request_id, seconds=verdict.seconds)


def open_client(
    endpoint: Endpoint, *, transport: httpx.AsyncBaseTransport, timeouts: Timeouts | None = None
) -> Client:
    """Give the client that speaks an endpoint's language."""
    if isinstance(endpoint, SageMakerEndpoint):
        return SageMakerClient(endpoint, transport=transport, timeouts=timeouts)
    return ChatClient(endpoint, transport=transport, timeouts=timeouts)
