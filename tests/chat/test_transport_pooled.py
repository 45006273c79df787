"""What the transport in use promises beyond the table of faults: TLS, proxies, turns, its own end."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import ssl
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from corpusmill.chat import transport as module
from corpusmill.chat import transport_connection
from corpusmill.chat.faults import judge_fault
from corpusmill.chat.transport import Timeouts, default_transport, proxy_for
from corpusmill.chat.verdict import RunEnds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from pathlib import Path

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

CALM = Timeouts(connect=10, read=10, write=10)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextlib.asynccontextmanager
async def served(serve: Serve, **listen: Any) -> AsyncIterator[str]:
    """Serve connections on loopback; yield the host and port."""
    tasks: set[asyncio.Task[Any]] = set()

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0, **listen)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def answer(content: bytes = OK, heads: list[bytes] | None = None) -> Serve:
    """Answer every request that has no body with these bytes, and note its head."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if heads is not None:
                heads.append(head)
            writer.write(content)
            await writer.drain()

    return serve


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take everything and say nothing."""
    await reader.read()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run it, and fail rather than hang."""
    asyncio.run(asyncio.wait_for(scenario, 60))


async def get(transport: httpx.AsyncBaseTransport, url: str, **extensions: Any) -> bytes:
    """Ask for a URL and read the answer."""
    request = httpx.Request("GET", url, extensions=extensions)
    response = await transport.handle_async_request(request)
    return await response.aread()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1, its own authority, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "corpusmill test")])
    now = dt.datetime.now(dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


@pytest.mark.parametrize("trusted", [True, False])
def test_a_certificate_is_verified_against_the_authorities_that_the_environment_names(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, *, trusted: bool
) -> None:
    """One that nobody vouches for is a connect error with the reason as its cause."""
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def scenario() -> None:
        transport = default_transport(connections=2, timeouts=CALM)
        async with served(answer(), ssl=context) as where:
            if trusted:
                for _ in range(2):
                    assert await get(transport, f"https://{where}/") == b"ok"
            else:
                with pytest.raises(httpx.ConnectError) as caught:
                    await get(transport, f"https://{where}/")
                assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
            await transport.aclose()

    run(scenario())


def test_a_server_of_plain_http_at_the_other_end_of_https_ends_the_run() -> None:
    """No retry teaches it TLS, and the error says what to write instead."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()

    async def scenario() -> None:
        transport = default_transport(connections=1, timeouts=CALM)
        async with served(refuse) as where:
            with pytest.raises(httpx.ConnectError) as caught:
                await get(transport, f"https://{where}/")
            await transport.aclose()
        verdict = judge_fault(caught.value, seconds=0.1, redact=str, url=f"https://{where}")
        assert isinstance(verdict, RunEnds)
        assert "does not speak TLS: write http://" in str(verdict.error)

    run(scenario())


def test_a_tls_handshake_that_hangs_is_a_connect_timeout() -> None:
    """The handshake belongs to the connect phase."""

    async def scenario() -> None:
        transport = default_transport(connections=1, timeouts=Timeouts(connect=0.3))
        async with served(silent) as where:
            with pytest.raises(httpx.ConnectTimeout):
                await get(transport, f"https://{where}/")
            await transport.aclose()

    run(scenario())


@pytest.mark.parametrize(
    ("origin", "proxies", "proxy"),
    [
        (("https", "api.example", None), {"https": "http://proxy:1"}, "http://proxy:1"),
        (("https", "api.example", None), {"http": "http://proxy:1"}, None),
        (("http", "api.example", None), {"all": "proxy:1"}, "http://proxy:1"),
        (("http", "api.example", None), {"all": ""}, None),
        (("http", "api.example", None), {"http": "http://proxy:1", "no": "x.org, .example"}, None),
        (("http", "api.example", None), {"http": "http://proxy:1", "no": "*.example"}, None),
        (("http", "badexample", None), {"http": "http://proxy:1", "no": "example"}, "http://proxy:1"),
        (("http", "api.example", None), {"http": "http://proxy:1", "no": "*"}, None),
        (("http", "api.example", None), {"http": "http://proxy:1", "no": "api.example:80"}, None),
        (("http", "api.example", 81), {"http": "http://proxy:1", "no": "api.example:80"}, "http://proxy:1"),
        (("http", "api.example", None), {"http": "http://proxy:1", "no": " ,"}, "http://proxy:1"),
        (("http", "127.9.9.9", 8000), {"http": "http://proxy:1"}, None),
        (("http", "::1", 8000), {"all": "http://proxy:1"}, None),
        (("http", "localhost", 8000), {"all": "http://proxy:1"}, None),
        (("http", "10.0.0.1", 8000), {"all": "http://proxy:1"}, "http://proxy:1"),
    ],
)
def test_the_environment_says_which_hosts_are_reached_through_a_proxy(
    origin: tuple[str, str, int | None], proxies: dict[str, str], proxy: str | None
) -> None:
    """This machine never is."""
    assert proxy_for(origin, proxies) == proxy


def test_a_request_goes_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same time-outs as without, and with heads checked before anything could quote them."""
    heads: list[bytes] = []

    async def scenario() -> None:
        async with served(answer(heads=heads)) as where, served(silent) as deaf:
            for name in ("http_proxy", "HTTP_PROXY"):
                monkeypatch.setenv(name, f"http://{where}")
            transport = default_transport(connections=2, timeouts=CALM)
            assert await get(transport, "http://service.invalid/path") == b"ok"
            assert heads[0].startswith(b"GET http://service.invalid/path HTTP/1.1\r\n")
            request = httpx.Request("GET", "http://service.invalid/", headers={"X-Key": "secret\n"})
            with pytest.raises(httpx.LocalProtocolError) as caught:
                await transport.handle_async_request(request)
            assert "secret" not in repr(caught.value)
            await transport.aclose()
            for name in ("http_proxy", "HTTP_PROXY"):
                monkeypatch.setenv(name, f"http://{deaf}")
            transport = default_transport(connections=2, timeouts=Timeouts(read=0.3))
            with pytest.raises(httpx.ReadTimeout):
                await get(transport, "http://service.invalid/path")
            await transport.aclose()

    run(scenario())


def test_turns_are_in_order_and_waiting_for_one_can_be_limited() -> None:
    """Beyond the limit requests wait, first come first served; a `pool` time-out is the caller's choice."""
    heads: list[bytes] = []

    async def scenario() -> None:
        transport = default_transport(connections=1, timeouts=CALM)
        async with served(silent) as deaf:
            held = asyncio.create_task(get(transport, f"http://{deaf}/"))
            await asyncio.sleep(0.05)
            with pytest.raises(httpx.PoolTimeout):
                await get(transport, f"http://{deaf}/", timeout={"pool": 0.05})
            held.cancel()
            await asyncio.wait([held])
        async with served(answer(heads=heads)) as where:
            await asyncio.gather(*(get(transport, f"http://{where}/{number}") for number in range(5)))
            assert [head.split()[1] for head in heads] == [b"/0", b"/1", b"/2", b"/3", b"/4"]
            await transport.aclose()

    run(scenario())


def test_closing_ends_what_is_under_way_and_admits_nothing_new() -> None:
    """Nobody is left waiting on a transport that is gone."""

    async def scenario() -> None:
        transport = default_transport(connections=2, timeouts=CALM)
        async with served(silent) as deaf:
            pending = asyncio.create_task(get(transport, f"http://{deaf}/"))
            await asyncio.sleep(0.05)
            await transport.aclose()
            with pytest.raises(httpx.ReadError):
                await pending
            with pytest.raises(RuntimeError, match="closed"):
                await get(transport, f"http://{deaf}/")

    run(scenario())


def test_another_event_loop_is_refused() -> None:
    """Connections live in the loop that they were made in."""
    transport = default_transport(connections=2, timeouts=CALM)

    async def scenario(*, refused: bool) -> None:
        async with served(answer()) as where:
            if refused:
                with pytest.raises(RuntimeError, match="one event loop"):
                    await get(transport, f"http://{where}/")
            else:
                assert await get(transport, f"http://{where}/") == b"ok"
                await transport.aclose()

    run(scenario(refused=False))
    run(scenario(refused=True))


def test_a_connection_that_rested_too_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer may be about to close it."""
    peers: set[Any] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.add(writer.get_extra_info("peername"))
        await answer()(reader, writer)

    async def scenario() -> None:
        transport = default_transport(connections=2, timeouts=CALM)
        async with served(serve) as where:
            for idle, connections in ((60.0, 1), (60.0, 1), (0.0, 2), (60.0, 2)):
                monkeypatch.setattr(module, "IDLE", idle)
                await get(transport, f"http://{where}/")
                assert len(peers) == connections
            await transport.aclose()

    run(scenario())


def test_a_slow_reader_makes_the_peer_wait_and_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds a backlog and not the body; the peer's patience is not counted as the peer's silence."""
    monkeypatch.setattr(transport_connection, "BACKLOG", 10_000)
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n")
        for _ in range(500):
            writer.write(bytes(100_000))
            await writer.drain()
            sent += 1

    async def scenario() -> None:
        transport = default_transport(connections=2, timeouts=Timeouts(read=0.3))
        async with served(serve) as where:
            response = await transport.handle_async_request(httpx.Request("GET", f"http://{where}/"))
            await asyncio.sleep(1)
            assert sent < 500
            assert len(await response.aread()) == 50_000_000
            assert sent == 500
            await transport.aclose()

    run(scenario())


def test_a_head_without_an_end_is_an_error() -> None:
    """A peer cannot fill the memory with headers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-Again: and again\r\n" * 500)
            await writer.drain()

    async def scenario() -> None:
        transport = default_transport(connections=2, timeouts=CALM)
        async with served(serve) as where:
            with pytest.raises(httpx.RemoteProtocolError):
                await get(transport, f"http://{where}/")
            await transport.aclose()

    run(scenario())


def test_the_answer_to_a_head_request_has_no_body_whatever_its_length_says() -> None:
    """It is complete with its head."""

    async def scenario() -> None:
        transport = default_transport(connections=2, timeouts=CALM)
        async with served(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")) as where:
            for _ in range(2):
                response = await transport.handle_async_request(httpx.Request("HEAD", f"http://{where}/"))
                assert await response.aread() == b""
            await transport.aclose()

    run(scenario())


def test_a_request_without_the_headers_that_framing_needs_gets_them() -> None:
    """A caller that builds requests the short way need not know how bodies are framed."""
    heads: list[bytes] = []

    async def scenario() -> None:
        transport = default_transport(connections=2, timeouts=CALM)
        async with served(answer(heads=heads)) as where:
            content = httpx.ByteStream(b"four\r\n\r\n")
            request = httpx.Request("POST", f"http://{where}/", stream=content)
            await (await transport.handle_async_request(request)).aread()
            lines = heads[0].split(b"\r\n")
            assert f"Host: {where}".encode() in lines
            assert b"Content-Length: 8" in lines
            await transport.aclose()

    run(scenario())


def test_what_cannot_be_a_transport_or_a_url_is_refused() -> None:
    """Before anything is opened."""
    with pytest.raises(ValueError, match="at least 1"):
        default_transport(connections=0, timeouts=CALM)

    async def scenario() -> None:
        transport = default_transport(connections=1, timeouts=CALM)
        for _ in range(2):
            with pytest.raises(httpx.UnsupportedProtocol):
                await get(transport, "ftp://127.0.0.1/")
        await transport.aclose()

    run(scenario())
