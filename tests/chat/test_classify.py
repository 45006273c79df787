"""One response, one verdict: the tables of what servers answer and what follows from it."""

from __future__ import annotations

import html
import json
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.chat.classify import classify
from corpusmill.chat.verdict import (
    Accepted,
    ComesBackLater,
    RetryAfter,
    RowFailed,
    RunEnds,
    Unparsed,
    Verdict,
)
from corpusmill.errors import AuthenticationError, EndpointError, ModelUnavailableError
from corpusmill.exchange import ChatRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NOW = 1_759_750_801.0

URL = "http://h/v1/chat/completions"

ANSWER = {"id": "c", "choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}]}


def judge(
    status: int | None, body: object = b"", headers: Mapping[str, str] | None = None, **more: Any
) -> Verdict:
    """Classify a response; a body that is no text is written as JSON."""
    data = (
        body
        if isinstance(body, bytes)
        else body.encode()
        if isinstance(body, str)
        else json.dumps(body).encode()
    )
    return classify(status=status, headers=headers or {}, body=data, now=NOW, url=URL, **more)


def error(message: str = "no", **fields: Any) -> dict[str, Any]:
    """Make an error in the document's general shape."""
    return {
        "error": {"message": message, "type": None, "param": None, "code": None, **fields},
        "request_id": "r1",
    }


# Answers.


@pytest.mark.parametrize(
    ("body", "content", "finish_reason"),
    [
        (ANSWER, "a", "stop"),
        (
            {"choices": [{"message": {"content": None, "tool_calls": []}, "finish_reason": "tool_calls"}]},
            None,
            "tool_calls",
        ),
        (
            {"choices": [{"message": {"content": "", "reasoning": "hm"}, "finish_reason": "length"}]},
            "",
            "length",
        ),
        (
            {"choices": [{"message": {"content": [{"type": "text", "text": "a"}]}, "finish_reason": "x"}]},
            "a",
            "x",
        ),
        ({**ANSWER, "created": 1.5, "system_fingerprint": None, "usage": None, "extra": [1]}, "a", "stop"),
        ({**ANSWER, "usage": {"prompt_tokens": 3, "total_tokens": 9}}, "a", "stop"),
        (
            {
                "choices": [
                    {"index": 1, "message": {"content": "b"}, "finish_reason": "length"},
                    {"index": 0, "message": {"content": "a"}, "finish_reason": "stop"},
                ]
            },
            "a",
            "length",
        ),
        ({"choices": [{"message": {"content": "a"}, "finish_reason": None}]}, "a", None),
    ],
)
def test_unusual_answers_are_answers(body: object, content: str | None, finish_reason: str | None) -> None:
    """Null content, reasoning only, parts, no usage, unknown fields and reasons: paid, so kept."""
    verdict = judge(
        200, body, {"content-type": "text/plain", "x-request-id": "r9"}, notes=("n",), seconds=2.0
    )
    assert isinstance(verdict, Accepted)
    assert (verdict.completion.content, verdict.completion.finish_reason) == (content, finish_reason)
    assert (verdict.request_id, verdict.notes, verdict.seconds) == ("r9", ("n",), 2.0)


# Statuses and complaints: (status, headers, body) -> type and kind.

OVERFLOWS: list[tuple[int, object]] = [
    (400, error("too long", code="context_length_exceeded")),
    (
        400,
        error("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000."),
    ),
    (400, {"object": "error", "message": "max_model_len is 4096, prompt has 5000", "code": 400}),
    (413, error("Prompt is too long: 9000 tokens > 8192 maximum")),
    (
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096",
            "error_type": "validation",
        },
    ),
    (500, "the request exceeds the available context size, try increasing it"),
    (500, {"error": {"message": "Context size has been exceeded.", "code": 500}}),
    (200, {"error": {"message": "prompt too long, exceeds the model's context window", "code": 400}}),
    (200, {"error": "context length exceeded"}),
    (
        400,
        [
            {
                "error": {
                    "message": "The input token count exceeds the maximum number of tokens allowed (8192)."
                }
            }
        ],
    ),
    (400, {"detail": [{"msg": "prompt is too long"}]}),
]


