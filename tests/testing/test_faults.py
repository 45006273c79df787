"""Each kind of fault, seen by a client that hides nothing: bytes on a socket."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest

from corpusmill.testing import Fault, Faults, expected_answer
from corpusmill.testing.faults import ANSWERED, COMPUTED_NOT_DELIVERED, KINDS, fault_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpusmill.testing import FakeEndpoint

MESSAGES = [{"role": "user", "content": "Name the topic of: a loaf of bread, and how it is baked"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What came over the wire: the head, the body as sent, and how the connection ended."""

    status: int | None
    headers: dict[str, str]
    body: bytes
    end: str  # "open", "closed" or "reset"


def ask(endpoint: FakeEndpoint, *, timeout: float = 5.0, **fields: Any) -> Seen:
    """Send one chat request over a socket of its own and return everything that came back."""
    address = urlsplit(endpoint.base_url)
    payload = json.dumps({"model": "m", "messages": MESSAGES, **fields}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(payload)}\r\n\r\n"
    received, end = b"", "open"
    with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=timeout) as raw:
        raw.sendall(head.encode() + payload)
        try:
            while not _complete(received):
                data = raw.recv(65_536)
                if not data:
                    end = "closed"
                    break
                received += data
        except ConnectionResetError:
            end = "reset"
        except TimeoutError:
            end = "open"
    if not received:
        return Seen(status=None, headers={}, body=b"", end=end)
    status, headers, body = _parsed(received)
    return Seen(status=status, headers=headers, body=body, end=end)


