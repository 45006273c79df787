"""The real-time client against the fake runtime: signed, answered, streamed, and judged by the table of errors."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from corpusmill.chat.eventstream import StreamExceptionError
from corpusmill.chat.sagemaker import SageMakerClient
from corpusmill.chat.sagemaker_verdicts import classify_sagemaker
from corpusmill.chat.transport import Timeouts, default_transport
from corpusmill.chat.verdict import Accepted, RetryAfter, RowFailed, RunEnds, Verdict
from corpusmill.endpoints.sagemaker import LANGUAGES, SageMakerEndpoint
from corpusmill.errors import AuthenticationError, PromptError, UsageError
from corpusmill.exchange import ChatRequest
from corpusmill.testing import expected_answer
from corpusmill.testing.sagemaker.faults import ERRORS, STREAM_FAULTS
from corpusmill.testing.sagemaker.server import KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from corpusmill.testing.sagemaker import FakeSageMaker

MESSAGES = [{"role": "user", "content": "Translate into Latvian: Čau — \u2028\x85 I like cakes."}]
REQUEST = ChatRequest(messages=MESSAGES, parameters={"temperature": 0})


def endpoint_of(fake: FakeSageMaker, **options: Any) -> SageMakerEndpoint:
    """Describe the fake's endpoint."""
    settings = {"endpoint_name": "tilde", "region": fake.region, "model": "tildeopen-30b-64k"}
    return SageMakerEndpoint(**{**settings, "endpoint_url": fake.url, **options})


def send(endpoint: SageMakerEndpoint, requests: Sequence[ChatRequest] = (REQUEST,)) -> list[Verdict]:
    """Make one attempt at each request, one after the other, by one client."""

    async def run() -> list[Verdict]:
        client = SageMakerClient(endpoint, transport=default_transport(connections=4, timeouts=Timeouts()))
        try:
            return [await client.send(request) for request in requests]
        finally:
            await client.aclose()

    return asyncio.run(run())


def fail_with(fake: FakeSageMaker, *faults: str) -> None:
    """Let the first attempts at each request meet these faults."""
    fake.runtime.script = lambda _request, attempt: faults[attempt - 1] if attempt <= len(faults) else None


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_comes_by_both_routes(fake: FakeSageMaker, *, stream: bool) -> None:
    """The signature is accepted, the text is whole, usage is known, the body names no model."""
    (verdict,) = send(endpoint_of(fake, stream=stream))
    assert isinstance(verdict, Accepted)
    assert verdict.completion.content == expected_answer(MESSAGES)
    assert verdict.completion.finish_reason == "stop"
    assert verdict.completion.prompt_tokens
    assert verdict.request_id
    assert fake.runtime.calls[0]["stream"] == stream
    assert fake.container.computed.total() == 1


def test_headers_of_the_service_are_sent_and_signed(fake_factory: Callable[..., FakeSageMaker]) -> None:
    """Each under its own name."""
    fake = fake_factory(components=["lv"])
    endpoint = endpoint_of(
        fake,
        inference_component="lv",
        target_variant="blue",
        target_model="model.tar.gz",
        target_container_hostname="main",
        custom_attributes="  trace=1, who=  me ",
        inference_id="run-1",
        session_id="session-1",
    )
    (verdict,) = send(endpoint)
    assert isinstance(verdict, Accepted)
    headers = fake.runtime.calls[0]["headers"]
    sent = {name: value for name, value in headers.items() if name.startswith("x-amzn-sagemaker-")}
    assert sent == {
        "x-amzn-sagemaker-inference-component": "lv",
        "x-amzn-sagemaker-target-variant": "blue",
        "x-amzn-sagemaker-target-model": "model.tar.gz",
        "x-amzn-sagemaker-target-container-hostname": "main",
        "x-amzn-sagemaker-custom-attributes": "trace=1, who=  me",
        "x-amzn-sagemaker-inference-id": "run-1",
        "x-amzn-sagemaker-session-id": "session-1",
    }
    signed = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert set(sent) <= set(signed)


