"""What it means that no response came: which fault, whether it may have been paid for, whether it may pass."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import httpx

from corpusmill.chat.problem import SHOWN
from corpusmill.chat.verdict import RetryAfter, RunEnds, Verdict
from corpusmill.errors import EndpointError

if TYPE_CHECKING:
    from collections.abc import Callable

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
    if _is_untrusted(error):
        return RunEnds(
            error=EndpointError(f"{url} shows a certificate that is not trusted: {text}"), seconds=seconds
        )
    kind = next((name for fault, name in _FAULTS if isinstance(error, fault)), "broken")
    return RetryAfter(
        kind=kind,
        reason=f"{kind}: {text}",
        possibly_paid=not isinstance(error, _NEVER_SENT),
        down=not isinstance(error, httpx.PoolTimeout),
        seconds=seconds,
    )


_CAUSES = 10
"""Causes of an error that are looked through, since they may go in circles."""


def _is_untrusted(error: BaseException | None) -> bool:
    seen = 0
    while error is not None and seen < _CAUSES:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
        seen += 1
    return False
