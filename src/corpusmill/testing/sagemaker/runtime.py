"""The runtime: both ways to invoke an endpoint, with the errors of the service and its event streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from corpusmill.testing.sagemaker import frames
from corpusmill.testing.sagemaker.container import Answered, Container, encode
from corpusmill.testing.sagemaker.faults import ERRORS, ErrorReply, model_error, plain_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

LARGEST_BODY: Final = 25 << 20
LARGEST_ATTRIBUTES: Final = 1_024

EVENT_STREAM: Final = b"application/vnd.amazon.eventstream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response: `pieces` are sent one by one; `end` says how the connection is left."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    pieces: Sequence[bytes]
    streamed: bool = False
    reset: bool = False


@dataclass(slots=True, kw_only=True)
class Runtime:
    """Endpoints that lead to one container.

    `slow` is a piece of text that makes the container take more than the minute that a plain call is given.
    `cold` counts the calls that still find the model not loaded. `cuts` are the sizes of payload parts, `reads` those
    of the pieces that the bytes of a stream are sent in.
    """

    container: Container
    endpoints: frozenset[str]
    components: frozenset[str] = frozenset()
    slow: str | None = None
    cold: int = 0
    cuts: Sequence[int] = (64,)
    reads: Sequence[int] = (1 << 16,)
    script: Callable[[dict[str, Any], int], str | None] | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    attempts: dict[bytes, int] = field(default_factory=dict)

    def invoke(self, endpoint: str, headers: Mapping[str, str], body: bytes, *, stream: bool) -> Reply:
        """Answer one call."""
        self.calls.append(
            {"endpoint": endpoint, "headers": dict(headers), "stream": stream, "size": len(body)}
        )
        refused = self._refused(endpoint, headers, body)
        if refused is not None:
            return error_reply(refused)
        fault = self._fault(body)
        if fault is not None and fault in ERRORS:
            error = ERRORS[fault]
            if error.computed:
                self.container.invoke(body)
            return error_reply(error)
        if fault == "reset":
            return Reply(status=0, headers=(), pieces=(), reset=True)
        if self.slow is not None and not stream and self.slow.encode() in body:
            self.container.invoke(body)
            return error_reply(ERRORS["model_timeout"])
        answered = self.container.invoke(body, content_type=headers.get("content-type", ""))
        if answered.status >= 400:  # noqa: PLR2004 - an error of HTTP
            return error_reply(model_error(answered.status, answered.body.decode()))
        if fault == "reset_after_compute":
            return Reply(status=0, headers=(), pieces=(), reset=True)
        if fault == "error_in_200":
            return self._reply(headers, b'{"error":{"code":500,"message":"the worker died"}}')
        if stream:
            return self._stream(headers, answered, fault)
        return self._reply(headers, answered.body if answered.events is None else answered.events)

    def _refused(self, endpoint: str, headers: Mapping[str, str], body: bytes) -> ErrorReply | None:
        if endpoint not in self.endpoints:
            return plain_error(
                400, "ValidationError", f"Endpoint {endpoint} of account 123456789012 not found."
            )
        component = headers.get("x-amzn-sagemaker-inference-component")
        if component is not None and component not in self.components:
            return plain_error(400, "ValidationError", f"Inference Component {component} not found.")
        attributes = headers.get("x-amzn-sagemaker-custom-attributes", "")
        if not attributes.isascii() or len(attributes) > LARGEST_ATTRIBUTES:
            return plain_error(400, "ValidationError", "CustomAttributes is not valid.")
        if len(body) > LARGEST_BODY:
            return ERRORS["too_large"]
        if self.cold > 0:
            self.cold -= 1
            return ERRORS["not_ready"]
        return None

    def _fault(self, body: bytes) -> str | None:
        if self.script is None:
            return None
        attempt = self.attempts[body] = self.attempts.get(body, 0) + 1
        try:
            request = msgspec.json.decode(body)
        except msgspec.DecodeError:
            request = {}
        return self.script(request, attempt)

    @staticmethod
    def _reply(headers: Mapping[str, str], body: bytes, kind: bytes = b"application/json") -> Reply:
        told = [(b"content-type", kind), (b"x-amzn-invoked-production-variant", b"AllTraffic")]
        attributes = headers.get("x-amzn-sagemaker-custom-attributes")
        if attributes is not None:
            told.append((b"x-amzn-sagemaker-custom-attributes", attributes.encode()))
        return Reply(status=200, headers=told, pieces=[body])

    def _stream(self, headers: Mapping[str, str], answered: Answered, fault: str | None) -> Reply:
        told = list(self._reply(headers, b"").headers)
        kind = b"text/event-stream" if fault in {"stream_as_sse", "stream_bare_sse"} else EVENT_STREAM
        told[0] = (b"content-type", kind)
        told.append((b"x-amzn-sagemaker-content-type", b"text/event-stream"))
        wire = b"".join(self._frames(answered, fault))
        return Reply(status=200, headers=told, pieces=list(frames.cut(wire, self.reads)), streamed=True)

    def _frames(  # noqa: C901, PLR0912 - a table with one row for each fault
        self, answered: Answered, fault: str | None
    ) -> Iterator[bytes]:
        events = answered.body if answered.events is None else answered.events
        if fault == "stream_bare_sse":
            yield events
            return
        if fault == "stream_no_done":
            events = events.removesuffix(b"data: [DONE]\n\n")
        if fault == "stream_no_finish":
            kept = [
                event
                for event in events.split(b"\n\n")
                if b'"stop"' not in event and b'"length"' not in event
            ]
            events = b"\n\n".join(kept)
        if fault == "stream_json_lines":
            lines = [
                event.removeprefix(b"data: ") for event in events.split(b"\n\n") if b"[DONE]" not in event
            ]
            events = b"\n".join(lines)
        parts = [frames.payload_part(piece) for piece in frames.cut(events, self.cuts)]
        half = parts[: max(1, len(parts) // 2)]
        match fault:
            case "stream_model_error":
                yield from half
                yield frames.exception(
                    "ModelStreamError", _stream_error("StreamBroken", "the connection broke")
                )
            case "stream_time_exceeded":
                yield from half
                yield frames.exception(
                    "ModelStreamError", _stream_error("ModelInvocationTimeExceeded", "8 minutes are over")
                )
            case "stream_internal":
                yield from half
                yield frames.exception("InternalStreamFailure", b'{"Message":"internal"}')
            case "stream_error_frame":
                yield from half
                yield frames.error("InternalError", "An internal server error occurred")
            case "stream_truncated":
                yield from half[:-1]
                yield half[-1][: len(half[-1]) // 2]
            case "stream_crc":
                yield from half[:-1]
                yield frames.corrupted(half[-1])
                yield from parts[len(half) :]
            case "stream_oversized":
                yield from half
                yield frames.oversized_prelude()
            case "stream_empty":
                return
            case "stream_unknown_event":
                for part in parts:
                    yield frames.unknown_event()
                    yield part
            case _:
                yield from parts


def _stream_error(code: str, message: str) -> bytes:
    return encode({"ErrorCode": code, "Message": message})


def error_reply(error: ErrorReply) -> Reply:
    """Give the response that carries an error."""
    headers = [(b"content-type", b"application/json"), (b"x-amzn-errortype", error.code.encode())]
    return Reply(status=error.status, headers=headers, pieces=[encode(error.body)])
