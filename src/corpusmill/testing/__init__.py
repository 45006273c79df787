"""A chat-completions endpoint on loopback, for tests, demos and continuous integration.

It validates and answers as the OpenAPI document of SambaNova's chat completions says, is deterministic, can
be slow, limit rates and fail in many ways, and counts what was asked, paid for and delivered. It shares no
code with the rest of the package, so that it can judge it. It needs the extra `corpusmill[testing]`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corpusmill.testing.answers import expected_answer
    from corpusmill.testing.digests import request_digest
    from corpusmill.testing.faults import Fault, Faults
    from corpusmill.testing.latency import Latency
    from corpusmill.testing.limits import RateLimits
    from corpusmill.testing.server import FakeEndpoint, serve
    from corpusmill.testing.stats import RequestStats, Stats

__all__ = [
    "FakeEndpoint",
    "Fault",
    "Faults",
    "Latency",
    "RateLimits",
    "RequestStats",
    "Stats",
    "expected_answer",
    "request_digest",
    "serve",
]

_HOMES = {
    "FakeEndpoint": "server",
    "Fault": "faults",
    "Faults": "faults",
    "Latency": "latency",
    "RateLimits": "limits",
    "RequestStats": "stats",
    "Stats": "stats",
    "expected_answer": "answers",
    "request_digest": "digests",
    "serve": "server",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: pytest loads this package at its start, for the plugin."""
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name in {"uvicorn", "httptools", "starlette"}:
            msg = f"the fake endpoint needs {error.name}: install corpusmill[testing]"
            raise ModuleNotFoundError(msg, name=error.name) from error
        raise
