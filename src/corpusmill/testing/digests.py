"""What makes two requests the same in the eyes of the fake endpoint, and numbers drawn from that.

This is deliberately not the rule that the cache uses: the endpoint judges the cache, so it may not share its
code.
"""

from __future__ import annotations

from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CEILINGS_AND_TRANSPORT: Final = frozenset({"stream", "stream_options", "max_tokens", "max_completion_tokens"})
"""Fields that do not change what is asked, only how much of the answer comes and in what form."""

_encode = msgspec.json.Encoder(order="sorted").encode


def request_digest(request: Mapping[str, Any]) -> str:
    """Hexadecimal SHA-256 of a request's canonical JSON: keys sorted, `CEILINGS_AND_TRANSPORT` left out."""
    return sha256(
        _encode({name: value for name, value in request.items() if name not in CEILINGS_AND_TRANSPORT})
    ).hexdigest()


def messages_digest(messages: Sequence[Mapping[str, Any]]) -> str:
    """Hexadecimal SHA-256 of the messages' canonical JSON, keys sorted."""
    return sha256(_encode(list(messages))).hexdigest()


def draw(seed: int, purpose: str, digest: str, attempt: int) -> float:
    """A number in [0, 1) that depends on the arguments only, so that no order of arrival changes it."""
    raw = blake2b(f"{seed}/{purpose}/{digest}/{attempt}".encode(), digest_size=7).digest()
    return (int.from_bytes(raw) >> 3) / 2**53
