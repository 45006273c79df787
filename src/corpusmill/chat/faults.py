"""What it means that no response came: which fault, whether it may have been paid for, whether it may pass."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, TypeVar

import httpx

from corpusmill.chat.problem import SHOWN
from corpusmill.chat.verdict import RetryAfter, RunEnds, Verdict
from corpusmill.errors import EndpointError

if TYPE_CHECKING:
    from collections.abc import Callable

Fault = TypeVar("Fault", bound=BaseException)

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.WriteTimeout)
_UNSENDABLE = (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL)

_FAULTS: tuple[tuple[type[BaseException], str], ...] = (
    (httpx.ConnectTimeout, "connect_timeout"),
    (httpx.ConnectError, "connect"),
    (httpx.PoolTimeout, "pool_timeout"),
    (httpx.WriteTimeout, "write_timeout"),
    (httpx.ReadTimeout, "read_timeout"),
    (httpx.ProxyError, "proxy"),
    (httpx.RemoteProtocolError, "disconnected"),
    (httpx.ReadError, "reset"),
    (httpx.WriteError, "reset"),
    (httpx.DecodingError, "cut_body"),
    (TimeoutError, "read_timeout"),
    (OSError, "reset"),
)


def judge_fault(
    error: BaseException | None, *, seconds: float, redact: Callable[[str], str], url: str
) -> Verdict:
    """Give the verdict on an attempt that brought no response: `error` says why, as httpx names it."""
    text = redact(str(error) or type(error).__name__)[:SHOWN]
    if isinstance(error, _UNSENDABLE):
        return RunEnds(error=EndpointError(f"{url} cannot be asked: {text}"), seconds=seconds)
    refused = _cause(error, ssl.SSLError)
    if isinstance(refused, ssl.SSLCertVerificationError):
        return RunEnds(
            error=EndpointError(f"{url} shows a certificate that is not trusted: {text}"), seconds=seconds
        )
    if refused is not None and refused.reason in _NO_TLS:
        return RunEnds(
            error=EndpointError(
                f"{url} does not speak TLS: write http:// where that is meant, or the port of https:// ({text})"
            ),
            seconds=seconds,
        )
    kind = next((name for fault, name in _FAULTS if isinstance(error, fault)), "broken")
    return RetryAfter(
        kind=kind,
        reason=f"{kind}: {text}",
        possibly_paid=not isinstance(error, _NEVER_SENT),
        down=not isinstance(error, httpx.PoolTimeout),
        seconds=seconds,
    )


_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST"})
"""What OpenSSL calls an answer to its greeting that is none, such as that of a server of plain HTTP."""

_CAUSES = 10
"""Causes of an error that are looked through, since they may go in circles."""


def _cause(error: BaseException | None, kind: type[Fault]) -> Fault | None:
    """Give the first of an error and its causes that is of a kind."""
    for _ in range(_CAUSES):
        if error is None or isinstance(error, kind):
            return error
        error = error.__cause__ or error.__context__
    return None
