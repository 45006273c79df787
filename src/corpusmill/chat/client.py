"""One HTTP attempt: a request goes out, a verdict comes back.

Nothing that a wire can do is raised from here; what is raised is a defect or a cancellation. The transport is
called directly, without the layers of a client that would follow redirects, keep cookies or try again.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import httpx

from corpusmill.chat.body import Body, Held, TooLargeError
from corpusmill.chat.classify import classify
from corpusmill.chat.transport import PooledTransport
from corpusmill.chat.transport_connection import Exchange
from corpusmill.chat.verdict import RetryAfter, RowFailed, RunEnds
from corpusmill.chat.waits import NAMES
from corpusmill.chat.wire import Encoder
from corpusmill.endpoints import OpenAICompatible
from corpusmill.endpoints.endpoint import shown_url
from corpusmill.errors import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpusmill.chat.transport import Prepared, Timeouts
    from corpusmill.chat.verdict import Verdict
    from corpusmill.endpoints import Endpoint
    from corpusmill.exchange import ChatRequest

_READ = NAMES | {
    "x-request-id",
    "request-id",
    "location",
    "content-encoding",
    "x-amzn-errortype",
    "x-amzn-requestid",
}
_REMEMBERED = 512

_FAULTS = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError, EOFError)


class Client(Protocol):
    """What makes one attempt at one endpoint."""

    async def send(self, request: ChatRequest, *, deadline: float | None = None) -> Verdict:
        """Make one attempt, in at most `deadline` seconds; nothing that a wire can do is raised."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