@pytest.mark.parametrize(("status", "body"), OVERFLOWS)
def test_an_overflow_is_the_row_s_in_every_dress(status: int, body: object) -> None:
    """Permanent, no failure of the endpoint, whatever status it wears."""
    verdict = judge(status, body)
    assert isinstance(verdict, RowFailed)
    assert verdict.kind == "context_overflow"


LARGER: list[tuple[int, object]] = [
    (
        413,
        error(
            "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 8000",
            code="rate_limit_exceeded",
        ),
    ),
    (
        429,
        error(
            "Request too large for gpt on tokens per min (TPM): Limit 10,000, Requested 12,345. Reduce it."
        ),
    ),
    (429, error("You requested more than the limit of 5000 tokens per minute")),
]


@pytest.mark.parametrize(("status", "body"), LARGER)
def test_a_request_larger_than_the_limit_is_the_row_s(status: int, body: object) -> None:
    """Waiting would never help, and the others are not slowed for it."""
    verdict = judge(status, body)
    assert isinstance(verdict, RowFailed)
    assert verdict.kind == "larger_than_limit"


LIMITED: list[tuple[int, Mapping[str, str], object, float | None]] = [
    (429, {"retry-after": "7"}, error(), 7.0),
    (429, {}, b"", None),
    (429, {}, "slow down", None),
    (
        429,
        {},
        error(
            "Rate limit on tokens per min (TPM): Limit 6000, Used 5900, Requested 300. Please try again in 2s."
        ),
        2.0,
    ),
    (429, {}, error("queue is full", code="queue_full"), None),
    (503, {"retry-after": "4"}, error("queue is full", code="queue_full"), 4.0),
    (200, {}, {"error": {"message": "slow down", "code": 429}}, None),
    (200, {}, {"error": {"message": "slow down", "code": "429"}}, None),
    (400, {}, error("Rate exceeded", code="ThrottlingException"), None),
    (429, {"retry-after": "-1"}, error(), None),
    (429, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20s"}, error(), 20.0),
    (429, {"retry-after": "600"}, error(), 600.0),
    (429, {"retry-after": "20"}, error("You exceeded your current quota, check your billing details"), 20.0),
]


@pytest.mark.parametrize(("status", "headers", "body", "wait"), LIMITED)
def test_too_fast_is_to_wait_as_that_response_says(
    status: int, headers: Mapping[str, str], body: object, wait: float | None
) -> None:
    """In a header or in the text, under 429 or inside another status; nothing was paid."""
    verdict = judge(status, body, headers)
    assert isinstance(verdict, RetryAfter)
    assert (verdict.rate_limited, verdict.wait, verdict.possibly_paid, verdict.down) == (
        True,
        wait,
        False,
        False,
    )


LATER: list[tuple[int, Mapping[str, str], object, float | None]] = [
    (402, {}, "Payment Required", None),
    (429, {}, error("You exceeded your current quota", code="insufficient_quota"), None),
    (429, {}, error("no", type="insufficient_quota"), None),
    (429, {}, error("You exceeded your current quota, check your billing details"), None),
    (429, {"retry-after": "20"}, error("Daily limit reached"), 20.0),
    (403, {}, error("no", code="insufficient_quota"), None),
    (200, {}, error("no", code="insufficient_quota"), None),
    (
        429,
        {},
        error(
            "Rate limit on tokens per day (TPD): Limit 200000, Used 199999, Requested 300. Try again in 2h."
        ),
        7200.0,
    ),
    (
        429,
        {"x-ratelimit-remaining-requests-day": "0", "x-ratelimit-reset-requests-day": "5000"},
        error(),
        5000.0,
    ),
    (429, {"retry-after": "20000"}, error(), 20000.0),
]


@pytest.mark.parametrize(("status", "headers", "body", "seconds"), LATER)
def test_a_used_up_quota_ends_the_asking_with_its_reset(
    status: int, headers: Mapping[str, str], body: object, seconds: float | None
) -> None:
    """Nothing will come for hours, and when it will is told where it is known."""
    verdict = judge(status, body, headers)
    assert isinstance(verdict, ComesBackLater)
    expected = None if seconds is None else datetime.fromtimestamp(NOW + seconds, UTC)
    assert verdict.resets_at == expected


ENDS: list[tuple[int, object, type[EndpointError]]] = [
    (401, error("Incorrect API key provided: *****", code="invalid_api_key"), AuthenticationError),
    (401, b"", AuthenticationError),
    (403, {"error": "Forbidden"}, AuthenticationError),
    (400, error("no", code="invalid_api_key"), AuthenticationError),
    (200, error("no", code="invalid_api_key"), AuthenticationError),
    (200, {"error": {"message": "no auth", "code": 401}}, AuthenticationError),
    (
        404,
        error("The model `abc` does not exist", code="model_not_found", param="model"),
        ModelUnavailableError,
    ),
    (400, error("you must provide a model parameter", param="model"), ModelUnavailableError),
    (400, error("Unknown model: abc"), ModelUnavailableError),
    (400, error("The model `abc` has been decommissioned"), ModelUnavailableError),
    (422, error("model 'org/abc-1.5' not found"), ModelUnavailableError),
    (400, error("The model abc is not supported"), ModelUnavailableError),
    (410, {"error": "Gone"}, ModelUnavailableError),
    (404, {"error": "Not found"}, EndpointError),
    (404, "<html><head><title>404 Not Found</title></head></html>", EndpointError),
    (405, "Method Not Allowed", EndpointError),
]


@pytest.mark.parametrize(("status", "body", "kind"), ENDS)
def test_what_no_row_can_survive_ends_the_run(status: int, body: object, kind: type[EndpointError]) -> None:
    """A wrong key, model or URL is found at the first answer; the message names the URL."""
    verdict = judge(status, body, model="org/abc-1.5" if "1.5" in str(body) else "abc")
    assert isinstance(verdict, RunEnds)
    assert type(verdict.error) is kind
    assert URL in str(verdict.error)


@pytest.mark.parametrize(
    ("status", "message", "model", "ends"),
    [
        (400, "Unknown model: abc", "abc", True),
        (400, "Unknown model: abc", "Org/ABC", True),
        (400, "`Org/Abc` is an unknown model", "org/abc", True),
        (400, "Unknown model: abc", "abcd", False),
        (400, "Unknown model: abcd", "abc", False),
        (400, "Unknown model of printer", "abc", False),
        (400, f"Unknown model of printer {'x ' * 50} asked of abc", "abc", False),
        (400, "Unknown model: abc", None, False),
        (422, "Unknown model of printer", "", False),
        (404, "Unknown model of any kind", "abc", True),
        (404, "no such model", None, True),
    ],
)
def test_words_alone_say_that_the_model_is_unknown_only_where_they_name_it(
    status: int, message: str, model: str | None, *, ends: bool
) -> None:
    """Or where the status says that something is not there; else it may be the row that speaks of models."""
    verdict = judge(status, error(message), model=model)
    assert isinstance(verdict, RunEnds if ends else RowFailed)
    if isinstance(verdict, RunEnds):
        assert type(verdict.error) is ModelUnavailableError


# Servers that repeat what they refuse.


SPEAKS = [
    "the device is an unknown model of printer",
    "the model abc does not exist",
    "the prompt is too long, it exceeds the maximum context length",
    "a rate limit: limit 5, requested 9 tokens per minute",
    "you have exceeded your current quota, try again in 3 hours",
    "insufficient_quota",
]
"""Texts of rows that sound like complaints of a server."""

ECHOES: dict[str, Callable[[str], object]] = {
    "finding": lambda text: {"detail": [{"loc": ["body", "messages", 0], "msg": "bad", "input": text}]},
    "context of a finding": lambda text: {"detail": [{"msg": "bad", "ctx": {"error": text}}]},
    "message": lambda text: error(f"bad input: {text!r}"),
    "message in JSON": lambda text: error(f"bad: {json.dumps({'messages': [{'content': text}]})}"),
    "flat": lambda text: {"object": "error", "message": f"[{{'msg': 'bad', 'input': '{text}'}}]"},
    "text": lambda text: f"bad {text}",
    "page": lambda text: f"<html><body><h1>bad</h1><pre>{html.escape(text)}</pre></body></html>",
}


def asking(text: str) -> ChatRequest:
    """Make the request of a row."""
    return ChatRequest(messages=[{"role": "user", "content": text}])


@pytest.mark.parametrize("text", SPEAKS)
@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("status", [400, 422])
def test_what_a_row_says_in_a_refusal_is_no_word_of_the_server_s(status: int, echo: str, text: str) -> None:
    """A row that speaks of models, lengths and quotas fails as any other, and ends nothing."""
    verdict = judge(status, ECHOES[echo](text), model="abc", request=asking(text))
    assert isinstance(verdict, RowFailed)
    assert verdict.kind == "invalid_request"
    assert "bad" in verdict.reason


@pytest.mark.parametrize("text", SPEAKS)
@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("status", [200, 401, 402, 404, 429, 500, 503])
def test_only_a_failed_row_is_told_what_was_quoted_of_it(status: int, echo: str, text: str) -> None:
    """What ends a run, pauses it or is tried again comes into messages and logs."""
    verdict = judge(status, ECHOES[echo](text), model="abc", request=asking(text))
    said = str(verdict.error) if isinstance(verdict, RunEnds) else getattr(verdict, "reason", None)
    assert said
    assert text not in html.unescape(said)
    failed = judge(418, error(f"bad input: {text}"), request=asking(text))
    assert getattr(failed, "reason", "") == f"HTTP 418: bad input: {text}"


def test_a_server_s_own_words_about_a_length_are_heard_beside_what_it_quotes() -> None:
    """The refusal keeps its kind."""
    text = "patient unknown to the archive"
    body = error(f"This model's maximum context length is 10 tokens; you sent {text!r}")
    assert getattr(judge(400, body, request=asking(text)), "kind", None) == "context_overflow"


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        (
            [{"loc": ["body", "n"], "msg": "must be at most 8", "input": "private"}],
            "body.n: must be at most 8",
        ),
        ([{"msg": "one"}, {"loc": [], "msg": "two"}, {"loc": ["x"]}, "three", 4], "one; two; three"),
        ({"message": "inside", "input": "private"}, "inside"),
        ({"error": "inside"}, "inside"),
        ({"input": "private"}, "no text"),
        ([{"input": "private"}], "no text"),
        ([[["private"]]], "no text"),
    ],
)
def test_of_a_validation_s_findings_the_texts_and_places_are_told(detail: object, said: str) -> None:
    """What was validated is not."""
    assert getattr(judge(422, {"detail": detail}), "reason", "") == f"HTTP 422: {said}"