@pytest.mark.parametrize(
    "settings",
    [
        {"custom_attributes": "čau"},
        {"custom_attributes": "one\ntwo"},
        {"custom_attributes": " "},
        {"custom_attributes": "x" * 1_025},
        {"endpoint_name": "arn:aws:sagemaker:eu-north-1:1:endpoint/tilde"},
        {"region": "Stockholm"},
        {"model": " "},
        {"endpoint_url": "http://user:secret@host"},
        {"inference_component": "a/b"},
    ],
)
def test_what_could_not_be_sent_is_refused_at_once(settings: dict[str, str]) -> None:
    """With the name of the setting, before anything is asked."""
    usual = {"endpoint_name": "tilde", "region": "eu-north-1", "model": "m"}
    with pytest.raises(UsageError, match=next(iter(settings))) as caught:
        SageMakerEndpoint(**{**usual, **settings})  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


KINDS: dict[str, tuple[type[Verdict], str | None, bool]] = {
    "model_timeout": (RetryAfter, "container_timeout", True),
    "model_400": (RowFailed, "invalid_request", False),
    "model_400_overflow": (RowFailed, "context_overflow", False),
    "model_400_overflow_cut": (RowFailed, "context_overflow", False),
    "model_401": (RowFailed, "refused_by_container", False),
    "model_404": (RowFailed, "refused_by_container", False),
    "model_408": (RetryAfter, "container_timeout", True),
    "model_429": (RetryAfter, "rate_limited", False),
    "model_500": (RetryAfter, "server_error", False),
    "model_500_overflow": (RowFailed, "context_overflow", False),
    "model_503": (RetryAfter, "unavailable", False),
    "not_ready": (RetryAfter, "cold_start", False),
    "throttled": (RetryAfter, "rate_limited", False),
    "throttled_null": (RetryAfter, "rate_limited", False),
    "internal": (RetryAfter, "server_error", False),
    "unavailable": (RetryAfter, "unavailable", False),
    "dependency": (RetryAfter, "server_error", False),
    "no_endpoint": (RunEnds, None, False),
    "too_large": (RowFailed, "too_large", False),
    "access_denied": (RunEnds, None, False),
    "unrecognized": (RunEnds, None, False),
    "expired": (RunEnds, None, False),
    "signature": (RunEnds, None, False),
    "skew": (RunEnds, None, False),
}


def test_the_table_of_errors_is_complete() -> None:
    """Each error of the fake has its line."""
    assert KINDS.keys() == ERRORS.keys()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", sorted(KINDS))
def test_an_error_is_judged_by_the_table(fake: FakeSageMaker, name: str, *, stream: bool) -> None:
    """Whether to retry, whose fault it is, and whether it may have been paid."""
    fail_with(fake, name)
    (verdict,) = send(endpoint_of(fake, stream=stream))
    expected, kind, paid = KINDS[name]
    assert type(verdict) is expected
    assert getattr(verdict, "kind", None) == kind
    assert getattr(verdict, "possibly_paid", False) == paid
    if isinstance(verdict, RetryAfter):
        assert verdict.rate_limited == (kind in {"rate_limited", "cold_start"})


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("no_endpoint", "check endpoint_name, region"),
        ("access_denied", "allow the role sagemaker:InvokeEndpoint"),
        ("unrecognized", "AWS_PROFILE"),
        ("signature", "secret key"),
        ("skew", "the clock of this machine is wrong"),
        ("expired", "log in again"),
    ],
)
def test_an_error_that_ends_the_run_says_what_to_do(fake: FakeSageMaker, name: str, advice: str) -> None:
    """And shows neither key nor secret."""
    fail_with(fake, name)
    (verdict,) = send(endpoint_of(fake))
    assert isinstance(verdict, RunEnds)
    assert advice in str(verdict.error)
    assert KEY.secret not in str(verdict.error)
    assert KEY.key not in str(verdict.error)


WHOLE = {"stream_unknown_event", "stream_as_sse", "stream_bare_sse", "stream_json_lines", "stream_no_done"}


@pytest.mark.parametrize("fault", sorted(STREAM_FAULTS))
@pytest.mark.parametrize("reads", [(1,), (97, 5), (1 << 20,)])
def test_a_stream_is_an_answer_only_when_it_is_whole(
    fake: FakeSageMaker, fault: str, reads: tuple[int, ...]
) -> None:
    """However it is cut; what is not whole may have been paid, and is asked again."""
    fail_with(fake, fault)
    fake.runtime.cuts, fake.runtime.reads = (11, 160, 3), reads
    (verdict,) = send(endpoint_of(fake, stream=True))
    if fault in WHOLE:
        assert isinstance(verdict, Accepted)
        assert verdict.completion.content == expected_answer(MESSAGES)
    else:
        assert isinstance(verdict, RetryAfter)
        assert verdict.possibly_paid
        assert "cakes" not in verdict.reason


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("stream_model_error", "stream_broken"), ("stream_time_exceeded", "stream_time_exceeded")],
)
def test_the_code_of_an_exception_frame_is_kept(fake: FakeSageMaker, fault: str, kind: str) -> None:
    """It says whether the connection broke or the time was over."""
    fail_with(fake, fault)
    (verdict,) = send(endpoint_of(fake, stream=True))
    assert isinstance(verdict, RetryAfter)
    assert verdict.kind == kind


