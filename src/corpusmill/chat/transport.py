"""What carries an HTTP request: one transport for a run, with a time-out for each phase and no hidden total.

A transport is built inside the run that uses it, after any fork, and is closed with `aclose()`. It sends a request
once: neither retries nor redirects happen below the caller, who alone knows what was paid for.
"""

from __future__ import annotations

from dataclasses import dataclass

import httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long each phase of a call may last, in seconds. Phases are never summed, and there is no total."""

    connect: float = 10.0
    """Until a connection stands, name look-up and TLS handshake included."""
    read: float = 600.0
    """Until the first byte of the response, and from then on between two reads."""
    write: float = 60.0
    """Between two moments at which the peer takes bytes of the request."""


def default_transport(*, connections: int, timeouts: Timeouts) -> httpx.AsyncBaseTransport:
    """Return a transport that keeps at most `connections` open connections."""
    return _Phased(connections, timeouts)


class _Phased(httpx.AsyncBaseTransport):
    """httpx's own transport, with time-outs for the requests that bring none."""

    def __init__(self, connections: int, timeouts: Timeouts) -> None:
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._inner = httpx.AsyncHTTPTransport(limits=limits)
        self._timeouts = {"connect": timeouts.connect, "read": timeouts.read, "write": timeouts.write, "pool": None}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.extensions.setdefault("timeout", self._timeouts)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()
