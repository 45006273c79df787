"""What the runtime can be made to do wrong, by name: the errors of the service's model, and broken event streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from corpusmill.testing.sagemaker.container import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST_MESSAGE: Final = 2_048
"""Characters of the container's body that a `ModelError` repeats; the rest is cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReply:
    """An error of the runtime: status, name, body. `computed` tells that the container had worked all the same."""

    status: int
    code: str
    body: Mapping[str, Any] | None
    computed: bool = False


def model_error(original_status: int, original: str, *, computed: bool = False) -> ErrorReply:
    """Give the 424 around what a container said, or did not say (status 0)."""
    shown = original[:LARGEST_MESSAGE]
    side = "client" if 400 <= original_status < 500 else "server"  # noqa: PLR2004 - statuses
    message = (
        f'Received {side} error ({original_status}) from primary with message "{shown}". See '
        "https://eu-north-1.console.aws.amazon.com/cloudwatch/home for more information."
    )
    return ErrorReply(
        status=424,
        code="ModelError",
        body={
            "ErrorCode": "CLIENT_ERROR_FROM_MODEL" if side == "client" else "SERVER_ERROR_FROM_MODEL",
            "LogStreamArn": "arn:aws:logs:eu-north-1:123456789012:log-group:/aws/sagemaker/Endpoints/fake",
            "Message": message,
            "OriginalMessage": shown,
            "OriginalStatusCode": original_status,
        },
        computed=computed,
    )


def plain_error(status: int, code: str, message: str | None) -> ErrorReply:
    """Give an error with a text; with None the body's message is null and only a header names the error."""
    return ErrorReply(status=status, code=code, body={"message": message})


def _container_says(code: str, message: str) -> str:
    return encode({"error": {"message": message, "type": "invalid_request_error", "code": code}}).decode()


_OVERFLOW = _container_says(
    "context_length_exceeded",
    "This model's maximum context length is 65536 tokens. However, your messages resulted in 70112 tokens.",
)
_CUT_OVERFLOW = (
    '{"error":{"message":"This model\'s maximum context length is 65536 tokens. ' + "x" * LARGEST_MESSAGE
)

ERRORS: Final[Mapping[str, ErrorReply]] = {
    "model_timeout": model_error(
        0, "Your invocation timed out while waiting for a response from container primary", computed=True
    ),
    "model_400": model_error(400, _container_says("invalid_request", "messages[0] is not understood")),
    "model_400_overflow": model_error(400, _OVERFLOW),
    "model_400_overflow_cut": model_error(400, _CUT_OVERFLOW),
    "model_401": model_error(401, "no licence"),
    "model_404": model_error(404, _container_says("not_found", "no such route")),
    "model_408": model_error(408, "request time-out", computed=True),
    "model_429": model_error(429, _container_says("queue_full", "the queue is full")),
    "model_500": model_error(500, "Internal Server Error"),
    "model_500_overflow": model_error(500, "the request exceeds the available context size"),
    "model_503": model_error(503, "worker died"),
    "not_ready": plain_error(
        429,
        "ModelNotReadyException",
        "Model for endpoint is not ready for inference yet. Please try your request again.",
    ),
    "throttled": plain_error(400, "ThrottlingException", "Rate exceeded"),
    "throttled_null": plain_error(400, "ThrottlingException", None),
    "internal": plain_error(500, "InternalFailure", "An internal failure occurred."),
    "unavailable": plain_error(503, "ServiceUnavailable", "The service is unavailable. Try your call again."),
    "dependency": plain_error(530, "InternalDependencyException", "Your request caused an exception."),
    "no_endpoint": plain_error(400, "ValidationError", "Endpoint gone of account 123456789012 not found."),
    "too_large": plain_error(
        400, "ValidationError", "Request body size 30000000 exceeded the maximum of 26214400 bytes."
    ),
    "access_denied": plain_error(
        403,
        "AccessDeniedException",
        "User: arn:aws:iam::123456789012:user/somebody is not authorized to perform: sagemaker:InvokeEndpoint on "
        "resource: arn:aws:sagemaker:eu-north-1:123456789012:endpoint/tilde",
    ),
    "unrecognized": plain_error(
        403, "UnrecognizedClientException", "The security token included in the request is invalid."
    ),
    "expired": plain_error(
        403, "ExpiredTokenException", "The security token included in the request is expired"
    ),
    "signature": plain_error(
        403,
        "InvalidSignatureException",
        "The request signature we calculated does not match the signature you provided.",
    ),
    "skew": plain_error(
        403,
        "InvalidSignatureException",
        "Signature expired: 20260101T000000Z is now earlier than 20260101T001000Z (20260101T001500Z - 5 min.)",
    ),
}

STREAM_FAULTS: Final[Mapping[str, str]] = {
    "stream_model_error": "half of the answer, then ModelStreamError (StreamBroken)",
    "stream_time_exceeded": "half of the answer, then ModelStreamError (ModelInvocationTimeExceeded)",
    "stream_internal": "half of the answer, then InternalStreamFailure",
    "stream_error_frame": "half of the answer, then a frame of :message-type error",
    "stream_truncated": "the last frame is cut off, and the connection ends in good order",
    "stream_crc": "a frame in the middle has a wrong checksum",
    "stream_oversized": "half of the answer, then a frame of more than 16 MiB",
    "stream_empty": "no frame at all",
    "stream_unknown_event": "a whole answer, with events between that nobody knows",
    "stream_as_sse": "a whole answer in frames, called text/event-stream",
    "stream_bare_sse": "a whole answer as server-sent events without frames",
    "stream_json_lines": "a whole answer as JSON lines in the frames",
    "stream_no_done": "a whole answer without [DONE]",
    "stream_no_finish": "an answer without a finish reason, and [DONE]",
}

WIRE_FAULTS: Final[Mapping[str, str]] = {
    "reset": "the connection is reset before the container is asked",
    "reset_after_compute": "the container computes, and the connection is reset instead of the answer",
    "error_in_200": "a 200 around the container's error",
}

FAULTS: Final[Mapping[str, str]] = {
    **{name: f"HTTP {reply.status} {reply.code}" for name, reply in ERRORS.items()},
    **STREAM_FAULTS,
    **WIRE_FAULTS,
}
"""Every fault by its name, with a few words on what happens."""
