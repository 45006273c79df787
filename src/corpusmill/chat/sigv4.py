"""Requests signed with Signature Version 4, by botocore's own signer, each attempt anew.

Reading credentials may ask a metadata service or a login server, so whatever may block runs in a thread. boto3 itself
stays out of the way: it would repeat a read time-out by itself, which is an inference that was paid for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx

from corpusmill.chat.aws_session import aws_session
from corpusmill.errors import AuthenticationError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corpusmill.endpoints.sagemaker import AwsCredentials

SERVICE = "sagemaker"

_SIGNED = ("content-type", "accept")
_SIGNED_PREFIX = "x-amzn-sagemaker-"


class Signer:
    """Signs requests with the credentials that botocore finds, or that are given. It belongs to one event loop."""

    def __init__(
        self, *, region: str, profile: str | None = None, credentials: AwsCredentials | None = None
    ) -> None:
        """Find no credentials yet: that happens with the first request."""
        self._region = region
        self._profile = profile
        self._given = credentials
        self._credentials: Any = None
        self._frozen: Any = None
        self._lock = asyncio.Lock()

    async def credentials(self) -> Any:
        """Give the credentials of this moment; raise `AuthenticationError` where there are none."""
        if self._credentials is None:
            async with self._lock:
                if self._credentials is None:
                    self._credentials = await asyncio.to_thread(self._load)
        credentials = self._credentials
        stale = getattr(credentials, "refresh_needed", None)
        if self._frozen is None or (stale is not None and stale()):
            async with self._lock:
                self._frozen = await asyncio.to_thread(self._freeze, credentials)
        return self._frozen

    async def renew(self, refused: Any) -> bool:
        """Look for credentials anew because `refused` have expired; False if there are no others."""
        async with self._lock:
            if self._frozen is not None and self._frozen != refused:
                return True  # somebody else has done it meanwhile
            self._credentials = await asyncio.to_thread(self._load)
            self._frozen = await asyncio.to_thread(self._freeze, self._credentials)
            return bool(self._frozen != refused)

    def sign(
        self, credentials: Any, *, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> dict[str, str]:
        """Give the headers that a request has to carry beside its own."""
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        signed = {
            name: value
            for name, value in headers.items()
            if name in _SIGNED or name.startswith(_SIGNED_PREFIX)
        }
        request = AWSRequest(method=method, url=url, data=body, headers=signed)
        SigV4Auth(credentials, SERVICE, self._region).add_auth(request)
        return {name: value for name, value in request.headers.items() if name.lower() not in signed}

    def _load(self) -> Any:
        try:
            from botocore.exceptions import BotoCoreError
        except ImportError:
            raise MissingExtraError("SageMaker needs boto3: install corpusmill[sagemaker]") from None
        try:
            session = aws_session(region=self._region, profile=self._profile, credentials=self._given)
            credentials = session.get_credentials()
        except BotoCoreError as error:
            raise AuthenticationError(_advice(error)) from None
        if credentials is None:
            where = (
                f"the profile {self._profile!r}"
                if self._profile
                else "the environment, the profiles and the machine"
            )
            raise AuthenticationError(
                f"no AWS credentials were found in {where}; set AWS_PROFILE, AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or run `aws sso login`"
            )
        return credentials

    @staticmethod
    def _freeze(credentials: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return credentials.get_frozen_credentials()
        except (BotoCoreError, ClientError) as error:
            raise AuthenticationError(_advice(error)) from None


class SigningTransport(httpx.AsyncBaseTransport):
    """Signs each request on its way to another transport."""

    def __init__(self, inner: httpx.AsyncBaseTransport, signer: Signer) -> None:
        """Wrap a transport."""
        self._inner = inner
        self._signer = signer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sign and send; raise `AuthenticationError` when there is nothing to sign with."""
        if not isinstance(request.stream, httpx.ByteStream):
            raise TypeError("only a request whose body is known can be signed")
        credentials = await self._signer.credentials()
        more = self._signer.sign(
            credentials,
            method=request.method,
            url=str(request.url),
            headers=request.headers,
            body=b"".join(request.stream),
        )
        request.headers.update(more)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close what is wrapped."""
        await self._inner.aclose()


def _advice(error: Exception) -> str:
    return (
        f"the AWS credentials cannot be used ({type(error).__name__}: {error}); log in again (`aws sso login`), or "
        "check AWS_PROFILE and the role of this machine"
    )
