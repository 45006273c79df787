"""The fake runtime, judged by the unmodified boto3: every route, every error of the table, every broken stream."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, EventStreamError, HTTPClientError

from corpusmill.testing import expected_answer
from corpusmill.testing.sagemaker import AccessKey
from corpusmill.testing.sagemaker.faults import ERRORS
from corpusmill.testing.sagemaker.server import KEY, REGION

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpusmill.testing.sagemaker import FakeSageMaker

MESSAGES = [{"role": "user", "content": "Translate into Latvian: Čau — \u2028 I like cakes."}]
BODY = json.dumps({"messages": MESSAGES, "temperature": 0}).encode()
STREAMED = json.dumps({"messages": MESSAGES, "temperature": 0, "stream": True}).encode()


def invoke(runtime: Any, body: bytes = BODY, **options: Any) -> Any:
    """Call the plain route."""
    return runtime.invoke_endpoint(EndpointName="tilde", Body=body, ContentType="application/json", **options)


def read_stream(runtime: Any) -> bytes:
    """Call the streaming route, and join the payload parts."""
    found = runtime.invoke_endpoint_with_response_stream(
        EndpointName="tilde", Body=STREAMED, ContentType="application/json"
    )
    with contextlib.closing(found["Body"]) as events:
        return b"".join(event["PayloadPart"]["Bytes"] for event in events if "PayloadPart" in event)


def text_of(events: bytes) -> str:
    """Give the text that server-sent events bring."""
    pieces = []
    for event in events.split(b"\n\n"):
        data = event.removeprefix(b"data: ").strip()
        if data and data != b"[DONE]":
            pieces += [choice["delta"].get("content", "") for choice in json.loads(data)["choices"]]
    return "".join(pieces)


def test_a_call_is_answered_as_the_reference_page_says(boto: Callable[[str], Any]) -> None:
    """The body has the fields of the page and nothing else, and the text is the one that can be computed."""
    found = invoke(boto("sagemaker-runtime"), CustomAttributes="trace=1")
    answer = json.loads(found["Body"].read())
    assert set(answer) == {"id", "object", "created", "model", "choices", "usage"}
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": expected_answer(MESSAGES)}
    assert choice["finish_reason"] == "stop"
    assert answer["usage"]["total_tokens"] == sum(
        answer["usage"][name] for name in ("prompt_tokens", "completion_tokens")
    )
    assert found["InvokedProductionVariant"] == "AllTraffic"
    assert found["CustomAttributes"] == "trace=1"


@pytest.mark.parametrize("sizes", [(1,), (3, 1, 7), (10_000,)])
def test_a_stream_comes_in_parts_that_are_cut_anywhere(
    fake: FakeSageMaker, boto: Callable[[str], Any], sizes: tuple[int, ...]
) -> None:
    """Joined together the parts are the same server-sent events, whatever their sizes."""
    fake.runtime.cuts = sizes
    events = read_stream(boto("sagemaker-runtime"))
    assert events.endswith(b"data: [DONE]\n\n")
    assert text_of(events) == expected_answer(MESSAGES)


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_an_error_is_what_boto3_makes_of_it(
    fake: FakeSageMaker, boto: Callable[[str], Any], name: str
) -> None:
    """Each error of the table comes with its status and its name; a model's error with what the model said."""
    fake.runtime.script = lambda _request, _attempt: name
    with pytest.raises(ClientError) as caught:
        invoke(boto("sagemaker-runtime"))
    error, response = ERRORS[name], caught.value.response
    assert response["ResponseMetadata"]["HTTPStatusCode"] == error.status
    assert response["Error"]["Code"] == error.code
    if error.code == "ModelError":
        assert error.body is not None
        assert response["OriginalStatusCode"] == error.body["OriginalStatusCode"]
        assert response["OriginalMessage"] == error.body["OriginalMessage"]
        assert len(response["OriginalMessage"]) <= 2_048


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("stream_model_error", "ModelStreamError"),
        ("stream_time_exceeded", "ModelStreamError"),
        ("stream_internal", "InternalStreamFailure"),
        ("stream_error_frame", "InternalError"),
    ],
)
def test_an_error_in_a_stream_is_raised_by_boto3(
    fake: FakeSageMaker, boto: Callable[[str], Any], fault: str, code: str
) -> None:
    """Half of the answer comes, then the exception frame."""
    fake.runtime.script = lambda _request, _attempt: fault
    with pytest.raises(EventStreamError, match=code):
        read_stream(boto("sagemaker-runtime"))