AGAIN: list[tuple[int, object, str, bool, bool]] = [
    (408, {"error": "Request timeout"}, "timeout", True, False),
    (500, "Internal Server Error", "server_error", False, True),
    (500, {"error": {}}, "server_error", False, True),
    (502, "<html><body><h1>502 Bad Gateway</h1></body></html>", "bad_gateway", True, True),
    (503, "Service Temporarily Unavailable", "unavailable", False, True),
    (503, error("maintenance"), "unavailable", False, True),
    (504, "Queue Full", "gateway_timeout", True, True),
    (529, error("overloaded"), "overloaded", False, True),
    (524, "<html></html>", "server_error", True, True),
    (599, b"", "server_error", False, False),
    (200, b"", "empty_body", True, False),
    (200, b" \n", "empty_body", True, False),
    (204, b"", "empty_body", True, False),
    (200, "<!DOCTYPE html><html><title>Welcome</title></html>", "html", False, False),
    (200, "Unexpected endpoint", "not_json", True, False),
    (200, '{"choices": [{"message": {"content": "half', "cut_body", True, False),
    (200, {"choices": []}, "no_choices", True, False),
    (200, {}, "no_choices", True, False),
    (200, "null", "no_choices", True, False),
    (200, {"choices": None}, "no_choices", True, False),
    (200, {"error": "boom"}, "error_in_200", True, False),
    (200, {"error": None}, "error_in_200", True, False),
    (200, {"error": {}}, "error_in_200", True, False),
    (200, {"object": "error", "message": "boom"}, "error_in_200", True, False),
    (200, {"error": {"message": "boom", "code": 503}}, "unavailable", False, True),
]


