"""One attempt at a server: what goes out, and that whatever comes back is a verdict."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from corpusmill.chat import body as body_module
from corpusmill.chat.client import ChatClient
from corpusmill.chat.transport import Timeouts, default_transport
from corpusmill.chat.verdict import (
    Accepted,
    ComesBackLater,
    RetryAfter,
    RowFailed,
    RunEnds,
    Unparsed,
    Verdict,
)
from corpusmill.endpoints import OpenAICompatible, SambaNova
from corpusmill.errors import UsageError
from corpusmill.exchange import ChatRequest
from corpusmill.testing import Fault, expected_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from corpusmill.testing import FakeEndpoint

KEY = "aVerySecretKey-0123456789"

REQUEST = ChatRequest(messages=[{"role": "user", "content": "Žluťoučký \u2028 kůň"}], ceiling=50)

ANSWER = {
    "id": "c",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "ā"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1},
}

EVENTS = (
    'data: {"choices": [{"index": 0, "delta": {"content": "ā"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
).encode()


def endpoint(*, stream: bool = False) -> OpenAICompatible:
    """Give an endpoint with a key."""
    return OpenAICompatible(
        "http://h.example/v1?v=2", "m", api_key=KEY, stream=stream, headers={"X-Extra": "1"}
    )


def ask(
    handler: Callable[[httpx.Request], httpx.Response],
    *,
    stream: bool = False,
    request: ChatRequest = REQUEST,
) -> Verdict:
    """Make one attempt at a handler."""

    async def attempt() -> Verdict:
        client = ChatClient(
            endpoint(stream=stream), transport=httpx.MockTransport(handler), timeouts=Timeouts()
        )
        try:
            return await client.send(request)
        finally:
            await client.aclose()

    return asyncio.run(attempt())


def content(verdict: Verdict) -> str | None:
    """Give the text of an answer."""
    assert isinstance(verdict, Accepted), verdict
    return verdict.completion.content


class Pieces(httpx.AsyncByteStream):
    """A body that comes in pieces, and may break off."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self.pieces = pieces
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def aclose(self) -> None:
        self.closed = True


def test_what_goes_out_is_what_was_asked() -> None:
    """Method, URL, headers with the key and the length, and the body."""
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=ANSWER, headers={"X-Request-ID": "r1"})

    verdict = ask(handle)
    (request,) = seen
    assert (request.method, str(request.url)) == ("POST", "http://h.example/v1/chat/completions?v=2")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["host"] == "h.example"
    assert request.headers["x-extra"] == "1"
    assert request.headers["content-length"] == str(len(request.content))
    assert json.loads(request.content) == {"model": "m", "messages": REQUEST.messages, "max_tokens": 50}
    assert request.extensions["timeout"] == {"connect": 10.0, "read": 600.0, "write": 60.0, "pool": None}
    assert content(verdict) == "ā"
    assert verdict.request_id == "r1"


@pytest.mark.parametrize("stream", [False, True])
def test_a_compressed_body_is_read(*, stream: bool) -> None:
    """In any cut of its bytes."""
    plain = EVENTS if stream else json.dumps(ANSWER).encode()
    data = gzip.compress(plain)
    body = Pieces(*(data[place : place + 3] for place in range(0, len(data), 3)))
    verdict = ask(
        lambda _: httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=body), stream=stream
    )
    assert content(verdict) == "ā"
    assert body.closed


def test_a_compressed_body_that_is_broken_is_no_answer() -> None:
    """And may have been paid for."""
    body = Pieces(b"this is not gzip")
    verdict = ask(lambda _: httpx.Response(200, headers={"content-encoding": "gzip"}, stream=body))
    assert isinstance(verdict, RetryAfter)
    assert (verdict.kind, verdict.possibly_paid) == ("cut_body", True)


@pytest.mark.parametrize("stream", [False, True])
def test_a_body_that_breaks_off_is_no_answer(*, stream: bool) -> None:
    """Its connection is given back all the same."""
    plain = EVENTS if stream else json.dumps(ANSWER).encode()
    body = Pieces(plain[:30], httpx.ReadError("reset by peer"))
    verdict = ask(lambda _: httpx.Response(200, stream=body), stream=stream)
    assert isinstance(verdict, RetryAfter)
    assert verdict.possibly_paid
    assert body.closed


def test_a_connection_lost_after_the_whole_stream_costs_no_answer() -> None:
    """Everything that was announced has come."""
    body = Pieces(EVENTS, httpx.ReadTimeout("nothing more"))
    assert content(ask(lambda _: httpx.Response(200, stream=body), stream=True)) == "ā"