@pytest.mark.parametrize("fault", ["stream_truncated", "stream_empty"])
def test_what_botocore_passes_over_in_silence_is_on_the_wire(
    fake: FakeSageMaker, boto: Callable[[str], Any], fault: str
) -> None:
    """A frame that is cut off and a stream without any end without an error, and without the whole text."""
    fake.runtime.script = lambda _request, _attempt: fault
    assert expected_answer(MESSAGES) not in text_of(
        read_stream(boto("sagemaker-runtime")).rpartition(b"\n\n")[0]
    )


@pytest.mark.parametrize("fault", ["stream_crc", "stream_oversized"])
def test_a_broken_frame_is_refused_by_botocore(
    fake: FakeSageMaker, boto: Callable[[str], Any], fault: str
) -> None:
    """A wrong checksum and a size beyond all bounds."""
    fake.runtime.script = lambda _request, _attempt: fault
    with pytest.raises(Exception, match=r"[Cc]hecksum|[Pp]ayload") as caught:
        read_stream(boto("sagemaker-runtime"))
    assert type(caught.value).__module__ == "botocore.eventstream"


def test_events_that_nobody_knows_do_no_harm(fake: FakeSageMaker, boto: Callable[[str], Any]) -> None:
    """Botocore hands them on under a name of their own."""
    fake.runtime.script = lambda _request, _attempt: "stream_unknown_event"
    assert text_of(read_stream(boto("sagemaker-runtime"))) == expected_answer(MESSAGES)


@pytest.mark.parametrize("fault", ["reset", "reset_after_compute"])
def test_a_reset_is_a_reset(fake: FakeSageMaker, boto: Callable[[str], Any], fault: str) -> None:
    """The connection is gone; only in one of the two cases has the model worked."""
    fake.runtime.script = lambda _request, _attempt: fault
    with pytest.raises((ConnectionClosedError, HTTPClientError)):
        invoke(boto("sagemaker-runtime"))
    assert fake.container.computed.total() == (fault == "reset_after_compute")


def test_the_first_calls_find_a_cold_model(fake: FakeSageMaker, boto: Callable[[str], Any]) -> None:
    """They are told to come back; the next one is answered."""
    fake.runtime.cold = 2
    runtime = boto("sagemaker-runtime")
    for _ in range(2):
        with pytest.raises(runtime.exceptions.ModelNotReadyException):
            invoke(runtime)
    assert invoke(runtime)["Body"].read()


def test_a_slow_answer_comes_only_as_a_stream(fake: FakeSageMaker, boto: Callable[[str], Any]) -> None:
    """The plain call runs into its minute, and the model has worked all the same."""
    fake.runtime.slow = "cakes"
    runtime = boto("sagemaker-runtime")
    with pytest.raises(runtime.exceptions.ModelError) as caught:
        invoke(runtime)
    assert caught.value.response["OriginalStatusCode"] == 0
    assert text_of(read_stream(runtime)) == expected_answer(MESSAGES)
    assert fake.container.computed.total() == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 2}, "n must be 1"),
        ({"logprobs": True}, "logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": []}, "not empty"),
        ({"messages": [{"role": "user", "content": "word " * 80_000}]}, "maximum context length"),
    ],
)
def test_the_container_refuses_what_the_model_cannot_do(
    boto: Callable[[str], Any], change: dict[str, Any], message: str
) -> None:
    """A 400 with a JSON body, inside a 424."""
    runtime = boto("sagemaker-runtime")
    with pytest.raises(runtime.exceptions.ModelError) as caught:
        invoke(runtime, json.dumps({"messages": MESSAGES, **change}).encode())
    assert caught.value.response["OriginalStatusCode"] == 400
    assert message in json.loads(caught.value.response["OriginalMessage"])["error"]["message"]


