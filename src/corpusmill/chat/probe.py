"""One small question to an endpoint: is there one, does it take the key, does it know the model."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from corpusmill.chat.client import ChatClient
from corpusmill.chat.transport import Timeouts, default_transport
from corpusmill.chat.verdict import Accepted, ComesBackLater, RunEnds
from corpusmill.endpoints.endpoint import shown_url
from corpusmill.errors import UsageError
from corpusmill.exchange import ChatRequest

if TYPE_CHECKING:
    import httpx

    from corpusmill.chat.verdict import Verdict
    from corpusmill.endpoints import Endpoint

QUESTION = ChatRequest(messages=[{"role": "user", "content": "Say yes."}], ceiling=1)
"""It costs about a dozen tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What came of the question: whether runs will work, and one line that names the URL and no secret."""

    works: bool
    message: str


def probe(
    endpoint: Endpoint, *, seconds: float = 20.0, transport: httpx.AsyncBaseTransport | None = None
) -> Probe:
    """Ask the endpoint once, waiting for at most `seconds` in each phase; nothing is raised for what it answers.

    Works inside a running event loop too: the question is asked from a thread of its own.
    """
    found: list[Probe] = []

    def work() -> None:
        found.append(asyncio.run(_probe(endpoint, seconds, transport)))

    thread = threading.Thread(target=work, name="corpusmill-probe", daemon=True)
    thread.start()
    thread.join()
    if not found:
        return Probe(works=False, message=f"{shown_url(endpoint.url)} could not be asked")
    return found[0]


async def _probe(endpoint: Endpoint, seconds: float, transport: httpx.AsyncBaseTransport | None) -> Probe:
    timeouts = Timeouts(connect=seconds, read=seconds)
    url = shown_url(endpoint.url)
    try:
        client = ChatClient(
            endpoint,
            transport=transport or default_transport(connections=1, timeouts=timeouts),
            timeouts=timeouts,
        )
    except UsageError as error:
        return Probe(works=False, message=f"{url}: {error}")
    try:
        verdict = await client.send(QUESTION)
    finally:
        await client.aclose()
    return Probe(works=isinstance(verdict, Accepted), message=f"{url}: {_told(verdict, endpoint)}")


def _told(verdict: Verdict, endpoint: Endpoint) -> str:
    if isinstance(verdict, Accepted):
        return f"{endpoint.model} answers"
    if isinstance(verdict, RunEnds):
        return endpoint.redact(str(verdict.error))
    if isinstance(verdict, ComesBackLater):
        until = f" until {verdict.resets_at:%Y-%m-%d %H:%M:%S} UTC" if verdict.resets_at else ""
        return f"a quota is used up{until} ({endpoint.redact(verdict.reason)})"
    return endpoint.redact(verdict.reason)