def _parsed(received: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    pairs = (line.partition(": ") for line in lines)
    return int(first.split()[1]), {name.lower(): value for name, _, value in pairs}, body


def _complete(received: bytes) -> bool:
    if b"\r\n\r\n" not in received:
        return False
    _, headers, body = _parsed(received)
    if headers.get("transfer-encoding") == "chunked":
        return body.endswith(b"\r\n0\r\n\r\n")
    return len(body) >= int(headers["content-length"])


def unchunked(body: bytes) -> bytes:
    """Return the content of a chunked body, whole or cut between chunks."""
    content = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        content, body = content + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return content


def failing(fake_endpoint_factory: Callable[..., FakeEndpoint], kind: str) -> FakeEndpoint:
    """Return an endpoint at which every attempt meets one kind of fault."""
    return fake_endpoint_factory(faults={kind: 1.0})


STATUSES = {
    "400": (400, "application/json", "invalid_request"),
    "401": (401, "application/json", "invalid_api_key"),
    "402": (402, "application/json", "insufficient_credit"),
    "403": (403, "application/json", "forbidden"),
    "404_model": (404, "application/json", "model_not_found"),
    "408": (408, "application/json", None),
    "410": (410, "application/json", None),
    "429": (429, "application/json", "rate_limit_exceeded"),
    "429_bare": (429, "application/json", "rate_limit_exceeded"),
    "429_queue_full": (429, "application/json", "queue_full"),
    "quota": (429, "application/json", "insufficient_quota"),
    "overflow": (400, "application/json", "context_length_exceeded"),
    "500": (500, "text/plain; charset=utf-8", None),
    "500_model_output": (500, "application/json", None),
    "502": (502, "text/html; charset=utf-8", None),
    "503": (503, "text/plain; charset=utf-8", None),
    "504": (504, "text/plain; charset=utf-8", None),
    "200_error": (200, "application/json", "internal_error"),
    "200_html": (200, "text/html; charset=utf-8", None),
    "empty_body": (200, "application/json", None),
}


@pytest.mark.parametrize("kind", STATUSES)
def test_a_refusal_has_its_status_type_and_code_and_nothing_is_computed(
    fake_endpoint_factory: Callable[..., FakeEndpoint], kind: str
) -> None:
    """A fault that is a response looks as its kind says, keeps the connection, and costs nothing."""
    endpoint = failing(fake_endpoint_factory, kind)
    seen = ask(endpoint)
    status, content_type, code = STATUSES[kind]
    assert (seen.status, seen.headers["content-type"], seen.end) == (status, content_type, "open")
    if code is not None:
        assert json.loads(seen.body)["error"]["code"] == code
    stats = endpoint.stats()
    assert (stats.computed, stats.delivered, stats.by_fault) == (0, 0, {kind: 1})
    assert stats.by_status == {str(status): 1}


def test_only_the_plain_429_says_when_to_come_back(
    fake_endpoint_factory: Callable[..., FakeEndpoint],
) -> None:
    """Retry-After stands in the kind 429 as it was set, and in no other."""
    told = fake_endpoint_factory(faults=Faults(shares={"429": 1.0}, retry_after="2.5"))
    assert ask(told).headers["retry-after"] == "2.5"
    for kind in ("429_bare", "429_queue_full", "quota"):
        assert "retry-after" not in ask(failing(fake_endpoint_factory, kind)).headers


def test_an_empty_body_is_empty(fake_endpoint_factory: Callable[..., FakeEndpoint]) -> None:
    """The kind empty_body is a 200 with nothing in it."""
    assert ask(failing(fake_endpoint_factory, "empty_body")).body == b""


def test_output_that_could_not_be_parsed_is_shown(
    fake_endpoint_factory: Callable[..., FakeEndpoint],
) -> None:
    """The kind 500_model_output carries what the model wrote."""
    error = json.loads(ask(failing(fake_endpoint_factory, "500_model_output")).body)["error"]
    assert error["error_model_output"]
    assert error["type"] == "server_error"


@pytest.mark.parametrize(("kind", "computed"), [("reset", 0), ("reset_after_compute", 1)])
@pytest.mark.parametrize("stream", [False, True])
def test_a_reset_is_an_rst_before_any_byte(
    fake_endpoint_factory: Callable[..., FakeEndpoint], kind: str, computed: int, *, stream: bool
) -> None:
    """The kernel says connection reset, not end of file; what was computed before is counted as paid."""
    endpoint = failing(fake_endpoint_factory, kind)
    seen = ask(endpoint, stream=stream)
    assert (seen.end, seen.status) == ("reset", None)
    stats = endpoint.stats()
    assert (stats.computed, stats.delivered, stats.in_flight) == (computed, 0, 0)


def test_a_stall_sends_nothing_and_ends_with_the_client(
    fake_endpoint_factory: Callable[..., FakeEndpoint],
) -> None:
    """The connection stays open without a byte; the request is over when the client has left."""
    endpoint = failing(fake_endpoint_factory, "stall")
    seen = ask(endpoint, timeout=0.05)
    assert (seen.end, seen.status) == ("open", None)
    while endpoint.stats().in_flight:
        time.sleep(0.001)
    assert endpoint.stats().computed == 0


def test_a_stall_is_bounded(fake_endpoint_factory: Callable[..., FakeEndpoint]) -> None:
    """A client that waits for ever is let go after the seconds that were set."""
    endpoint = fake_endpoint_factory(faults=Faults(shares={"stall": 1.0}, stall_seconds=0.01))
    assert ask(endpoint).end == "closed"


@pytest.mark.parametrize("kind", ["cut_body", "cut_stream"])
def test_a_cut_body_is_shorter_than_its_stated_length(
    fake_endpoint_factory: Callable[..., FakeEndpoint], kind: str
) -> None:
    """Half of the body comes, then the end of the connection; the answer was paid for and is lost."""
    endpoint = failing(fake_endpoint_factory, kind)
    seen = ask(endpoint)
    assert seen.end == "closed"
    assert 0 < len(seen.body) < int(seen.headers["content-length"])
    stats = endpoint.stats()
    assert (stats.computed, stats.delivered) == (1, 0)


def test_a_cut_stream_ends_tidily_without_done(
    fake_endpoint_factory: Callable[..., FakeEndpoint],
) -> None:
    """The chunked body is whole, so HTTP is content; only the stream's own end is missing."""
    endpoint = failing(fake_endpoint_factory, "cut_stream")
    seen = ask(endpoint, stream=True)
    assert seen.body.endswith(b"0\r\n\r\n")
    content = unchunked(seen.body)
    assert b"data: " in content
    assert b"[DONE]" not in content
    assert b'"finish_reason":"stop"' not in content
    assert (endpoint.stats().computed, endpoint.stats().delivered) == (1, 0)


def test_a_cut_body_of_a_stream_lacks_its_last_chunk(
    fake_endpoint_factory: Callable[..., FakeEndpoint],
) -> None:
    """The connection ends in the middle of the chunked body."""
    seen = ask(failing(fake_endpoint_factory, "cut_body"), stream=True)
    assert seen.end == "closed"
    assert not seen.body.endswith(b"0\r\n\r\n")


def test_an_error_comes_in_the_middle_of_a_stream(
    fake_endpoint_factory: Callable[..., FakeEndpoint],
) -> None:
    """Under status 200, chunks are followed by an error, and there is no [DONE]."""
    endpoint = failing(fake_endpoint_factory, "error_in_stream")
    seen = ask(endpoint, stream=True)
    events = [json.loads(event[6:]) for event in unchunked(seen.body).split(b"\n\n") if event]
    assert seen.status == 200
    assert "choices" in events[0]
    assert events[-1]["error"]["code"] == "internal_error"
    assert endpoint.stats().computed == 0
    assert "error" in json.loads(ask(endpoint).body), "without a stream it is a 200 with an error"


def test_malformed_json_breaks_off(fake_endpoint_factory: Callable[..., FakeEndpoint]) -> None:
    """The body has its stated length and is no JSON; the answer was paid for."""
    endpoint = failing(fake_endpoint_factory, "malformed_json")
    seen = ask(endpoint)
    assert len(seen.body) == int(seen.headers["content-length"])
    with pytest.raises(json.JSONDecodeError):
        json.loads(seen.body)
    assert (endpoint.stats().computed, endpoint.stats().delivered) == (1, 0)


def test_length_null_and_empty_answers_are_whole_responses(
    fake_endpoint_factory: Callable[..., FakeEndpoint],
) -> None:
    """A cut answer, one of null and one of nothing arrive as complete 200s."""
    whole = expected_answer(MESSAGES)
    cut = json.loads(ask(failing(fake_endpoint_factory, "length")).body)["choices"][0]
    assert cut["finish_reason"] == "length"
    assert whole.startswith(cut["message"]["content"])
    assert 0 < len(cut["message"]["content"]) < len(whole)
    null = json.loads(ask(failing(fake_endpoint_factory, "null_content")).body)["choices"][0]
    assert null["message"]["content"] is None
    endpoint = failing(fake_endpoint_factory, "empty_answer")
    empty = json.loads(ask(endpoint).body)["choices"][0]
    assert (empty["message"]["content"], empty["finish_reason"]) == ("", "stop")
    assert (endpoint.stats().computed, endpoint.stats().delivered) == (1, 1)


@pytest.mark.parametrize("stream", [False, True])
def test_usage_can_be_missing_or_betray_a_prompt_that_was_cut(
    fake_endpoint_factory: Callable[..., FakeEndpoint], *, stream: bool
) -> None:
    """Without usage the answer is whole; with a cut prompt the usage is far below what was sent."""
    options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    bare = ask(failing(fake_endpoint_factory, "no_usage"), **options)
    assert b'"usage"' not in bare.body
    assert b"finish_reason" in bare.body
    endpoint = failing(fake_endpoint_factory, "prompt_cut")
    assert b'"usage":{"prompt_tokens":8,' in ask(endpoint, **options).body
    assert endpoint.stats().prompt_tokens > 8


def test_an_odd_stream_means_the_same(fake_endpoint_factory: Callable[..., FakeEndpoint]) -> None:
    """Read by the rules of event streams, a stream with marks, comments and split data is the answer."""
    endpoint = failing(fake_endpoint_factory, "odd_sse")
    seen = ask(endpoint, stream=True)
    content = unchunked(seen.body)
    assert content.startswith(b"\xef\xbb\xbf:")
    text = ""
    for event in content.removeprefix(b"\xef\xbb\xbf").split(b"\r\n\r\n"):
        data = b"\n".join(line[5:] for line in event.split(b"\r\n") if line.startswith(b"data:"))
        if data and data != b"[DONE]":
            text += json.loads(data)["choices"][0]["delta"].get("content") or ""
    assert text == expected_answer(MESSAGES)
    assert endpoint.stats().delivered == 1


def test_every_kind_is_one_of_those_tested_here() -> None:
    """No kind of fault is without a test in this file."""
    on_the_wire = {"reset", "stall", "error_in_stream", "reply"}
    assert set(KINDS) == set(STATUSES) | ANSWERED | COMPUTED_NOT_DELIVERED | on_the_wire


def test_a_script_decides_by_request_and_attempt(fake_endpoint: FakeEndpoint) -> None:
    """A function sees the request and the attempt's number; a reply of its own goes out as it stands."""
    odd = Fault("reply", status=418, headers={"Retry-After": "-3", "content-type": "text/x"}, body=b"\xff")

    def script(request: dict[str, Any], attempt: int) -> Fault | str | None:
        assert request["messages"] == MESSAGES
        return odd if attempt == 1 else "503" if attempt == 2 else None

    fake_endpoint.script(script)
    first = ask(fake_endpoint)
    assert (first.status, first.body) == (418, b"\xff")
    assert (first.headers["retry-after"], first.headers["content-type"]) == ("-3", "text/x")
    assert [ask(fake_endpoint).status, ask(fake_endpoint).status] == [503, 200]
    fake_endpoint.script(None)
    assert ask(fake_endpoint).status == 200


def test_headers_of_a_fault_are_added_to_its_response(fake_endpoint: FakeEndpoint) -> None:
    """A scripted fault of a known kind can carry headers of its own."""
    fake_endpoint.script(lambda request, attempt: Fault("503", headers={"retry-after-ms": "20"}))
    assert ask(fake_endpoint).headers["retry-after-ms"] == "20"


def test_faults_do_not_depend_on_the_order_of_arrival(
    fake_endpoint_factory: Callable[..., FakeEndpoint],
) -> None:
    """The same requests meet the same faults at two endpoints, whatever order they come in."""
    bodies = [{"model": "m", "messages": [{"role": "user", "content": f"row {row}"}]} for row in range(40)]

    def statuses(order: list[int]) -> dict[int, int]:
        endpoint = fake_endpoint_factory(faults={"503": 0.3, "429": 0.2}, seed=7)
        with httpx.Client(base_url=endpoint.base_url) as client:
            return {row: client.post("/chat/completions", json=bodies[row]).status_code for row in order}

    forth, back = statuses(list(range(40))), statuses(list(reversed(range(40))))
    assert forth == back
    assert set(forth.values()) == {200, 429, 503}


def test_shares_are_kept_over_many_draws() -> None:
    """Of many attempts about the stated share meets each kind; another seed draws others."""
    faults = Faults(shares={"429": 0.2, "503": 0.1})
    digests = [f"{number:064x}" for number in range(10_000)]
    kinds = Counter(_kind(faults, digest, attempt=1) for digest in digests)
    assert 1_800 < kinds["429"] < 2_200
    assert 850 < kinds["503"] < 1_150
    drawn = [_kind(faults, digest, attempt=1) for digest in digests[:100]]
    assert drawn != [_kind(faults, digest, attempt=2) for digest in digests[:100]]
    assert drawn != [_kind(faults, digest, attempt=1, seed=1) for digest in digests[:100]]


def test_permanent_faults_stay_and_passing_ones_can_be_bounded() -> None:
    """A permanent fault meets every attempt at its request; `first_attempts` spares later ones."""
    permanent = Faults(permanent={"overflow": 0.5})
    for number in range(50):
        digest = f"{number:064x}"
        assert len({_kind(permanent, digest, attempt=attempt) for attempt in range(1, 9)}) == 1
    bounded = Faults(shares={"500": 1.0}, first_attempts=2)
    assert [_kind(bounded, "0" * 64, attempt=attempt) for attempt in (1, 2, 3)] == ["500", "500", None]


@pytest.mark.parametrize("shares", [{"flood": 0.1}, {"429": 1.5}, {"429": -0.1}, {"429": 0.6, "500": 0.6}])
def test_shares_that_cannot_be_are_refused(shares: dict[str, float]) -> None:
    """Unknown kinds, and shares that are none or add up to more than one, are errors."""
    with pytest.raises(ValueError, match=r"fault|share"):
        Faults(shares=shares)


def _kind(faults: Faults, digest: str, *, attempt: int, seed: int = 0) -> str | None:
    fault = fault_of(faults, seed=seed, digest=digest, attempt=attempt)
    return fault.kind if fault is not None else None