@pytest.mark.parametrize(("status", "body", "kind", "paid", "down"), AGAIN)
def test_what_may_pass_is_tried_again(
    status: int, body: object, kind: str, *, paid: bool, down: bool
) -> None:
    """And it is told whether the request may have been paid for, and whether the endpoint seems down."""
    verdict = judge(status, body)
    assert isinstance(verdict, RetryAfter)
    assert (verdict.kind, verdict.possibly_paid, verdict.down) == (kind, paid, down)
    assert not verdict.rate_limited


FAILS: list[tuple[int, object, str]] = [
    (400, "Invalid request body:  - missing property 'messages'", "invalid_request"),
    (
        400,
        error("Invalid value for 'content': expected a string, got null.", param="messages.[5].content"),
        "invalid_request",
    ),
    (400, {"error": None}, "invalid_request"),
    (400, {"error": {"code": 1234, "message": "no"}}, "invalid_request"),
    (422, {"detail": [{"loc": ["body", "n"], "msg": "must be at most 8"}]}, "invalid_request"),
    (413, "Request Entity Too Large", "too_large"),
    (418, b"", "invalid_request"),
    (400, error("for this model the parameter top_k is not supported"), "invalid_request"),
    (400, error("no", code="content_filter"), "filtered"),
    (200, error("n must be at most 8", type="invalid_request_error"), "invalid_request"),
]


