"""Signature Version 4 from the server's side, written after its specification and without any SDK."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SERVICE: Final = "sagemaker"
LARGEST_SKEW: Final = timedelta(minutes=5)

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,]+)/(?P<date>\d{8})/(?P<region>[^/,]+)/(?P<service>[^/,]+)/aws4_request,"
    r"\s*SignedHeaders=(?P<headers>[^,]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    """A key that is known to the service; one with a `token` is temporary, and may have `expired`."""

    key: str
    secret: str
    token: str | None = None
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a request is not let in: the name of the error, and its text."""

    code: str
    message: str


def verify(  # noqa: C901 - the steps of the specification, one after the other
    *,
    method: str,
    raw_path: bytes,
    query: bytes,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
    keys: Mapping[str, AccessKey],
    region: str,
    now: datetime,
) -> Denial | None:
    """Say why a request is refused; None when its signature is right, fresh and by a key that may ask."""
    found: dict[str, list[str]] = {}
    for name, value in headers:
        found.setdefault(name.decode("latin-1").lower(), []).append(" ".join(value.decode("latin-1").split()))
    told = {name: ",".join(values) for name, values in found.items()}
    match = _AUTHORIZATION.fullmatch(told.get("authorization", ""))
    if match is None:
        return Denial("MissingAuthenticationTokenException", "Missing Authentication Token")
    key = keys.get(match["key"])
    if key is None or told.get("x-amz-security-token") != key.token:
        return Denial("UnrecognizedClientException", "The security token included in the request is invalid.")
    if match["region"] != region or match["service"] != SERVICE:
        return Denial(
            "InvalidSignatureException",
            f"Credential should be scoped to a valid region, not '{match['region']}'.",
        )
    stamp = told.get("x-amz-date", "")
    try:
        signed_at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return Denial("IncompleteSignatureException", "Date must be in ISO-8601 'basic format'.")
    if abs(now - signed_at) > LARGEST_SKEW:
        relation = "is now earlier than" if signed_at < now else "is still later than"
        limit = now - LARGEST_SKEW if signed_at < now else now + LARGEST_SKEW
        moments = f"{stamp} {relation} {limit:%Y%m%dT%H%M%SZ} ({now:%Y%m%dT%H%M%SZ} +/- 5 min.)"
        wrong = "Signature expired" if signed_at < now else "Signature not yet current"
        return Denial("InvalidSignatureException", f"{wrong}: {moments}")
    signed = match["headers"].split(";")
    if "host" not in signed or any(name not in told for name in signed):
        return Denial("InvalidSignatureException", "'Host' or another signed header is missing.")
    canonical = "\n".join(
        [
            method,
            # Every service but S3 takes the path of the wire and encodes it once more.
            quote(raw_path.decode("latin-1"), safe="/~"),
            "&".join(
                f"{quote(name, safe='~')}={quote(value, safe='~')}"
                for name, value in sorted(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
            ),
            *(f"{name}:{told[name]}" for name in signed),
            "",
            ";".join(signed),
            hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{match['date']}/{match['region']}/{match['service']}/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    secret = f"AWS4{key.secret}".encode()
    for part in scope.split("/"):
        secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
    expected = hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected, match["signature"]):
        return Denial(
            "InvalidSignatureException",
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
            "Access Key and signing method. Consult the service documentation for details.",
        )
    if key.expired:
        return Denial("ExpiredTokenException", "The security token included in the request is expired")
    return None
