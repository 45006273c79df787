"""What carries an HTTP request: one transport for a run, with a time-out for each phase and no hidden total.

A request is sent once: neither retries nor redirects happen below the caller, who alone knows what was paid.
A transport belongs to the event loop that it is first used in and holds nothing global, so it may be made
after a fork and in any thread.

Proxies are those of the environment when the transport is made: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`,
but not for hosts that `NO_PROXY` names, nor for this machine itself. What goes through a proxy is carried
by httpx's own transport, which is slower. Certificates are verified against certifi's authorities, or those
that `SSL_CERT_FILE` or `SSL_CERT_DIR` name.
"""

from __future__ import annotations

import asyncio
import ipaddress
import urllib.request
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx

from corpusmill.chat.transport_connection import FRAMING, Connection, Exchange

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    Phases = Mapping[str, float | None]
    Origin = tuple[str, str, int | None]

IDLE = 4.0
"""Seconds for which a connection may rest and still be used again. Common servers close theirs after five; a
request that meets the closing on its way may have been paid for and is never answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long each phase of a call may last, in seconds. Phases are never summed, and there is no total."""

    connect: float = 10.0
    """Until a connection stands, name look-up and TLS handshake included."""
    read: float = 600.0
    """Until the first byte of the response, and from then on between two pieces of it."""
    write: float = 60.0
    """Between two moments at which the peer takes bytes of the request."""


def default_transport(*, connections: int, timeouts: Timeouts) -> httpx.AsyncBaseTransport:
    """Return a transport that holds at most `connections` connections open.

    A request beyond that waits for its turn, without limit unless it brings a `pool` time-out. The time-outs
    of a request (`extensions["timeout"]`, as httpx has them) go before `timeouts`, phase by phase.
    """
    return PooledTransport(connections=connections, timeouts=timeouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What many requests share: everything but the body, worked out once. Made by `PooledTransport.prepare`."""

    request: httpx.Request
    origin: Origin
    head: bytes
    phases: Phases


class PooledTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1 over connections that are kept and used again."""

    def __init__(self, *, connections: int, timeouts: Timeouts) -> None:
        if connections < 1:
            raise ValueError("connections must be at least 1")
        self._timeouts = timeouts
        self._limit = connections
        self._permits = connections
        self._turns: deque[asyncio.Future[None]] = deque()
        self._idle: dict[Origin, list[Connection]] = {}
        self._open: dict[Connection, Origin] = {}
        self._busy: set[Connection] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ssl: ssl.SSLContext | None = None
        self._proxies = urllib.request.getproxies_environment()
        self._proxied: dict[str, httpx.AsyncHTTPTransport] = {}
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request, once, and return its response when the head is there.

        Raises:
            httpx.TransportError: Of the kind that says how far the exchange got: up to `ConnectError` and
                `ConnectTimeout` nothing of the request was sent.
            RuntimeError: The transport is closed, or was used in another event loop.
        """
        url = request.url
        origin = (url.scheme, url.host, url.port)
        phases: Phases = request.extensions.get("timeout", {})
        message = await self._message(request)
        if self._proxies and (proxy := proxy_for(origin, self._proxies)) is not None:
            self._use()
            return await self._through(proxy, phases, request)
        exchange = await self._send(request, origin, message, phases)
        return httpx.Response(exchange.status, headers=exchange.headers, stream=exchange, request=request)

    def prepare(self, request: httpx.Request) -> Prepared | None:
        """Work out what requests like this one share, for `ask`; None when they have to go through a proxy.

        Raises:
            httpx.LocalProtocolError: The head cannot be written.
        """
        url = request.url
        origin = (url.scheme, url.host, url.port)
        if self._proxies and proxy_for(origin, self._proxies) is not None:
            return None
        return Prepared(
            request=request,
            origin=origin,
            head=self._head_of(request),
            phases=request.extensions.get("timeout", {}),
        )

    async def ask(self, prepared: Prepared, body: bytes) -> Exchange:
        """Do as `handle_async_request` does with a body of this request, without the objects of httpx around it.

        Building those anew takes about as long as everything else that a request costs here.
        """
        message = b"%bContent-Length: %d\r\n\r\n%b" % (prepared.head, len(body), body)
        return await self._send(prepared.request, prepared.origin, message, prepared.phases)

    def _use(self) -> asyncio.AbstractEventLoop:
        """See that the transport is open and in its loop, which it takes at the first use."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                raise RuntimeError("a transport belongs to one event loop; make one for each")
            self._loop = loop
        if self._closed:
            raise RuntimeError("this transport is closed")
        return loop

    async def _send(self, request: httpx.Request, origin: Origin, message: bytes, phases: Phases) -> Exchange:
        """Write a message as soon as there is a connection, and wait for the head of the response."""
        loop = self._use()
        if self._permits:
            self._permits -= 1
        else:
            await self._turn(phases, request)
        try:
            connection = self._rested(origin, loop.time()) or await self._connect(origin, phases, request)
        except BaseException:
            self._release()
            raise
        self._busy.add(connection)
        exchange = connection.send(
            request,
            message,
            read=phases.get("read", self._timeouts.read),
            write=phases.get("write", self._timeouts.write),
        )
        await exchange.head()
        return exchange

    async def aclose(self) -> None:
        """Close every connection. What is under way ends in an `httpx.ReadError`."""
        self._closed = True
        for connection in list(self._open):
            connection.close()
        for proxied in self._proxied.values():
            await proxied.aclose()
        # The sockets themselves are closed when the loop comes round.
        await asyncio.sleep(0)

    def reusable(self, connection: Connection) -> None:
        """Keep a connection whose exchange is complete."""
        self._busy.discard(connection)
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.setdefault(self._open[connection], []).append(connection)
        self._release()

    def spent(self, connection: Connection) -> None:
        """Forget a connection that is over."""
        origin = self._open.pop(connection, None)
        if origin is None:
            return
        if connection in self._busy:
            self._busy.discard(connection)
            self._release()
        elif connection in (idle := self._idle[origin]):
            idle.remove(connection)

    async def _message(self, request: httpx.Request) -> bytes:
        """Return the bytes of a request, its body whole and framed by its length."""
        stream = request.stream
        body = b"".join(stream) if isinstance(stream, httpx.SyncByteStream) else await request.aread()
        head = self._head_of(request)
        if not body and request.method in ("GET", "HEAD"):
            return head + b"\r\n"
        return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)

    @staticmethod
    def _head_of(request: httpx.Request) -> bytes:
        fields = [field for field in request.headers.raw if field[0].lower() not in FRAMING]
        if not any(name.lower() == b"host" for name, _ in fields):
            fields.append((b"Host", request.url.netloc))
        try:
            return wire_head(request.method, request.url.raw_path, fields)
        except ValueError as broken:
            raise httpx.LocalProtocolError(str(broken), request=request) from None

    async def _turn(self, phases: Phases, request: httpx.Request) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            async with asyncio.timeout(phases.get("pool")):
                await turn
        except BaseException as broken:
            if turn.done() and not turn.cancelled():
                self._release()
            if isinstance(broken, TimeoutError):
                raise httpx.PoolTimeout("no connection became free", request=request) from None
            raise

    def _release(self) -> None:
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._permits += 1

    def _rested(self, origin: Origin, now: float) -> Connection | None:
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.idle_since + IDLE > now:
                return connection
            connection.close()
        return None

    async def _connect(self, origin: Origin, phases: Phases, request: httpx.Request) -> Connection:
        loop = asyncio.get_running_loop()
        scheme, host, port = origin
        if scheme == "https":
            if self._ssl is None:
                self._ssl = httpx.create_ssl_context()
        elif scheme != "http":
            raise httpx.UnsupportedProtocol("only http and https are spoken here", request=request)
        self._make_room()
        try:
            async with asyncio.timeout(phases.get("connect", self._timeouts.connect)):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop, self),
                    host,
                    port or (443 if scheme == "https" else 80),
                    ssl=self._ssl if scheme == "https" else None,
                    happy_eyeballs_delay=0.25,
                )
        except TimeoutError:
            raise httpx.ConnectTimeout("no connection in time", request=request) from None
        except (OSError, UnicodeError) as failure:
            raise httpx.ConnectError(f"no connection: {failure}", request=request) from failure
        if connection.closed:
            raise httpx.ConnectError("no connection: closed as soon as it stood", request=request)
        self._open[connection] = origin
        return connection

    def _make_room(self) -> None:
        """Close the oldest idle connections, those to other hosts, that there is no permit for."""
        excess = len(self._open) - len(self._busy) - self._permits
        if excess > 0:
            for connection in [each for each in self._open if each not in self._busy][:excess]:
                connection.close()

    async def _through(self, proxy: str, phases: Phases, request: httpx.Request) -> httpx.Response:
        carrier = self._proxied.get(proxy)
        if carrier is None:
            limits = httpx.Limits(max_connections=self._limit, max_keepalive_connections=self._limit)
            carrier = self._proxied[proxy] = httpx.AsyncHTTPTransport(proxy=proxy, limits=limits)
        own = self._timeouts
        request.extensions["timeout"] = {
            "connect": own.connect, "read": own.read, "write": own.write, "pool": None, **phases
        }  # fmt: skip
        return await carrier.handle_async_request(request)


