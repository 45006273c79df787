"""How fast the candidates for the transport are, side by side against a canned server on loopback.

    python benchmarks/transport.py [--seconds 2] [--rounds 3] [--in-flight 64 512] [--only ours httpx]

The whole path is measured, from `httpx.Request` to the bytes of the response, in one process. Rounds are
interleaved, so that what else the machine does falls on all alike; ratios are what counts, and processor time
(all threads together) is what other load disturbs least. Candidates whose packages are missing are named and left
out (`pip install httpx-aiohttp pyreqwest`).

`tests/chat/test_transport.py` takes its candidates from here.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import socket
import statistics
import string
import subprocess
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from corpusmill.chat.transport import Timeouts, default_transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    Make = Callable[..., httpx.AsyncBaseTransport]
    Ask = Callable[[httpx.AsyncBaseTransport, httpx.URL], Coroutine[None, None, bytes]]

TEXT = (
    "The weather in the mountains changes fast, and whoever goes there without a coat comes to regret it. "
    "We had been told so by everybody in the village, and still we set out in shirts. "
)
BODY = (
    b'{"messages":[{"role":"user","content":"Translate the following text from English to Latvian: %b"}],'
    b'"model":"canned","temperature":0}' % (TEXT * 4).encode()
)
HEADERS = httpx.Headers(
    {
        "Accept": "application/json",
        "Authorization": "Bearer sk-canned",
        "Content-Type": "application/json",
        "User-Agent": "corpusmill",
    }
)


def httpx_own(*, connections: int, timeouts: Timeouts) -> httpx.AsyncBaseTransport:
    """The transport of httpx itself; its time-outs come with each request."""
    del timeouts
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    return httpx.AsyncHTTPTransport(limits=limits)


def httpx_aiohttp(*, connections: int, timeouts: Timeouts) -> httpx.AsyncBaseTransport:
    """httpx-aiohttp as it ships."""
    from httpx_aiohttp import AiohttpTransport

    del timeouts
    return AiohttpTransport(
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    )


def pyreqwest_shipped(*, connections: int, timeouts: Timeouts) -> httpx.AsyncBaseTransport:
    """The adapter of pyreqwest as it ships, but for the limit of connections."""
    from pyreqwest.client import ClientBuilder
    from pyreqwest.compatibility.httpx import HttpxTransport

    del timeouts
    return HttpxTransport(ClientBuilder().max_connections(connections).build())


class Reqwest(httpx.AsyncBaseTransport):
    """pyreqwest's client with what can be mended from outside: phases, kinds of errors, pieces at once."""

    def __init__(self, *, connections: int, timeouts: Timeouts) -> None:
        from pyreqwest.client import ClientBuilder

        self._client = (
            ClientBuilder()
            .max_connections(connections)
            .pool_max_idle_per_host(connections)
            .connect_timeout(timedelta(seconds=timeouts.connect))
            .read_timeout(timedelta(seconds=timeouts.read))
            .follow_redirects(enable=False)
            .gzip(enable=False)
            .brotli(enable=False)
            .zstd(enable=False)
            .deflate(enable=False)
            .build()
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it."""
        content = await request.aread()
        headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in request.headers.raw]
        builder = self._client.request(request.method, str(request.url)).headers(headers).body_bytes(content)
        sent = builder.streamed_read_buffer_limit(1).build_streamed()
        with reqwest_errors():
            response = await sent.__aenter__()
        return httpx.Response(
            response.status,
            headers=list(response.headers.items()),
            stream=ReqwestBody(sent, response),
            request=request,
        )

    async def aclose(self) -> None:
        """Close the client."""
        await self._client.close()


class ReqwestBody(httpx.AsyncByteStream):
    """The body of a response of pyreqwest's, piece by piece."""

    def __init__(self, sent: Any, response: Any) -> None:
        self._sent = sent
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with reqwest_errors():
            while (piece := await self._response.body_reader.read_chunk()) is not None:
                yield bytes(piece)

    async def aclose(self) -> None:
        """Close it."""
        sent, self._sent = self._sent, None
        if sent is not None:
            await sent.__aexit__(None, None, None)


@contextlib.contextmanager
def reqwest_errors() -> Iterator[None]:
    """Raise httpx's errors for pyreqwest's."""
    from pyreqwest import exceptions as theirs

    try:
        yield
    except theirs.RequestTimeoutError as failure:
        connecting = any("(Connect)" in cause["message"] for cause in failure.details["causes"] or [])
        raise (httpx.ConnectTimeout if connecting else httpx.ReadTimeout)("timed out") from None
    except theirs.ConnectError as failure:
        connecting = any("(Connect)" in cause["message"] for cause in failure.details["causes"] or [])
        raise (httpx.ConnectError if connecting else httpx.RemoteProtocolError)("broken") from None
    except (theirs.ReadError, theirs.WriteError) as failure:
        raise httpx.ReadError(type(failure).__name__) from None
    except theirs.BuilderError:
        raise httpx.LocalProtocolError("the request cannot be sent") from None
    except theirs.RequestError as failure:
        raise httpx.RemoteProtocolError(type(failure).__name__) from None


class Aiohttp(httpx.AsyncBaseTransport):
    """A thin adapter over aiohttp's client, errors mapped by how far the exchange got."""

    def __init__(self, *, connections: int, timeouts: Timeouts) -> None:
        import aiohttp

        self._phases = aiohttp.ClientTimeout(
            total=None, sock_connect=timeouts.connect, sock_read=timeouts.read
        )
        self._limit = connections
        self._session: Any = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it."""
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._limit),
                timeout=self._phases,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        content = await request.aread()
        headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in request.headers.raw]
        with aiohttp_errors():
            response = await self._session.request(
                request.method, str(request.url), headers=headers, data=content, allow_redirects=False
            )
        return httpx.Response(
            response.status, headers=response.raw_headers, stream=AiohttpBody(response), request=request
        )

    async def aclose(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()


class AiohttpBody(httpx.AsyncByteStream):
    """The body of a response of aiohttp's, piece by piece."""

    def __init__(self, response: Any) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with aiohttp_errors():
            async for piece in self._response.content.iter_any():
                yield piece

    async def aclose(self) -> None:
        """Close it."""
        self._response.close() if not self._response.content.at_eof() else self._response.release()


@contextlib.contextmanager
def aiohttp_errors() -> Iterator[None]:
    """Raise httpx's errors for aiohttp's."""
    import aiohttp

    try:
        yield
    except aiohttp.ConnectionTimeoutError:
        raise httpx.ConnectTimeout("timed out") from None
    except TimeoutError:
        raise httpx.ReadTimeout("timed out") from None
    except aiohttp.ClientConnectorError as failure:
        raise httpx.ConnectError(type(failure).__name__) from None
    except (aiohttp.ClientError, OSError) as failure:
        raise httpx.RemoteProtocolError(type(failure).__name__) from None
    except ValueError:
        raise httpx.LocalProtocolError("the request cannot be sent") from None


CANDIDATES: dict[str, Make] = {
    "ours": default_transport,
    "httpx": httpx_own,
    "httpx-aiohttp": httpx_aiohttp,
    "aiohttp": Aiohttp,
    "pyreqwest-shipped": pyreqwest_shipped,
    "pyreqwest": Reqwest,
}


@contextlib.contextmanager
def canned_server() -> Iterator[httpx.URL]:
    """Run nginx with the template beside this file, on a free port."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if nginx is None:
        raise SystemExit("needs the system package nginx")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        template = string.Template(Path(__file__).with_name("nginx.conf.template").read_text("utf-8"))
        configuration = Path(folder, "nginx.conf")
        configuration.write_text(template.substitute(port=port, folder=folder), "utf-8")
        server = subprocess.Popen(
            [nginx, "-p", folder, "-c", str(configuration), "-e", f"{folder}/error.log"]
        )
        try:
            for _ in range(200):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.02)
            yield httpx.URL(f"http://127.0.0.1:{port}/v1/chat/completions")
        finally:
            server.terminate()
            server.wait()


async def ordinary(transport: httpx.AsyncBaseTransport, url: httpx.URL) -> bytes:
    """Ask as anybody would."""
    response = await transport.handle_async_request(httpx.Request("POST", url, headers=HEADERS, content=BODY))
    return await response.aread()


async def lean(transport: httpx.AsyncBaseTransport, url: httpx.URL) -> bytes:
    """Ask as the engine does: headers that were made once, and the stream itself."""
    headers = httpx.Headers(HEADERS)
    headers["content-length"] = str(len(BODY))
    request = httpx.Request("POST", url, headers=headers, stream=httpx.ByteStream(BODY))
    response = await transport.handle_async_request(request)
    stream = response.stream
    assert isinstance(stream, httpx.AsyncByteStream)
    content = b"".join([piece async for piece in stream])
    await stream.aclose()
    return content


async def measure(
    make: Make, ask: Ask, url: httpx.URL, in_flight: int, seconds: float
) -> tuple[float, float]:
    """Return requests a second, and microseconds of processor time for each, all threads together."""
    transport = make(connections=in_flight, timeouts=Timeouts())
    done = 0
    running = True

    async def worker() -> None:
        nonlocal done
        while running:
            content = await ask(transport, url)
            assert content.endswith(b"}}"), content  # a wrong answer counts for nothing
            done += 1

    workers = [asyncio.create_task(worker()) for _ in range(in_flight)]
    await asyncio.sleep(seconds / 4)
    before, started, spent = done, time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    count, elapsed, spent = done - before, time.perf_counter() - started, time.process_time() - spent
    running = False
    await asyncio.gather(*workers)
    await transport.aclose()
    return count / elapsed, spent / max(count, 1) * 1e6


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--only", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    options = parser.parse_args()
    rows: dict[str, tuple[Make, Ask]] = {}
    for name in options.only:
        try:
            CANDIDATES[name](connections=1, timeouts=Timeouts())
        except ImportError as missing:
            print(f"left out: {name} ({missing})")
            continue
        rows[name] = (CANDIDATES[name], ordinary)
        if name == "ours":
            rows["ours, as used"] = (CANDIDATES[name], lean)
    with canned_server() as url:
        for in_flight in options.in_flight:
            figures: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
            for _ in range(options.rounds):
                for name, (make, ask) in rows.items():
                    figures[name].append(asyncio.run(measure(make, ask, url, in_flight, options.seconds)))
            cpu = {name: statistics.median(each for _, each in rounds) for name, rounds in figures.items()}
            least = min(cpu.values())
            print(f"\n{in_flight} in flight")
            print(f"{'transport':20}{'CPU us each':>14}{'times':>8}{'requests/s, median':>20}{'best':>9}")
            for name, each in sorted(cpu.items(), key=lambda item: item[1]):
                rates = [rate for rate, _ in figures[name]]
                median, best = statistics.median(rates), max(rates)
                print(f"{name:20}{each:14,.0f}{each / least:8.1f}{median:20,.0f}{best:9,.0f}")


if __name__ == "__main__":
    main()
