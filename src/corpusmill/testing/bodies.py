"""The JSON of answers and errors, shaped as the chat-completions document shapes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from corpusmill.testing.tokens import split_tokens
from corpusmill.testing.validation import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from corpusmill.testing.answers import Answer
    from corpusmill.testing.faults import Fault

FINGERPRINT: Final = "corpusmill-fake"
CHUNK_TOKENS: Final = 8
"""Tokens in one event of a stream."""

encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Status, headers beside the content's type, and body of one HTTP response."""

    status: int
    content_type: bytes
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What every piece of one answer shares; `created` and `started` are Unix times, `seconds` a duration."""

    answer_id: str
    model: str
    created: float
    prompt_tokens: int
    started: float
    seconds: float


def json_reply(status: int, value: object) -> Reply:
    """Reply with a value as JSON."""
    return Reply(status=status, content_type=b"application/json", body=encode(value))


def text_reply(status: int, text: str) -> Reply:
    """Reply with plain text."""
    return Reply(status=status, content_type=b"text/plain; charset=utf-8", body=text.encode())


def html_reply(status: int, title: str) -> Reply:
    """Reply with the kind of page that a proxy puts in the way."""
    page = f"<html>\n<head><title>{title}</title></head>\n<body><h1>{title}</h1></body>\n</html>\n"
    return Reply(status=status, content_type=b"text/html; charset=utf-8", body=page.encode())


def error_body(refusal: Refusal, request_id: str) -> dict[str, Any]:
    """Return an error as the document's `GeneralError`."""
    return {
        "error": {
            "code": refusal.code,
            "message": refusal.message,
            "param": refusal.param,
            "type": refusal.kind,
        },
        "request_id": request_id,
    }


def refusal_reply(refusal: Refusal, request_id: str) -> Reply:
    """Reply with an error as the document's `GeneralError`."""
    return json_reply(refusal.status, error_body(refusal, request_id))


def overflow(context_tokens: int, prompt_tokens: int, ceiling: int | None) -> Refusal:
    """Refuse what does not fit into the context."""
    asked = f"{prompt_tokens} in the messages" + (f" and {ceiling} in the completion" if ceiling else "")
    return Refusal(
        message=f"This model's maximum context length is {context_tokens} tokens, you requested {asked}.",
        param="messages",
        code="context_length_exceeded",
    )


RATE_LIMITED: Final = Refusal(
    status=429,
    message="Rate limit exceeded. Please slow down.",
    code="rate_limit_exceeded",
    kind="rate_limit_error",
)
WRONG_KEY: Final = Refusal(
    status=401,
    message="Incorrect API key provided: *****. This is a fake endpoint; it takes the key that it was started with.",
    code="invalid_api_key",
)
NO_KEY: Final = Refusal(
    status=401,
    message="You didn't provide an API key. You need to provide your API key in an Authorization header "
    "using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
)
NOT_JSON: Final = Refusal(
    message="We could not parse the JSON body of your request. (HINT: This likely means you aren't using "
    "your HTTP library correctly. A JSON payload is expected, but what was sent was not valid JSON.)"
)


def unknown_model(model: str) -> Refusal:
    """Refuse a model that is not served."""
    return Refusal(
        status=404,
        message=f"The model `{model}` does not exist or you do not have access to it.",
        param="model",
        code="model_not_found",
    )


def fault_reply(  # noqa: C901, PLR0912 (a table with one row for each kind)
    fault: Fault, *, model: str, request_id: str, retry_after: str, context_tokens: int
) -> Reply | None:
    """Return the response that a fault is, or None for a kind that happens on the wire or to an answer."""

    def refused(status: int, message: str, code: str | None, kind: str = "invalid_request_error") -> Reply:
        return refusal_reply(Refusal(status=status, message=message, code=code, kind=kind), request_id)

    match fault.kind:
        case "400":
            return refused(400, "Invalid request.", "invalid_request")
        case "401":
            return refusal_reply(WRONG_KEY, request_id)
        case "402":
            return refused(402, "Payment required: the account has no credit.", "insufficient_credit")
        case "403":
            return refused(403, "The API key is not allowed to do this.", "forbidden")
        case "404_model":
            return refusal_reply(unknown_model(model), request_id)
        case "408":
            return json_reply(408, {"error": "Request timeout"})
        case "410":
            return json_reply(410, {"error": f"The model `{model}` is no longer available."})
        case "429" | "429_bare":
            reply = refusal_reply(RATE_LIMITED, request_id)
            if fault.kind == "429_bare":
                return reply
            return _with_header(reply, "retry-after", fault.retry_after or retry_after)
        case "429_queue_full":
            return refused(429, "The request queue is full.", "queue_full", "rate_limit_error")
        case "quota":
            return refused(
                429, "You exceeded your current quota.", "insufficient_quota", "insufficient_quota"
            )
        case "overflow":
            return refusal_reply(overflow(context_tokens, context_tokens + 1, None), request_id)
        case "500":
            return text_reply(500, "Internal Server Error")
        case "500_model_output":
            body = error_body(
                Refusal(status=500, message="The model's output could not be parsed.", kind="server_error"),
                request_id,
            )
            body["error"]["error_model_output"] = '{"name": "lookup", "arguments": {"text": '
            return json_reply(500, body)
        case "502":
            return html_reply(502, "502 Bad Gateway")
        case "503":
            return text_reply(503, "Service Temporarily Unavailable")
        case "504":
            return text_reply(504, "Gateway Timeout")
        case "200_error":
            return json_reply(200, stream_error(request_id))
        case "200_html":
            return html_reply(200, "Welcome")
        case "empty_body":
            return Reply(status=200, content_type=b"application/json", body=b"")
        case "reply":
            body_bytes = fault.body if isinstance(fault.body, bytes) else fault.body.encode()
            named = {name.lower(): value for name, value in fault.headers.items()}
            kind = named.get("content-type", "application/json")
            return Reply(status=fault.status, content_type=kind.encode(), body=body_bytes)
        case _:
            return None


