"""A chat endpoint with a rate limit, or with a capacity, that writes down each attempt.

    python -m benchmarks.limited_server '{"requests_per_minute": 3000, "burst": 50, "headers": true}'

It prints its base URL when it listens. `GET /attempts` gives as JSON since when it runs and all attempts so far: for
each when it came and when it was answered (both by the machine's monotonic clock, in seconds), whether it was refused,
and how many tokens it took.
A refusal goes out at once. The limits' arithmetic is that of `corpusmill.testing`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.serving import listen

from corpusmill.testing.limits import Limiter, RateLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.serving import Connection

CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How the server behaves.

    `limits` are its rates, `per_second` what it gets done in a second at most, where answers queue and nothing is ever
    refused. `headers` and `retry_after` say what it tells of its limits. Answers take `mean` seconds, lognormal with
    `sigma`, and have between 20 and `most_tokens` tokens.
    """

    limits: RateLimits | None = None
    per_second: float | None = None
    headers: bool = False
    retry_after: bool = True
    mean: float = 0.5
    sigma: float = 0.5
    most_tokens: int = 120


@dataclass(slots=True)
class Server:
    """What was attempted, and what is left."""

    manner: Manner
    limiter: Limiter | None
    since: float
    attempts: list[tuple[float, float, bool, int]] = field(default_factory=list)
    random: random.Random = field(default_factory=lambda: random.Random(0))
    free_at: float = 0.0

    def admit(self, prompt_tokens: int, now: float) -> float | None:
        """Let a request in (None), or give the seconds that it has to wait."""
        if self.limiter is None:
            return None
        verdict = self.limiter.admit(prompt_tokens, now)
        return None if verdict.admitted else verdict.wait or 0.0

    def latency(self, now: float) -> float:
        """Give the seconds that an answer takes, of which some may be a queue."""
        manner = self.manner
        # The mean of a lognormal is exp(mu + sigma² / 2).
        own = self.random.lognormvariate(math.log(manner.mean) - manner.sigma**2 / 2, manner.sigma)
        if manner.per_second is None:
            return own
        self.free_at = max(self.free_at, now) + 1 / manner.per_second
        return max(own, self.free_at - now)

    def told(self, now: float) -> dict[str, str]:
        """Give the headers that tell what is left."""
        if self.limiter is None or not self.manner.headers:
            return {}
        return {name.decode(): value.decode() for name, value in self.limiter.headers(now, time.time())}

    def asked(self, head: bytes, body: bytes, connection: Connection) -> None:
        """Take a request: refuse it at once, or answer it in its time."""
        if head.startswith(b"GET /attempts "):
            connection.answer(response(200, {}, {"since": self.since, "attempts": self.attempts}))
            return
        loop = asyncio.get_running_loop()
        prompt_tokens, now = len(body) // CHARACTERS_PER_TOKEN, loop.time()
        wait = self.admit(prompt_tokens, now)
        told = self.told(now)
        if wait is not None:
            self.attempts.append((now, now, True, 0))
            if self.manner.retry_after:
                told["retry-after"] = str(math.ceil(wait))
            connection.answer(response(429, told, {"error": {"message": "too many requests"}}))
            return
        tokens = self.random.randint(20, self.manner.most_tokens)
        loop.call_later(self.latency(now), self._answer, connection, now, told, prompt_tokens, tokens)

    def _answer(
        self, connection: Connection, came: float, told: Mapping[str, str], prompt_tokens: int, tokens: int
    ) -> None:
        now = asyncio.get_running_loop().time()
        if self.limiter is not None:
            self.limiter.spend(tokens, now)
        self.attempts.append((came, now, False, prompt_tokens + tokens))
        connection.answer(response(200, told, completion(prompt_tokens, tokens)))


def completion(prompt_tokens: int, tokens: int) -> dict[str, Any]:
    """Give an answer of so many tokens."""
    message = {"role": "assistant", "content": "mountains and weather"}
    return {
        "id": "limited",
        "object": "chat.completion",
        "created": 1764449575,
        "model": "canned",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
        },
    }


def response(status: int, headers: Mapping[str, str], body: object) -> bytes:
    """Give a whole response around JSON."""
    encoded = json.dumps(body).encode()
    lines = [
        f"HTTP/1.1 {status} {'OK' if status < 400 else 'Too Many Requests'}",
        "content-type: application/json",
        f"content-length: {len(encoded)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + encoded


def manner_of(options: dict[str, Any]) -> Manner:
    """Read a manner and its rates from one flat object."""
    own = {name: options.pop(name) for name in list(options) if name in Manner.__dataclass_fields__}
    return Manner(limits=RateLimits(**options) if options else None, **own)


async def serve(manner: Manner) -> None:
    """Listen on a free port of loopback until the process is ended."""
    since = asyncio.get_running_loop().time()
    limiter = None if manner.limits is None else Limiter(manner.limits, now=since)
    await listen(Server(manner, limiter, since).asked)


def main() -> None:
    """Serve."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(manner_of(json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
