"""The ASGI application behind the fake endpoint: its routes, and the way of a chat request.

A request is validated, counted, let in by the rate limits, meets its fault if it has one, takes its time, is
computed, and is sent. It is computed to the end even when the client has left: that is what vendors do, and
charge for.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import msgspec

from corpusmill.testing import bodies, sse
from corpusmill.testing.answers import Answer, answer
from corpusmill.testing.digests import request_digest
from corpusmill.testing.faults import COMPUTED_NOT_DELIVERED, Fault, Script, fault_of
from corpusmill.testing.latency import seconds_of
from corpusmill.testing.limits import Limiter, Verdict
from corpusmill.testing.settings import Settings, changed_settings, shown_settings
from corpusmill.testing.stats import Tally
from corpusmill.testing.tokens import count_prompt_tokens, cut_tokens
from corpusmill.testing.validation import Refusal, check
from corpusmill.testing.wire import Exchange

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

DEFAULT_MODELS: Final = ("fake",)

CUT_PROMPT_TOKENS: Final = 8
"""What the fault `prompt_cut` lets the usage say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One sound request on its way."""

    request: dict[str, Any]
    request_id: str
    digest: str
    attempt: int
    prompt_tokens: int
    fault: Fault | None
    started: float


class Application:
    """The endpoint as an ASGI application. Its state belongs to the event loop that runs it."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.script: Script | None = None
        self.tally = Tally()
        self._clock = clock
        self._wall = wall
        self._limiter = self._new_limiter()
        self._request_number = 0

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer one HTTP request."""
        exchange = Exchange(scope, receive, send)
        try:
            await self._route(exchange)
        except asyncio.CancelledError:
            # Cancelled with its connection gone: the server is being stopped, and nobody waits for an answer.
            if not exchange.gone:
                raise

    def configure(self, settings: Settings) -> None:
        """Change the behaviour from the next request on; rate limits that change start full."""
        changed = settings.limits != self.settings.limits
        self.settings = settings
        if changed:
            self._limiter = self._new_limiter()

    def reset(self) -> None:
        """Forget the counts, the attempts and what the rate limits have granted."""
        self.tally.clear()
        self._limiter = self._new_limiter()

    def _new_limiter(self) -> Limiter | None:
        limits = self.settings.limits
        return Limiter(limits, now=self._clock()) if limits is not None else None

    async def _route(self, exchange: Exchange) -> None:
        match exchange.method, exchange.path.removeprefix("/v1"):
            case "POST", "/chat/completions":
                self.tally.begin()
                try:
                    await self._chat(exchange)
                finally:
                    self.tally.end()
                    if exchange.status is not None:
                        self.tally.by_status[exchange.status] += 1
            case "GET", "/models":
                await self._models(exchange)
            case "GET", "/health":
                await exchange.reply(bodies.json_reply(200, {"status": "ok"}))
            case "GET", "/stats":
                details = parse_qs(exchange.query).get(b"details", [b""])[-1] not in {b"", b"0", b"false"}
                stats = asdict(self.tally.snapshot(details=details))
                if not details:
                    del stats["details"]
                await exchange.reply(bodies.json_reply(200, stats))
            case "POST", "/reset":
                self.reset()
                await exchange.reply(bodies.json_reply(200, {"status": "reset"}))
            case "GET" | "PUT" | "POST", "/settings":
                await self._settings(exchange)
            case _:
                await exchange.reply(bodies.json_reply(404, {"error": "Not found"}))

    async def _models(self, exchange: Exchange) -> None:
        refusal = self._unauthorised(exchange)
        if refusal is not None:
            await exchange.reply(bodies.refusal_reply(refusal, self._request_id()))
            return
        listed = [
            {"id": model, "object": "model", "created": 0, "owned_by": "corpusmill"}
            for model in self.settings.models or DEFAULT_MODELS
        ]
        await exchange.reply(bodies.json_reply(200, {"object": "list", "data": listed}))

    async def _settings(self, exchange: Exchange) -> None:
        if exchange.method != "GET":
            raw = await exchange.body()
            try:
                self.configure(changed_settings(self.settings, msgspec.json.decode(raw)))
            except (msgspec.MsgspecError, ValueError, TypeError) as error:
                await exchange.reply(bodies.json_reply(400, {"error": f"settings: {error}"}))
                return
        await exchange.reply(bodies.json_reply(200, shown_settings(self.settings)))

    async def _chat(self, exchange: Exchange) -> None:
        request_id = self._request_id()
        exchange.extra_headers = [(b"x-request-id", request_id.encode()), *self._limit_headers()]
        raw = await exchange.body()
        request, refusal = self._decoded(exchange, raw)
        if refusal is not None:
            await exchange.reply(bodies.refusal_reply(refusal, request_id))
            return
        digest = request_digest(request)
        self.tally.receive(digest)
        prompt_tokens = count_prompt_tokens(request["messages"])
        if self._limiter is not None:
            verdict = self._limiter.admit(prompt_tokens, self._clock())
            exchange.extra_headers = [(b"x-request-id", request_id.encode()), *self._limit_headers()]
            if not verdict.admitted:
                self.tally.rate_limited += 1
                await exchange.reply(self._rate_limited(verdict, prompt_tokens, request_id))
                return
        attempt = self.tally.admit(digest)
        asked = _Asked(
            request=request,
            request_id=request_id,
            digest=digest,
            attempt=attempt,
            prompt_tokens=prompt_tokens,
            fault=self._fault(request, digest, attempt),
            started=self._wall(),
        )
        if not await self._failed(exchange, asked):
            await self._answered(exchange, asked)

    def _decoded(self, exchange: Exchange, raw: bytes) -> tuple[dict[str, Any], Refusal | None]:
        refusal = self._unauthorised(exchange)
        if refusal is not None:
            return {}, refusal
        try:
            request = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}, bodies.NOT_JSON
        refusal = check(request)
        models = self.settings.models
        if refusal is None and models is not None and request["model"] not in models:
            refusal = bodies.unknown_model(request["model"])
        return request, refusal

    def _unauthorised(self, exchange: Exchange) -> Refusal | None:
        key = self.settings.api_key
        if key is None:
            return None
        given = exchange.header(b"authorization")
        if not given:
            return bodies.NO_KEY
        return None if given == f"Bearer {key}" else bodies.WRONG_KEY

    def _fault(self, request: dict[str, Any], digest: str, attempt: int) -> Fault | None:
        fault = None
        if self.script is not None:
            scripted = self.script(request, attempt)
            fault = Fault(scripted) if isinstance(scripted, str) else scripted
        if fault is None:
            fault = fault_of(self.settings.faults, seed=self.settings.seed, digest=digest, attempt=attempt)
        if fault is not None:
            self.tally.by_fault[fault.kind] += 1
            if fault.kind == "error_in_stream" and not request.get("stream"):
                return replace(fault, kind="200_error")
            if fault.kind == "cut_stream" and not request.get("stream"):
                return replace(fault, kind="cut_body")
        return fault

    async def _failed(self, exchange: Exchange, asked: _Asked) -> bool:
        """Carry out a fault, or refuse an overflow, that leaves no answer; False when there will be one."""
        fault, settings = asked.fault, self.settings
        if fault is not None:
            reply = bodies.fault_reply(
                fault,
                model=asked.request["model"],
                request_id=asked.request_id,
                retry_after=settings.faults.retry_after,
                context_tokens=settings.context_tokens,
            )
            if reply is not None:
                await exchange.reply(bodies.with_headers(reply, fault.headers))
                return True
            if fault.kind == "reset":
                await exchange.reset()
                return True
            if fault.kind == "stall":
                await exchange.stall(settings.faults.stall_seconds)
                return True
        ceiling = _ceiling(asked.request)
        wanted = ceiling if settings.strict_context and ceiling is not None else 1
        if asked.prompt_tokens + wanted > settings.context_tokens:
            refusal = bodies.overflow(settings.context_tokens, asked.prompt_tokens, ceiling)
            await exchange.reply(bodies.refusal_reply(refusal, asked.request_id))
            return True
        return False

    async def _answered(self, exchange: Exchange, asked: _Asked) -> None:
        settings, request, fault = self.settings, asked.request, asked.fault
        seconds = seconds_of(settings.latency, seed=settings.seed, digest=asked.digest, attempt=asked.attempt)
        if seconds:
            await asyncio.sleep(seconds)
        room = settings.context_tokens - asked.prompt_tokens
        ceiling = _ceiling(request)
        try:
            answers = [
                _spoilt(answer(request, choice=choice, room=min(room, ceiling or room)), fault)
                for choice in range(int(request.get("n") or 1))
            ]
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            # Only a JSON schema that is none, or that no value fits, leads here; a server refuses it, too.
            refusal = Refusal(
                message=f"Invalid schema: {error}", param="response_format", code="invalid_schema"
            )
            await exchange.reply(bodies.refusal_reply(refusal, asked.request_id))
            return
        if fault is not None and fault.kind == "error_in_stream":
            broken = sse.broken_events(self._envelope(asked, seconds), answers, asked.request_id)
            await exchange.stream(broken, pause=settings.latency.chunk_seconds)
            return
        completion_tokens = sum(each.completion_tokens for each in answers)
        self.tally.compute(
            asked.digest,
            prompt_tokens=asked.prompt_tokens,
            completion_tokens=completion_tokens,
            cut=any(each.finish_reason == "length" for each in answers),
        )
        if self._limiter is not None:
            self._limiter.spend(completion_tokens, self._clock())
            exchange.extra_headers = [(b"x-request-id", asked.request_id.encode()), *self._limit_headers()]
        if exchange.gone:
            await exchange.lost()
            return
        delivered = await self._sent(exchange, asked, self._envelope(asked, seconds), answers)
        if delivered and not (fault is not None and fault.kind in COMPUTED_NOT_DELIVERED):
            self.tally.deliver(asked.digest)

    async def _sent(
        self, exchange: Exchange, asked: _Asked, envelope: bodies.Envelope, answers: Sequence[Answer]
    ) -> bool:
        request = asked.request
        kind = asked.fault.kind if asked.fault is not None else None
        if kind == "reset_after_compute":
            await exchange.reset()
            return False
        top = int(request.get("top_logprobs") or 0) if request.get("logprobs") else None
        if request.get("stream") and kind != "malformed_json":
            pause = self.settings.latency.chunk_seconds
            options = request.get("stream_options") or {}
            include_usage = bool(options.get("include_usage")) and kind != "no_usage"
            chunks = bodies.chunks(envelope, answers, include_usage=include_usage, top_logprobs=top)
            events = sse.odd_events(chunks) if kind == "odd_sse" else sse.events(chunks)
            if kind in {"cut_stream", "cut_body"}:
                half = sse.first_half(list(events))
                return await exchange.stream(half, pause=pause, abort=kind == "cut_body")
            return await exchange.stream(events, pause=pause)
        completion = bodies.completion(envelope, answers, top)
        if kind == "no_usage":
            del completion["usage"]
        reply = bodies.json_reply(200, completion)
        if asked.fault is not None:
            reply = bodies.with_headers(reply, asked.fault.headers)
        if kind == "cut_body":
            await exchange.cut(reply)
            return False
        if kind == "malformed_json":
            reply = replace(reply, body=reply.body[: len(reply.body) // 2])
        return await exchange.reply(self._compressed(exchange, reply))

    def _compressed(self, exchange: Exchange, reply: bodies.Reply) -> bodies.Reply:
        if not self.settings.gzip or "gzip" not in (exchange.header(b"accept-encoding") or ""):
            return reply
        packed = replace(reply, body=gzip.compress(reply.body, compresslevel=1))
        return bodies.with_headers(packed, {"content-encoding": "gzip"})

    def _envelope(self, asked: _Asked, seconds: float) -> bodies.Envelope:
        cut = asked.fault is not None and asked.fault.kind == "prompt_cut"
        return bodies.Envelope(
            answer_id=f"chatcmpl-{asked.digest[:16]}-{asked.attempt}",
            model=asked.request["model"],
            created=asked.started,
            prompt_tokens=min(asked.prompt_tokens, CUT_PROMPT_TOKENS) if cut else asked.prompt_tokens,
            started=asked.started,
            seconds=seconds,
        )

    def _rate_limited(self, verdict: Verdict, prompt_tokens: int, request_id: str) -> bodies.Reply:
        limits = self.settings.limits
        if verdict.wait is None and limits is not None:
            message = (
                f"Request too large: the limit is {limits.tokens_per_minute} tokens per minute, "
                f"{prompt_tokens} were requested."
            )
            return bodies.refusal_reply(replace(bodies.RATE_LIMITED, message=message, param=None), request_id)
        message = {
            "requests": "Rate limit exceeded: too many requests per minute.",
            "tokens": "Rate limit exceeded: too many tokens per minute.",
            "day": "Rate limit exceeded: too many requests per day.",
        }[verdict.limit or "requests"]
        reply = bodies.refusal_reply(replace(bodies.RATE_LIMITED, message=message), request_id)
        if limits is not None and limits.retry_after and verdict.wait is not None:
            # Rounded up: who comes back when told to is let in.
            return bodies.with_headers(reply, {"retry-after": str(-int(-verdict.wait // 1))})
        return reply

    def _limit_headers(self) -> list[tuple[bytes, bytes]]:
        return self._limiter.headers(self._clock(), self._wall()) if self._limiter is not None else []

    def _request_id(self) -> str:
        self._request_number += 1
        return f"{self._request_number:08x}"


def _ceiling(request: Mapping[str, Any]) -> int | None:
    ceilings = [
        int(request[name])
        for name in ("max_tokens", "max_completion_tokens")
        if request.get(name) is not None
    ]
    return min(ceilings, default=None)


def _spoilt(good: Answer, fault: Fault | None) -> Answer:
    """Return what a fault makes of an answer that is sent whole."""
    match fault.kind if fault is not None else None:
        case "length":
            content = cut_tokens(good.content or "", max(1, good.completion_tokens // 2))
            return Answer(
                content=content, finish_reason="length", completion_tokens=max(1, good.completion_tokens // 2)
            )
        case "null_content":
            return replace(good, content=None, tool_calls=(), finish_reason="stop")
        case "empty_answer":
            return Answer(content="", finish_reason="stop", completion_tokens=0)
        case _:
            return good