def test_a_call_that_took_too_long_is_asked_again_as_a_stream(fake: FakeSageMaker) -> None:
    """That very request alone; the first attempt counts as possibly paid."""
    fake.runtime.slow = "cakes"
    other = replace(REQUEST, messages=[{"role": "user", "content": "short"}])
    first, between, second = send(endpoint_of(fake), [REQUEST, other, REQUEST])
    assert isinstance(first, RetryAfter)
    assert first.possibly_paid
    assert isinstance(between, Accepted)
    assert isinstance(second, Accepted)
    assert second.completion.content == expected_answer(MESSAGES)
    assert [call["stream"] for call in fake.runtime.calls] == [False, False, True]


def test_an_error_inside_a_200_is_no_answer(fake: FakeSageMaker) -> None:
    """Some containers report a failure so."""
    fail_with(fake, "error_in_200")
    (verdict,) = send(endpoint_of(fake))
    assert isinstance(verdict, RetryAfter)


@pytest.mark.parametrize("fault", ["reset", "reset_after_compute"])
def test_a_lost_connection_counts_as_possibly_paid(fake: FakeSageMaker, fault: str) -> None:
    """Nobody can tell whether the model had worked."""
    fail_with(fake, fault)
    (verdict,) = send(endpoint_of(fake))
    assert isinstance(verdict, RetryAfter)
    assert verdict.possibly_paid


def test_a_body_that_no_endpoint_takes_is_not_sent(fake: FakeSageMaker) -> None:
    """It fails its row."""
    (verdict,) = send(endpoint_of(fake, max_body_bytes=100))
    assert isinstance(verdict, RowFailed)
    assert verdict.kind == "too_large"
    assert fake.runtime.calls == []


def write_profile(path: Path, key: str, token: str) -> None:
    """Write temporary credentials to a file as `aws` does."""
    path.write_text(
        f"[default]\naws_access_key_id={key}\naws_secret_access_key={KEY.secret}\naws_session_token={token}\n"
    )