def proxy_for(origin: Origin, proxies: Mapping[str, str]) -> str | None:
    """Return the address of the proxy for an origin (scheme, host, port), or None to go there directly.

    `proxies` is as `urllib.request.getproxies_environment` returns it: the address of a proxy by scheme, and
    under `no` the hosts that are reached without.
    """
    scheme, host, port = origin
    if host == "localhost" or host.endswith(".localhost"):
        return None
    try:
        if ipaddress.ip_address(host).is_loopback:
            return None
    except ValueError:
        pass  # a name
    named = f"{host}:{port or (443 if scheme == 'https' else 80)}"
    for entry in proxies.get("no", "").lower().split(","):
        suffix = entry.strip().lstrip("*").lstrip(".")
        if entry.strip() == "*" or (suffix and f".{host}".endswith(f".{suffix}")) or suffix == named:
            return None
    proxy = proxies.get(scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy or None


def wire_head(method: str, target: bytes, fields: list[tuple[bytes, bytes]]) -> bytes:
    """Return the head of a request as HTTP/1.1 has it, without the line that says how long the body is.

    Raises:
        ValueError: A part would break it. The message does not quote it: it may be a key.
    """
    lines = [b"%b %b HTTP/1.1\r\n" % (method.encode("ascii"), target)]
    lines += [b"%b: %b\r\n" % field for field in fields]
    head = b"".join(lines)
    if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
        raise ValueError("the head of the request holds a line break or a NUL")
    return head