def test_malformed_json_is_refused(boto: Callable[[str], Any]) -> None:
    """By the container, not by the runtime."""
    runtime = boto("sagemaker-runtime")
    with pytest.raises(runtime.exceptions.ModelError) as caught:
        invoke(runtime, b'{"messages": [')
    assert caught.value.response["OriginalStatusCode"] == 400


def test_a_ceiling_cuts(boto: Callable[[str], Any]) -> None:
    """The finish reason says so."""
    body = json.dumps({"messages": MESSAGES, "max_tokens": 3}).encode()
    answer = json.loads(invoke(boto("sagemaker-runtime"), body)["Body"].read())
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 3


def test_names_that_do_not_exist_are_refused(boto: Callable[[str], Any]) -> None:
    """An unknown endpoint and an unknown component are validation errors."""
    runtime = boto("sagemaker-runtime")
    for options in ({"EndpointName": "gone"}, {"EndpointName": "tilde", "InferenceComponentName": "none"}):
        with pytest.raises(ClientError, match="not found") as caught:
            runtime.invoke_endpoint(Body=BODY, **options)
        assert caught.value.response["Error"]["Code"] == "ValidationError"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"secret": "wrong"}, "InvalidSignatureException"),
        ({"key": "AKIDUNKNOWN000000000"}, "UnrecognizedClientException"),
        ({"token": "a token that was never given"}, "UnrecognizedClientException"),
        ({"region": "us-east-1"}, "InvalidSignatureException"),
    ],
)
def test_a_signature_is_verified(fake: FakeSageMaker, change: dict[str, str], code: str) -> None:
    """A wrong secret, an unknown key or token, another region: refused, and the model is not asked."""
    key = AccessKey(
        key=change.get("key", KEY.key), secret=change.get("secret", KEY.secret), token=change.get("token")
    )
    client = boto3.client(
        "sagemaker-runtime",
        endpoint_url=fake.url,
        region_name=change.get("region", REGION),
        aws_access_key_id=key.key,
        aws_secret_access_key=key.secret,
        aws_session_token=key.token,
        config=Config(retries={"total_max_attempts": 1}),
    )
    with pytest.raises(ClientError) as caught:
        invoke(client)
    client.close()
    assert caught.value.response["Error"]["Code"] == code
    assert fake.container.requests == 0


def test_a_temporary_key_expires(fake: FakeSageMaker) -> None:
    """With its token it is known, until it has expired."""
    fake.keys["ASIATEMPORARY"] = temporary = replace(KEY, key="ASIATEMPORARY", token="token")
    client = boto3.client(
        "sagemaker-runtime",
        endpoint_url=fake.url,
        region_name=REGION,
        aws_access_key_id=temporary.key,
        aws_secret_access_key=temporary.secret,
        aws_session_token="token",
        config=Config(retries={"total_max_attempts": 1}),
    )
    assert invoke(client)["Body"].read()
    fake.keys["ASIATEMPORARY"] = replace(temporary, expired=True)
    with pytest.raises(ClientError, match="expired"):
        invoke(client)
    client.close()


def test_a_skewed_clock_is_told(fake_factory: Callable[..., FakeSageMaker]) -> None:
    """The text says which clock is ahead."""
    fake = fake_factory(wall=lambda: 2_000_000_000.0)
    client = boto3.client(
        "sagemaker-runtime",
        endpoint_url=fake.url,
        region_name=REGION,
        config=Config(retries={"total_max_attempts": 1}),
    )
    with pytest.raises(ClientError, match="is now earlier than"):
        invoke(client)
    client.close()