class ChatClient:
    """Asks one endpoint. It belongs to the event loop that it is first used in."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        transport: httpx.AsyncBaseTransport,
        timeouts: Timeouts | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        judge: Callable[..., Verdict] = classify,
        largest_request: int | None = None,
    ) -> None:
        """Prepare what all requests share.

        `clock` measures attempts, `wall` gives the Unix time that dates in headers are compared with. `judge` has the
        signature of `classify`. A body of more than `largest_request` bytes fails its row before it is sent. Raises
        `UsageError` when the endpoint needs a key and has none.
        """
        self._judge = judge
        self._largest_request = largest_request
        self._endpoint = endpoint
        self._transport = transport
        self._clock = clock
        self._wall = wall
        self._encode = Encoder(endpoint).encode
        self._url = httpx.URL(endpoint.url)
        self._shown = shown_url(endpoint.url)
        headers = {
            "host": self._url.netloc.decode("ascii"),
            "content-type": "application/json",
            "accept": "text/event-stream, application/json" if endpoint.stream else "application/json",
            "accept-encoding": "gzip",
            "user-agent": "corpusmill",
            **endpoint.headers,
            **endpoint.auth_headers(),
        }
        self._headers = httpx.Headers(headers, encoding="ascii")
        self._extensions = {} if timeouts is None else {"timeout": _phases(timeouts)}
        self._lean = _lean(transport, self._request(b""))
        self._names: dict[bytes, str | None] = {}
        self._held = Held()

    async def send(self, request: ChatRequest, *, deadline: float | None = None) -> Verdict:
        """Make one attempt. What has come at the deadline is an answer where nothing is missing from it."""
        started = self._clock()
        try:
            body = self._encode(request)
        except (UnicodeEncodeError, TypeError, ValueError, OverflowError) as error:
            # The text of the error may quote the row.
            return RowFailed(
                kind="unsendable", reason=f"the request cannot be written as JSON: {type(error).__name__}"
            )
        if self._largest_request is not None and len(body) > self._largest_request:
            return RowFailed(
                kind="too_large",
                reason=f"the request has {len(body)} bytes; the endpoint takes {self._largest_request}",
            )
        stream: httpx.AsyncByteStream | httpx.SyncByteStream
        limit = asyncio.timeout(deadline)
        try:
            async with limit:
                if self._lean is not None:
                    pool, prepared = self._lean
                    exchange = await pool.ask(prepared, body)
                    status, raw, stream = exchange.status, exchange.headers, exchange
                else:
                    response = await self._transport.handle_async_request(self._request(body))
                    status, raw, stream = response.status_code, response.headers.raw, response.stream
        except _FAULTS as error:
            if limit.expired():
                return self._too_slow(started)
            return self._verdict(request, started, headers={}, error=error)
        if not isinstance(stream, httpx.AsyncByteStream):
            raise TypeError("the transport gave a response that cannot be read asynchronously")
        return await self._read(request, status, raw, stream, started, until=limit.when())

    def _request(self, body: bytes) -> httpx.Request:
        headers = httpx.Headers(self._headers)
        # A transport may go by it; httpx would set it too, after taking the body apart at ten times the cost.
        headers["content-length"] = str(len(body))
        return httpx.Request(
            "POST",
            self._url,
            headers=headers,
            stream=httpx.ByteStream(body),
            extensions=self._extensions,
        )

    async def _read(
        self,
        request: ChatRequest,
        status: int,
        raw: list[tuple[bytes, bytes]],
        stream: httpx.AsyncByteStream,
        started: float,
        *,
        until: float | None,
    ) -> Verdict:
        headers = self._interesting(raw)
        streamed = self._endpoint.stream and 200 <= status < 300  # noqa: PLR2004 - success
        coded = "content-encoding" in headers
        if (
            isinstance(stream, Exchange)
            and not streamed
            and not coded
            and (whole := stream.whole()) is not None
        ):
            # Nearly every answer: its body came together with its head.
            return self._verdict(request, started, status=status, headers=headers, body=whole)
        body = Body(status, self._held, streamed=streamed)
        try:
            decoded = httpx.Response(status, headers=raw, stream=stream).aiter_bytes() if coded else stream
            await body.read(stream, aiter(decoded), until=until)
        except TooLargeError as error:
            return RowFailed(
                kind="answer_too_large",
                reason=str(error),
                possibly_paid=True,
                seconds=self._clock() - started,
            )
        finally:
            await stream.aclose()
        came = body.result()
        if body.overdue and came["error"] is not None:
            return self._too_slow(started)
        return self._verdict(request, started, status=status, headers=headers, **came)

    def _too_slow(self, started: float) -> RetryAfter:
        """Give the verdict at the deadline: a server that drips, or sends signs of life, is on time in every phase."""
        seconds = self._clock() - started
        return RetryAfter(
            kind="too_slow",
            reason=f"no whole answer by the row's deadline, after {seconds:.3g} s",
            possibly_paid=True,
            seconds=seconds,
        )

    def _verdict(self, request: ChatRequest, started: float, **came: Any) -> Verdict:
        verdict = self._judge(
            **came,
            now=self._wall(),
            seconds=self._clock() - started,
            url=self._shown,
            redact=self._endpoint.redact,
            model=self._endpoint.model,
            request=request,
        )
        if isinstance(verdict, RunEnds) and isinstance(verdict.error, AuthenticationError):
            return self._with_what_is_missing(verdict)
        return verdict

    def _with_what_is_missing(self, verdict: RunEnds) -> RunEnds:
        """Say of a refused key that there was none: who forgot it looks for a wrong one."""
        missing = self._endpoint.missing_key() if isinstance(self._endpoint, OpenAICompatible) else None
        if missing is None:
            return verdict
        return replace(verdict, error=AuthenticationError(f"{verdict.error}: {missing}"))

    def _interesting(self, raw: list[tuple[bytes, bytes]]) -> dict[str, str]:
        found: dict[str, str] = {}
        names = self._names
        for name, value in raw:
            key = names.get(name, "")
            if key == "":
                lowered = name.decode("latin-1").lower()
                key = lowered if lowered in _READ else None
                if len(names) < _REMEMBERED:
                    names[name] = key
            if key is not None:
                found[key] = value.decode("latin-1")
        return found

    async def aclose(self) -> None:
        """Close the transport and its connections."""
        await self._transport.aclose()


def _lean(
    transport: httpx.AsyncBaseTransport, request: httpx.Request
) -> tuple[PooledTransport, Prepared] | None:
    """Give the short way to the transport, where it has one for requests like this one."""
    if not isinstance(transport, PooledTransport):
        return None
    try:
        prepared = transport.prepare(request)
    except httpx.LocalProtocolError:
        return None  # Each request will fail in the same way, and is told why.
    return None if prepared is None else (transport, prepared)


def _phases(timeouts: Timeouts) -> dict[str, float | None]:
    # Nobody waits for a connection with the clock running: permits are given out before.
    return {"connect": timeouts.connect, "read": timeouts.read, "write": timeouts.write, "pool": None}