@pytest.mark.parametrize("chatter", [b": still here\n\n", None], ids=["chatter", "silence"])
def test_a_stream_that_has_said_all_and_stays_open_is_left(
    monkeypatch: pytest.MonkeyPatch, chatter: bytes | None
) -> None:
    """Whatever the server goes on to send, or not to send; one that ends by itself is read to its end."""
    monkeypatch.setattr(body_module, "LAST_BYTES", 0.05)

    class Open(Pieces):
        ended = False

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield EVENTS
            while not self.closed:
                await asyncio.sleep(0.001 if chatter else 3600)
                yield chatter or b""

    body = Open()
    assert content(ask(lambda _: httpx.Response(200, stream=body), stream=True)) == "ā"
    assert body.closed

    class Ending(Open):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield EVENTS
            await asyncio.sleep(0.001)
            yield b"\n"
            self.ended = True

    body = Ending()
    assert content(ask(lambda _: httpx.Response(200, stream=body), stream=True)) == "ā"
    assert body.ended


def test_an_error_in_a_stream_is_that_error() -> None:
    """With what it says, and possibly paid since text had come."""
    half = b'data: {"choices": [{"index": 0, "delta": {"content": "h"}}]}\n\n'
    body = half + b'data: {"error": {"message": "overloaded", "code": 503}}\n\n'
    verdict = ask(lambda _: httpx.Response(200, content=body), stream=True)
    assert isinstance(verdict, RetryAfter)
    assert (verdict.kind, verdict.possibly_paid) == ("unavailable", True)


def test_a_refusal_of_a_stream_is_read_as_a_body() -> None:
    """Errors come as plain JSON whatever was asked for."""
    refusal = {"error": {"message": "no", "code": "invalid_api_key"}}
    assert isinstance(ask(lambda _: httpx.Response(401, json=refusal), stream=True), RunEnds)


def test_a_redirect_is_not_followed() -> None:
    """The key goes to nobody but the host that it was given for."""
    seen: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.host)
        return httpx.Response(308, headers={"Location": "https://elsewhere.example/"})

    verdict = ask(handle)
    assert isinstance(verdict, RunEnds)
    assert "elsewhere.example" in str(verdict.error)
    assert "v=2" not in str(verdict.error)
    assert seen == ["h.example"]


def test_a_key_that_a_server_echoes_reaches_no_error() -> None:
    """Neither the row's error nor the run's."""
    for status in (400, 401, 500):
        verdict = ask(lambda _, status=status: httpx.Response(status, json={"error": f"bad key {KEY}"}))  # type: ignore[misc]
        text = str(getattr(verdict, "error", "")) + str(getattr(verdict, "reason", ""))
        assert "bad key ***" in text
        assert KEY not in text


def test_a_request_that_cannot_be_written_is_the_row_s_and_sends_nothing() -> None:
    """Half a surrogate pair; the error does not quote the text."""
    request = ChatRequest(messages=[{"role": "user", "content": "private \udc00"}])

    def handle(request: httpx.Request) -> httpx.Response:
        raise AssertionError("sent")

    verdict = ask(handle, request=request)
    assert isinstance(verdict, RowFailed)
    assert "private" not in verdict.reason


def test_a_body_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server fills the memory."""
    monkeypatch.setattr(body_module, "LARGE", 500)
    monkeypatch.setattr(body_module, "LARGEST_BODY", 1_000)
    body = Pieces(*[b"x" * 300] * 100)
    verdict = ask(lambda _: httpx.Response(200, stream=body))
    assert isinstance(verdict, RowFailed)
    assert verdict.possibly_paid
    assert body.closed


def test_a_missing_key_is_found_before_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the client is made."""
    monkeypatch.delenv("SAMBANOVA_API_KEY", raising=False)
    with pytest.raises(UsageError, match="SAMBANOVA_API_KEY"):
        ChatClient(SambaNova("m"), transport=httpx.MockTransport(lambda _: httpx.Response(200)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "none was sent; set CORPUSMILL_API_KEY, or give api_key"),
        ({"api_key": KEY}, None),
        ({"headers": {"X-Api-Key": KEY}}, None),
    ],
    ids=["no key", "a key", "a header"],
)
def test_a_refused_key_that_was_never_sent_is_called_that(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], said: str | None
) -> None:
    """Beside what the server says; a key that was sent is wrong, and nothing else is said of it."""
    monkeypatch.delenv("CORPUSMILL_API_KEY", raising=False)
    refusal = httpx.MockTransport(lambda _request: httpx.Response(401, json={"error": {"message": "no"}}))

    async def attempt() -> Verdict:
        client = ChatClient(OpenAICompatible("http://h.example/v1", "m", **given), transport=refusal)
        return await client.send(REQUEST)

    verdict = asyncio.run(attempt())
    assert isinstance(verdict, RunEnds)
    assert "check the key" in str(verdict.error)
    missing = str(verdict.error).partition("what it may do")[2]
    assert missing == ("" if said is None else f": {said} (on the command line --api-key-env NAME)")


def test_a_cancelled_attempt_closes_its_response() -> None:
    """And the cancellation goes up as it is."""
    body = Pieces()

    class Stalled(Pieces):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.Event().wait()

    body = Stalled()

    async def attempt() -> None:
        client = ChatClient(
            endpoint(), transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=body))
        )
        task = asyncio.ensure_future(client.send(REQUEST))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(attempt())
    assert body.closed