def stream_error(request_id: str) -> dict[str, Any]:
    """Return an error that comes under a 200."""
    refusal = Refusal(
        status=500, message="The model failed while answering.", code="internal_error", kind="server_error"
    )
    return error_body(refusal, request_id)


def completion(envelope: Envelope, answers: Sequence[Answer], top_logprobs: int | None) -> dict[str, Any]:
    """Return the document's `ChatCompletionResponse`. `top_logprobs` is None when none were asked for."""
    choices = []
    for index, answer in enumerate(answers):
        message: dict[str, Any] = {"role": "assistant", "content": answer.content}
        if answer.reasoning is not None:
            message["reasoning"] = answer.reasoning
        if answer.tool_calls:
            message["tool_calls"] = list(answer.tool_calls)
        choice: dict[str, Any] = {"index": index, "message": message, "finish_reason": answer.finish_reason}
        if top_logprobs is not None:
            choice["logprobs"] = {"content": _logprobs(answer.content or "", top_logprobs)}
        choices.append(choice)
    return {
        "id": envelope.answer_id,
        "object": "chat.completion",
        "created": envelope.created,
        "model": envelope.model,
        "system_fingerprint": FINGERPRINT,
        "choices": choices,
        "usage": usage(envelope, answers),
    }


def chunks(
    envelope: Envelope, answers: Sequence[Answer], *, include_usage: bool, top_logprobs: int | None
) -> Iterator[dict[str, Any]]:
    """Yield the document's `ChatCompletionStreamResponse` objects; the choices are interleaved."""

    def chunk(choices: list[dict[str, Any]], **more: object) -> dict[str, Any]:
        return {
            "id": envelope.answer_id,
            "object": "chat.completion.chunk",
            "created": envelope.created,
            "model": envelope.model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
            **more,
        }

    deltas = [list(_deltas(index, answer, top_logprobs)) for index, answer in enumerate(answers)]
    for turn in range(max(len(pieces) for pieces in deltas)):
        for pieces in deltas:
            if turn < len(pieces):
                yield chunk([pieces[turn]])
    if include_usage:
        yield chunk([], usage=usage(envelope, answers))


def usage(envelope: Envelope, answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the document's `Usage`, with the server's timings."""
    tokens = sum(answer.completion_tokens for answer in answers)
    # A rate needs a time above zero; an answer without latency took at least a microsecond.
    seconds = max(envelope.seconds, 1e-6)
    made: dict[str, Any] = {
        "prompt_tokens": envelope.prompt_tokens,
        "completion_tokens": tokens,
        "total_tokens": envelope.prompt_tokens + tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
        "start_time": envelope.started,
        "end_time": envelope.started + envelope.seconds,
        "time_to_first_token": envelope.seconds / 2,
        "total_latency": envelope.seconds,
        "completion_tokens_per_sec": tokens / seconds,
        "completion_tokens_after_first_per_sec": max(tokens - 1, 0) / seconds,
        "total_tokens_per_sec": (envelope.prompt_tokens + tokens) / seconds,
        "is_last_response": True,
        "stop_reason": answers[0].finish_reason,
    }
    reasoning = sum(answer.reasoning_tokens for answer in answers)
    if reasoning:
        made["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return made


def _deltas(index: int, answer: Answer, top_logprobs: int | None) -> Iterator[dict[str, Any]]:
    def delta(
        of: dict[str, Any], finish_reason: str | None = None, text: str | None = None
    ) -> dict[str, Any]:
        logprobs = {"content": _logprobs(text, top_logprobs)} if text and top_logprobs is not None else None
        return {"index": index, "delta": of, "finish_reason": finish_reason, "logprobs": logprobs}

    yield delta({"role": "assistant", "content": "" if answer.content is not None else None})
    for piece in _pieces(answer.reasoning or ""):
        yield delta({"reasoning": piece})
    for number, call in enumerate(answer.tool_calls):
        arguments = call["function"]["arguments"]
        head = {**call, "index": number, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield delta({"tool_calls": [head]})
        for piece in _pieces(arguments):
            yield delta({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})
    for piece in _pieces(answer.content or ""):
        yield delta({"content": piece}, text=piece)
    yield delta({"content": ""} if answer.content is not None else {}, answer.finish_reason)


def _pieces(text: str) -> list[str]:
    tokens = split_tokens(text)
    return ["".join(tokens[start : start + CHUNK_TOKENS]) for start in range(0, len(tokens), CHUNK_TOKENS)]


def _logprobs(text: str, top: int) -> list[dict[str, Any]]:
    """Return one entry for each token; the made-up probabilities fall with the rank."""
    made = []
    for token in split_tokens(text):
        entry: dict[str, Any] = {"token": token, "logprob": -0.125, "bytes": list(token.encode())}
        others = [
            {"token": token + "~" * rank, "logprob": -0.125 - 2 * rank, "bytes": None} for rank in range(top)
        ]
        made.append({**entry, "top_logprobs": others})
    return made


def _with_header(reply: Reply, name: str, value: str) -> Reply:
    return Reply(
        status=reply.status,
        content_type=reply.content_type,
        body=reply.body,
        headers=(*reply.headers, (name.encode(), value.encode())),
    )


def with_headers(reply: Reply, headers: Mapping[str, str]) -> Reply:
    """Add headers to a reply; the content's type is the reply's own."""
    for name, value in headers.items():
        if name.lower() != "content-type":
            reply = _with_header(reply, name, value)
    return reply