@pytest.mark.parametrize(("status", "body", "kind"), FAILS)
def test_what_is_wrong_with_one_request_is_that_row_s(status: int, body: object, kind: str) -> None:
    """Other requests may be right."""
    verdict = judge(status, body)
    assert isinstance(verdict, RowFailed)
    assert (verdict.kind, verdict.possibly_paid) == (kind, False)


def test_output_that_could_not_be_parsed_is_kept() -> None:
    """The model has worked: its output is there to look at."""
    verdict = judge(500, error("bad tool call", type="server_error", error_model_output='{"a": '))
    assert isinstance(verdict, Unparsed)
    assert (verdict.output, verdict.request_id) == ('{"a": ', "r1")
    assert b"error_model_output" in verdict.body


def test_the_request_s_id_comes_from_header_or_body() -> None:
    """It is what a vendor asks for."""
    assert judge(400, error()).request_id == "r1"
    assert judge(400, error(), {"x-request-id": "r2"}).request_id == "r2"
    assert "r1" in str(getattr(judge(401, error()), "error", ""))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (error("broken pipe"), "HTTP 400: broken pipe"),
        ({"error": "text"}, "HTTP 400: text"),
        ({"object": "error", "message": "flat"}, "HTTP 400: flat"),
        ({"error": True, "message": "beside"}, "HTTP 400: beside"),
        ({"errors": [{"message": "listed"}]}, "HTTP 400: listed"),
        ([{"error": {"message": "wrapped"}}], "HTTP 400: wrapped"),
        ({"detail": "fastapi"}, "HTTP 400: fastapi"),
        ('"just text"', "HTTP 400: just text"),
        ("plain\n  text", "HTTP 400: plain text"),
        ("<html><title>A  page</title><body>x</body></html>", "HTTP 400: A page"),
        ("<html><script>x()</script><body><h1>Seen</h1></body></html>", "HTTP 400: Seen"),
        (b"\xff\xfe", "HTTP 400: \ufffd\ufffd"),
        ({}, "HTTP 400: no text"),
        (b"", "HTTP 400: no text"),
    ],
)
def test_a_complaint_is_found_in_every_shape(body: object, said: str) -> None:
    """What the server said is what the row's error says."""
    assert getattr(judge(400, body), "reason", "") == said


def test_a_long_complaint_is_cut_and_a_key_in_it_is_masked() -> None:
    """Also where the key would have been cut in half."""
    key = "k" * 40
    verdict = judge(400, error("x" * 280 + key), redact=lambda text: text.replace(key, "***"))
    assert isinstance(verdict, RowFailed)
    assert len(verdict.reason) < 330
    assert "kk" not in verdict.reason


def test_a_redirect_ends_the_run_and_names_the_host() -> None:
    """A key is not carried to another host behind the user's back."""
    verdict = judge(307, b"", {"location": "https://other.example/v2?token=secret"})
    assert isinstance(verdict, RunEnds)
    assert "other.example" in str(verdict.error)
    assert "secret" not in str(verdict.error)
    assert isinstance(judge(301, b"", {"location": "http://[broken"}), RunEnds)


# No response at all.