# Against the fake endpoint, over real connections.


def ask_fake(fake: FakeEndpoint, *, stream: bool, read: float = 5.0, **options: Any) -> Verdict:
    """Make one attempt at the fake endpoint."""

    async def attempt() -> Verdict:
        timeouts = Timeouts(connect=5.0, read=read, write=5.0)
        transport = default_transport(connections=1, timeouts=timeouts)
        asked = OpenAICompatible(fake.base_url, "any", stream=stream)
        client = ChatClient(asked, transport=transport, timeouts=timeouts)
        try:
            return await client.send(ChatRequest(messages=REQUEST.messages, **options))
        finally:
            await client.aclose()

    return asyncio.run(attempt())


@pytest.mark.parametrize("fault", [None, "odd_sse", "no_usage"])
def test_streamed_or_not_the_answer_is_the_same(fake_endpoint: FakeEndpoint, fault: str | None) -> None:
    """Text, reason, usage and number of choices."""
    fake_endpoint.script(lambda _request, _attempt: fault)
    plain, streamed = (
        ask_fake(fake_endpoint, stream=stream, parameters={"n": 2}, ceiling=500) for stream in (False, True)
    )
    assert isinstance(plain, Accepted)
    assert isinstance(streamed, Accepted)
    assert plain.completion.content == expected_answer(REQUEST.messages)
    for name in ("content", "finish_reason", "model", "prompt_tokens", "completion_tokens", "choices"):
        assert getattr(plain.completion, name) == getattr(streamed.completion, name), name


VERDICTS: list[tuple[str, type, str | None]] = [
    ("400", RowFailed, "invalid_request"),
    ("401", RunEnds, None),
    ("402", ComesBackLater, None),
    ("403", RunEnds, None),
    ("404_model", RunEnds, None),
    ("408", RetryAfter, "timeout"),
    ("410", RunEnds, None),
    ("429", RetryAfter, "rate_limited"),
    ("429_bare", RetryAfter, "rate_limited"),
    ("429_queue_full", RetryAfter, "rate_limited"),
    ("quota", ComesBackLater, None),
    ("overflow", RowFailed, "context_overflow"),
    ("500", RetryAfter, "server_error"),
    ("500_model_output", Unparsed, None),
    ("502", RetryAfter, "bad_gateway"),
    ("503", RetryAfter, "unavailable"),
    ("504", RetryAfter, "gateway_timeout"),
    ("reset", RetryAfter, "reset"),
    ("200_error", RetryAfter, None),
    ("200_html", RetryAfter, "html"),
    ("empty_body", RetryAfter, "empty_body"),
    ("reset_after_compute", RetryAfter, "reset"),
    ("malformed_json", RetryAfter, None),
    ("cut_body", RetryAfter, None),
    ("cut_stream", RetryAfter, None),
    ("error_in_stream", RetryAfter, None),
    ("length", Accepted, None),
    ("null_content", Accepted, None),
    ("empty_answer", Accepted, None),
    ("prompt_cut", Accepted, None),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fault", "kind", "name"), VERDICTS)
def test_every_fault_of_the_fake_endpoint_has_its_verdict(
    fake_endpoint: FakeEndpoint, fault: str, kind: type, name: str | None, *, stream: bool
) -> None:
    """Over a real connection, streamed or not."""
    fake_endpoint.script(lambda _request, _attempt: fault)
    verdict = ask_fake(fake_endpoint, stream=stream)
    assert isinstance(verdict, kind), verdict
    assert name is None or getattr(verdict, "kind", None) == name


@pytest.mark.parametrize("fault", ["reset_after_compute", "cut_body", "cut_stream", "malformed_json"])
@pytest.mark.parametrize("stream", [False, True])
def test_what_was_computed_and_did_not_arrive_is_possibly_paid(
    fake_endpoint: FakeEndpoint, fault: str, *, stream: bool
) -> None:
    """The client cannot know more, and must not know less."""
    fake_endpoint.script(lambda _request, _attempt: fault)
    assert getattr(ask_fake(fake_endpoint, stream=stream), "possibly_paid", None) is True


def test_a_server_that_says_nothing_is_left_after_the_read_time_out(fake_endpoint: FakeEndpoint) -> None:
    """And the attempt counts as spent."""
    fake_endpoint.script(lambda _request, _attempt: "stall")
    verdict = ask_fake(fake_endpoint, stream=False, read=0.05)
    assert isinstance(verdict, RetryAfter)
    assert (verdict.kind, verdict.possibly_paid, verdict.down) == ("read_timeout", True, True)


def test_the_wait_that_a_server_states_is_read(fake_endpoint: FakeEndpoint) -> None:
    """From that very response."""
    fake_endpoint.script(lambda _request, _attempt: Fault("429", retry_after="37"))
    verdict = ask_fake(fake_endpoint, stream=False)
    assert isinstance(verdict, RetryAfter)
    assert verdict.wait == 37.0
