"""What a response of the SageMaker runtime means: the service's own errors first, then what the container said.

The service wraps the container's errors in a 424 that carries the container's status and the first 2,048 characters
of its body; such an error is judged by the original status, as if the container had been asked directly, except that
no 4xx of a container ends a run by itself: it is that row's. The name of an error may be in a header only.
"""

# ruff: noqa: PLR2004 - a status of HTTP is its own name

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from corpusmill.chat.classify import classify, unechoed
from corpusmill.chat.eventstream import StreamExceptionError
from corpusmill.chat.problem import SHOWN
from corpusmill.chat.verdict import Accepted, ComesBackLater, RetryAfter, RowFailed, RunEnds, Verdict
from corpusmill.errors import AuthenticationError, EndpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from corpusmill.exchange import ChatRequest

TIMED_OUT: Final = "container_timeout"
"""The kind of a verdict on a call that took longer than the service waits: worth asking again as a stream."""

EXPIRED: Final = "expired_credentials"
"""The kind of a verdict on credentials that have expired: worth one look for fresh ones."""

_THROTTLED: Final = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "LimitExceededException",
    }
)
_NOT_READY: Final = frozenset({"ModelNotReadyException"})
_EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
_SIGNATURE: Final = frozenset(
    {"SignatureDoesNotMatch", "InvalidSignatureException", "RequestTimeTooSkewed", "RequestExpired"}
)
_IDENTITY: Final = frozenset(
    {
        "UnrecognizedClientException",
        "UnrecognizedClient",
        "InvalidClientTokenId",
        "InvalidAccessKeyId",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "NotAuthorized",
        "OptInRequired",
    }
)
_DENIED: Final = frozenset({"AccessDenied", "AccessDeniedException"})
_CLOCK: Final = (
    "signature expired",
    "not yet current",
    "time too skewed",
    "difference between the request time",
)
_SIZE: Final = ("body size", "too large", "exceeded the maximum", "exceeds the maximum", "payload")


def classify_sagemaker(
    *,
    status: int | None = None,
    headers: Mapping[str, str],
    body: bytes = b"",
    error: BaseException | None = None,
    cut: str | None = None,
    begun: bool = False,
    notes: tuple[str, ...] = (),
    now: float,
    seconds: float = 0.0,
    url: str = "the endpoint",
    redact: Callable[[str], str] = str,
    model: str | None = None,
    request: ChatRequest | None = None,
) -> Verdict:
    """Give the verdict on one attempt; the arguments are those of `classify`."""
    request_id = headers.get("x-amzn-requestid")
    if isinstance(error, StreamExceptionError):
        verdict: Verdict = _in_stream(error, request, redact)
    elif status is None or status < 400:
        verdict = classify(
            status=status,
            headers=headers,
            body=body,
            error=error,
            cut=cut,
            begun=begun,
            notes=notes,
            now=now,
            seconds=seconds,
            url=url,
            redact=redact,
            model=model,
            request=request,
        )
    else:
        verdict = _refusal(
            status, headers, body, now=now, url=url, redact=redact, model=model, request=request
        )
    return replace(verdict, seconds=seconds, request_id=verdict.request_id or request_id)


def _in_stream(
    error: StreamExceptionError, request: ChatRequest | None, redact: Callable[[str], str]
) -> RetryAfter:
    kind = "stream_time_exceeded" if error.code == "ModelInvocationTimeExceeded" else "stream_broken"
    return RetryAfter(kind=kind, reason=redact(unechoed(str(error), request))[:SHOWN], possibly_paid=True)


def _refusal(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float,
    url: str,
    redact: Callable[[str], str],
    model: str | None,
    request: ChatRequest | None,
) -> Verdict:
    document = _document(body)
    code = _code(headers, document)
    message = unechoed(str(document.get("message") or document.get("Message") or ""), request)
    said = f"HTTP {status} {code or 'without a name'}: {redact(message)[:SHOWN] or 'no text'}"
    if code == "ModelError" or (not code and status == 424):
        return _of_the_model(document, now=now, url=url, redact=redact, model=model, request=request)
    if code in _THROTTLED:
        return RetryAfter(kind="rate_limited", reason=said, rate_limited=True)
    if code in _NOT_READY:
        return RetryAfter(kind="cold_start", reason=said, rate_limited=True)
    if code in _EXPIRED:
        return RetryAfter(kind=EXPIRED, reason=said)
    advice = _advice(code, message.lower())
    if advice is not None:
        return RunEnds(error=AuthenticationError(f"{url} answered {said}; {advice}"))
    if code in {"ValidationError", "ValidationException"}:
        lowered = message.lower()
        if any(words in lowered for words in _SIZE) and "not found" not in lowered:
            return RowFailed(kind="too_large", reason=said)
        what = "endpoint_name, region, inference_component, target_variant and target_model"
        return RunEnds(error=EndpointError(f"{url} answered {said}; check {what}"))
    # What comes without a name the service knows came from a party in between.
    return classify(
        status=status,
        headers=headers,
        body=body,
        now=now,
        url=url,
        redact=redact,
        model=model,
        request=request,
    )


def _advice(code: str, message: str) -> str | None:
    if code in _SIGNATURE:
        if code in {"RequestTimeTooSkewed", "RequestExpired"} or any(words in message for words in _CLOCK):
            return "the clock of this machine is wrong: set it (chrony, ntpd), then run again"
        return "the secret key does not belong to the access key, or a proxy changes requests on their way"
    if code in _IDENTITY:
        return "the access key is not known here: check AWS_PROFILE, AWS_ACCESS_KEY_ID, AWS_SESSION_TOKEN and region"
    if code in _DENIED:
        return (
            "allow the role sagemaker:InvokeEndpoint, and sagemaker:InvokeEndpointWithResponseStream for streams, on "
            "this endpoint"
        )
    return None


def _of_the_model(
    document: Mapping[str, Any],
    *,
    now: float,
    url: str,
    redact: Callable[[str], str],
    model: str | None,
    request: ChatRequest | None,
) -> Verdict:
    """Judge what the container said, by its own status."""
    original = document.get("OriginalStatusCode")
    status = original if isinstance(original, int) else 0
    text = str(document.get("OriginalMessage") or document.get("Message") or "")
    if status in {0, 408, 504}:
        said = redact(unechoed(text, request))[:SHOWN]
        reason = f"the container did not answer in time (original status {status}): {said}"
        return RetryAfter(kind=TIMED_OUT, reason=reason, possibly_paid=True)
    verdict = classify(
        status=status if status >= 400 else 500,
        headers={},
        body=text.encode("utf-8", "replace"),
        now=now,
        url=url,
        redact=redact,
        model=model,
        request=request,
    )
    if status == 429:
        # A used-up quota is not for a container to tell; it only has too much to do.
        return RetryAfter(kind="rate_limited", reason=_reason(verdict), rate_limited=True)
    if isinstance(verdict, RunEnds | ComesBackLater):
        return RowFailed(kind="refused_by_container", reason=_reason(verdict))
    return verdict


def _reason(verdict: Verdict) -> str:
    if isinstance(verdict, RunEnds):
        return str(verdict.error)
    assert not isinstance(verdict, Accepted)
    return verdict.reason


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _code(headers: Mapping[str, str], document: Mapping[str, Any]) -> str:
    found = (
        headers.get("x-amzn-errortype")
        or document.get("__type")
        or document.get("code")
        or document.get("Code")
    )
    # It may come with a namespace before it and a URL behind it.
    return str(found or "").partition(":")[0].rpartition("#")[2]