@pytest.mark.parametrize(
    ("fault", "kind", "paid"),
    [
        (httpx.ConnectError("refused"), "connect", False),
        (httpx.ConnectTimeout("x"), "connect_timeout", False),
        (httpx.WriteTimeout("x"), "write_timeout", False),
        (httpx.ReadTimeout("x"), "read_timeout", True),
        (httpx.ReadError("reset"), "reset", True),
        (httpx.WriteError("reset"), "reset", True),
        (httpx.RemoteProtocolError("closed"), "disconnected", True),
        (httpx.DecodingError("bad gzip"), "cut_body", True),
        (ConnectionResetError(), "reset", True),
        (TimeoutError(), "read_timeout", True),
    ],
)
def test_a_fault_of_the_connection_is_tried_again(fault: Exception, kind: str, *, paid: bool) -> None:
    """What may have reached the server may have been paid for; what never connected has not."""
    verdict = judge(None, error=fault)
    assert isinstance(verdict, RetryAfter)
    assert (verdict.kind, verdict.possibly_paid, verdict.down) == (kind, paid, True)


def test_waiting_for_a_free_connection_says_nothing_about_the_endpoint() -> None:
    """It is our own pool."""
    verdict = judge(None, error=httpx.PoolTimeout("x"))
    assert isinstance(verdict, RetryAfter)
    assert (verdict.down, verdict.possibly_paid) == (False, False)


def test_a_certificate_that_is_not_trusted_ends_the_run() -> None:
    """No retry makes it trusted."""
    fault = httpx.ConnectError("no connection")
    fault.__cause__ = ssl.SSLCertVerificationError("self-signed")
    assert isinstance(judge(None, error=fault), RunEnds)


def test_a_body_that_breaks_off_is_no_answer_and_possibly_paid() -> None:
    """Even when what came of it is whole JSON by chance."""
    verdict = judge(200, ANSWER, error=httpx.ReadError("reset"))
    assert isinstance(verdict, RetryAfter)
    assert (verdict.kind, verdict.possibly_paid) == ("cut_body", True)


def test_an_error_whose_body_breaks_off_is_still_that_error() -> None:
    """The status says enough."""
    verdict = judge(429, b'{"err', error=httpx.ReadError("reset"))
    assert isinstance(verdict, RetryAfter)
    assert verdict.rate_limited


def test_a_cut_stream_is_no_answer_and_possibly_paid() -> None:
    """With the reason why it counts as cut."""
    verdict = judge(200, ANSWER, cut="the stream ended early")
    assert isinstance(verdict, RetryAfter)
    assert (verdict.kind, verdict.possibly_paid) == ("cut_stream", True)
    assert verdict.reason == "HTTP 200: the stream ended early"


@pytest.mark.parametrize("more", [{}, {"error": httpx.ReadError("reset")}])
def test_half_an_answer_is_not_quoted_in_an_error(more: dict[str, Any]) -> None:
    """It is corpus text, which belongs into columns and not into logs."""
    verdict = judge(200, '{"choices": [{"message": {"content": "private', **more)
    assert isinstance(verdict, RetryAfter)
    assert "private" not in verdict.reason


def test_an_error_after_half_a_text_is_possibly_paid() -> None:
    """Whatever the error says: the model had begun."""
    unavailable = {"error": {"message": "boom", "code": 503}}
    assert getattr(judge(200, unavailable, begun=True), "possibly_paid", None) is True
    assert getattr(judge(200, unavailable), "possibly_paid", None) is False


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"error":' * 100_000, b'{"choices": 5}', b'{"choices": true}']
)
def test_hostile_json_is_no_answer_and_no_exception(body: bytes) -> None:
    """Under a status of success and under another."""
    assert not isinstance(judge(200, body), Accepted)
    assert isinstance(judge(400, body), RowFailed)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["error", "message", "code", "type", "choices", "detail", "status", "errors", "index"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@given(
    status=st.integers(100, 599),
    body=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()),
    headers=st.dictionaries(
        st.sampled_from(["retry-after", "location", "x-ratelimit-reset"]), st.text(max_size=12)
    ),
)
def test_no_response_makes_it_raise(status: int, body: bytes, headers: dict[str, str]) -> None:
    """Whatever comes over the wire, a verdict comes out; and no error is ever an answer."""
    verdict = judge(status, body, headers)
    assert isinstance(verdict, Verdict)
    if status >= 300:
        assert not isinstance(verdict, Accepted)