def test_expired_credentials_are_looked_for_anew(
    fake: FakeSageMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Somebody has logged in again meanwhile: the next attempt is signed with what is there now."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    shared = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(shared))
    old = replace(KEY, key="ASIAOLD", token="old")
    fake.keys = {old.key: old, "ASIANEW": replace(KEY, key="ASIANEW", token="new")}
    write_profile(shared, "ASIAOLD", "old")

    async def run() -> list[Verdict]:
        client = SageMakerClient(
            endpoint_of(fake), transport=default_transport(connections=4, timeouts=Timeouts())
        )
        verdicts = [await client.send(REQUEST)]
        fake.keys[old.key] = replace(old, expired=True)
        write_profile(shared, "ASIANEW", "new")
        verdicts += [await client.send(REQUEST) for _ in range(2)]
        fake.keys["ASIANEW"] = replace(fake.keys["ASIANEW"], expired=True)
        verdicts.append(await client.send(REQUEST))
        await client.aclose()
        return verdicts

    first, expired, fresh, ended = asyncio.run(run())
    assert isinstance(first, Accepted)
    assert isinstance(expired, RetryAfter)
    assert isinstance(fresh, Accepted)
    assert isinstance(ended, RunEnds)


def test_missing_credentials_end_the_run(fake: FakeSageMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says where they may come from."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (verdict,) = send(endpoint_of(fake))
    assert isinstance(verdict, RunEnds)
    assert isinstance(verdict.error, AuthenticationError)
    assert "aws sso login" in str(verdict.error)
    assert fake.runtime.calls == []


def test_an_unknown_profile_ends_the_run(fake: FakeSageMaker) -> None:
    """By its name."""
    (verdict,) = send(endpoint_of(fake, profile="nobody"))
    assert isinstance(verdict, RunEnds)
    assert "nobody" in str(verdict.error)


def test_credentials_that_run_out_are_refreshed_by_their_source(
    fake: FakeSageMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that hands out credentials for a minute is asked again when they are about to end."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    count = tmp_path / "count"
    told = json.dumps(
        {
            "Version": 1,
            "AccessKeyId": KEY.key,
            "SecretAccessKey": KEY.secret,
            "Expiration": "2000-01-01T00:00:00Z",
        }
    )
    later = told.replace("2000-", "2100-")
    script = tmp_path / "login"
    script.write_text(
        f"#!/bin/sh\necho x >> {count}\nif [ $(wc -l < {count}) -gt 1 ]; then echo '{later}'; else echo '{told}'; fi\n"
    )
    script.chmod(0o755)
    config = tmp_path / "config"
    config.write_text(f"[default]\ncredential_process = {script}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    verdicts = send(endpoint_of(fake), [REQUEST, REQUEST])
    assert [type(verdict) for verdict in verdicts] == [Accepted, Accepted]
    assert len(count.read_text().splitlines()) >= 2


def test_the_endpoint_shows_no_secret(fake: FakeSageMaker) -> None:
    """It holds none; a profile's name is none."""
    shown = repr(endpoint_of(fake, profile="prod"))
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in shown
    assert (
        endpoint_of(fake).identity == endpoint_of(fake, stream=True).identity == "sagemaker tildeopen-30b-64k"
    )


@pytest.mark.parametrize(
    "parameters",
    [
        {"n": 2},
        {"logprobs": True},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
        {"response_format": {"type": "other"}},
    ],
)
def test_what_the_model_cannot_do_is_refused_before_sending(
    fake: FakeSageMaker, parameters: dict[str, Any]
) -> None:
    """Several choices, log probabilities, tools and JSON."""
    with pytest.raises(PromptError, match=next(iter(parameters))):
        endpoint_of(fake).check(parameters)


def test_the_languages_are_the_34_of_the_model() -> None:
    """Greek is none of them."""
    assert len(LANGUAGES) == 34
    assert "el" not in LANGUAGES


TEXT = "the model tildeopen-30b-64k does not exist, says Ann Lee"


@pytest.mark.parametrize(
    ("status", "said", "kind", "quoted"),
    [
        (400, {"error": f"bad input: {TEXT}"}, RowFailed, True),
        (404, {"detail": [{"msg": "bad", "input": TEXT}]}, RowFailed, False),
        (429, {"error": f"bad input: {TEXT}"}, RetryAfter, False),
        (500, {"error": f"bad input: {TEXT}"}, RetryAfter, False),
        (0, {"error": f"bad input: {TEXT}"}, RetryAfter, False),
    ],
)
def test_what_a_container_repeats_of_the_row_is_told_to_the_row_alone(
    status: int, said: object, kind: type, *, quoted: bool
) -> None:
    """And is no word of the container's, whichever name of a model it holds."""
    body = {"OriginalStatusCode": status, "OriginalMessage": json.dumps(said), "Message": "received an error"}
    verdict = classify_sagemaker(
        status=424,
        headers={"x-amzn-errortype": "ModelError"},
        body=json.dumps(body).encode(),
        now=0.0,
        model="tildeopen-30b-64k",
        request=ChatRequest(messages=[{"role": "user", "content": TEXT}]),
    )
    assert isinstance(verdict, kind)
    reason = getattr(verdict, "reason", "")
    assert reason
    assert ("Ann Lee" in reason) == quoted


@pytest.mark.parametrize(
    "code", ["ThrottlingException", "ExpiredTokenException", "ValidationException", "AccessDenied"]
)
def test_what_the_service_repeats_of_the_row_is_in_no_message(code: str) -> None:
    """Nor what comes in a stream that breaks off."""
    request = ChatRequest(messages=[{"role": "user", "content": TEXT}])
    verdict = classify_sagemaker(
        status=400,
        headers={"x-amzn-errortype": code},
        body=json.dumps({"message": f"bad input: {TEXT}"}).encode(),
        now=0.0,
        request=request,
    )
    said = str(verdict.error) if isinstance(verdict, RunEnds) else getattr(verdict, "reason", "")
    assert "bad input: …" in said
    broken = classify_sagemaker(
        status=200,
        headers={},
        error=StreamExceptionError("ModelStreamError", "StreamBroken", TEXT),
        now=0.0,
        request=request,
    )
    assert "Ann Lee" not in getattr(broken, "reason", TEXT)
