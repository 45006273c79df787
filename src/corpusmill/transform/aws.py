"""S3 and the control plane of SageMaker, by boto3, with errors that say what to do.

The calls block; nothing here is paid by the call, so boto3 may try again by itself. "It could not be read" and "it is
not there" are kept apart: only the service's own word that there is no such job makes one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

from corpusmill.chat.aws_session import aws_session
from corpusmill.endpoints.sagemaker.names import redact_aws
from corpusmill.errors import (
    AuthenticationError,
    ComeBackLaterError,
    EndpointDownError,
    EndpointError,
    InterruptedRunError,
    MissingExtraError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from corpusmill.endpoints.sagemaker import AwsCredentials

P = ParamSpec("P")
T = TypeVar("T")

CHUNK: Final = 1 << 20
"""Bytes of an object that are read at once."""

_PASSING: Final = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "SlowDown",
        "InternalFailure",
        "InternalError",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "RequestTimeout",
        "RequestTimeoutException",
    }
)
_IDENTITY: Final = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)


class PassingError(Exception):
    """A call that failed in a way that may pass."""


class ControlPlane:
    """The jobs of one region, and who sees to them."""

    def __init__(
        self,
        *,
        region: str,
        endpoint_url: str | None = None,
        profile: str | None = None,
        credentials: AwsCredentials | None = None,
        timeout: float = 60.0,
    ) -> None:
        """Make the client; nothing is called yet. `timeout` is how long (seconds) an answer is waited for."""
        self._timeout = timeout
        self._session = _session(region, profile, credentials)
        self.sagemaker = self._client("sagemaker", endpoint_url)

    def _client(self, service: str, endpoint_url: str | None) -> Any:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        config = Config(
            retries={"mode": "standard", "total_max_attempts": 3},
            connect_timeout=min(10.0, self._timeout),
            read_timeout=self._timeout,
            user_agent_extra="corpusmill",
        )
        try:
            return self._session.client(service, endpoint_url=endpoint_url, config=config)
        except BotoCoreError as error:
            raise AuthenticationError(_advice(str(error))) from None

    def close(self) -> None:
        """Close the connections."""
        self.sagemaker.close()

    def describe(self, name: str) -> dict[str, Any] | None:
        """Say everything about a transform job; None when the service says that there is none."""
        try:
            found: dict[str, Any] = self._call(self.sagemaker.describe_transform_job, TransformJobName=name)
        except EndpointError as error:
            if "could not find" in str(error).lower():
                return None
            raise
        return found

    def create(self, request: dict[str, Any]) -> None:
        """Create a transform job. One of this name that is there already is no error: names are made from content."""
        self._call(self.sagemaker.create_transform_job, **request, missing=("ResourceInUse",))

    def stop(self, name: str) -> bool:
        """Stop a transform job; False when the service says that it is not at work.

        Raises what else the service says: that a job could not be stopped does not tell that it has ended.
        """
        try:
            self._call(self.sagemaker.stop_transform_job, TransformJobName=name)
        except EndpointError:
            described = self.describe(name)
            if described is not None and described["TransformJobStatus"] == "InProgress":
                raise
            return False
        return True

    @staticmethod
    def _call(
        function: Callable[..., Any], *arguments: Any, missing: Iterable[str] = (), **options: Any
    ) -> Any:
        """Call, and give None for an error whose code is one of `missing`."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            CredentialRetrievalError,
            NoCredentialsError,
            SSOError,
        )

        try:
            return function(*arguments, **options)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code") or "")
            if code in missing:
                return None
            raise _meaning(error, code) from None
        except (NoCredentialsError, CredentialRetrievalError, SSOError) as error:
            raise AuthenticationError(_advice(str(error))) from None
        except (BotoCoreError, Boto3Error, OSError) as error:
            raise PassingError(f"{type(error).__name__}: {redact_aws(str(error))}") from None


class Place(Protocol):
    """Where transform jobs lie, and how that is reached."""

    @property
    def region(self) -> str: ...  # noqa: D102
    @property
    def bucket(self) -> str: ...  # noqa: D102
    @property
    def prefix(self) -> str: ...  # noqa: D102
    @property
    def endpoint_url(self) -> str | None: ...  # noqa: D102
    @property
    def s3_endpoint_url(self) -> str | None: ...  # noqa: D102
    @property
    def profile(self) -> str | None: ...  # noqa: D102
    @property
    def credentials(self) -> AwsCredentials | None: ...  # noqa: D102


class Aws(ControlPlane):
    """The two services that transform jobs need, for one SageMaker model and one place in S3."""

    def __init__(self, place: Place) -> None:
        """Make the clients; nothing is called yet."""
        super().__init__(
            region=place.region,
            endpoint_url=place.endpoint_url,
            profile=place.profile,
            credentials=place.credentials,
        )
        self.s3 = self._client("s3", place.s3_endpoint_url)
        self._bucket = place.bucket
        self._prefix = place.prefix

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self.s3.close()

    def url(self, name: str) -> str:
        """Give the URL of an object or folder under the prefix."""
        return f"s3://{self._bucket}/{self._prefix}{name}"

    def put(self, name: str, body: Any) -> None:
        """Write an object: bytes, or an open file."""
        self._call(self.s3.put_object, Bucket=self._bucket, Key=self._prefix + name, Body=body)

    def upload(self, name: str, path: str) -> None:
        """Write a file as an object, in parts where it is large."""
        self._call(self.s3.upload_file, path, self._bucket, self._prefix + name)

    def get(self, name: str, *, span: tuple[int, int] | None = None) -> bytes | None:
        """Read an object, or a span of its bytes (the end exclusive); None when there is none."""
        body = self.open(name, span=span)
        return None if body is None else b"".join(body)

    def open(self, name: str, *, span: tuple[int, int] | None = None) -> Iterator[bytes] | None:
        """Read an object, or a span of its bytes, piece by piece; None when there is none."""
        wanted = {} if span is None else {"Range": f"bytes={span[0]}-{span[1] - 1}"}
        found = self._call(
            self.s3.get_object,
            Bucket=self._bucket,
            Key=self._prefix + name,
            missing=("NoSuchKey", "404", "InvalidRange"),
            **wanted,
        )
        return None if found is None else self._pieces(found["Body"])

    def _pieces(self, body: Any) -> Iterator[bytes]:
        from botocore.exceptions import BotoCoreError

        try:
            while piece := body.read(CHUNK):
                yield piece
        except BotoCoreError as error:
            raise PassingError(f"S3: {type(error).__name__}") from error
        finally:
            body.close()

    def delete(self, name: str) -> None:
        """Remove an object; one that is not there is no error."""
        self._call(self.s3.delete_object, Bucket=self._bucket, Key=self._prefix + name)

    def list(self, folder: str) -> list[tuple[str, float]]:
        """List the objects under a folder: name behind the folder, and when it was written (Unix seconds)."""
        found: list[tuple[str, float]] = []
        token: dict[str, str] = {}
        while True:
            page = self._call(
                self.s3.list_objects_v2, Bucket=self._bucket, Prefix=self._prefix + folder, **token
            )
            for item in page.get("Contents", ()):
                name = item["Key"].removeprefix(self._prefix + folder)
                found.append((name, item["LastModified"].timestamp()))
            if not page.get("IsTruncated"):
                return found
            token = {"ContinuationToken": page["NextContinuationToken"]}


def _meaning(error: Any, code: str) -> Exception:
    """Give the exception that an error of a service amounts to."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    said = redact_aws(str(error))
    if code in _PASSING or status >= 500 or status == 429:  # noqa: PLR2004 - statuses of HTTP
        return PassingError(said)
    if code in _IDENTITY or (status in {401, 403}):
        return AuthenticationError(_advice(said))
    if code == "ResourceLimitExceeded":
        return ComeBackLaterError(
            f"{said}; wait until other jobs have ended or ask for a larger quota, then run the same command"
        )
    if code == "NoSuchBucket":
        name = error.response["Error"].get("BucketName")
        return EndpointError(
            f"{said}{f' ({name})' if name else ''}; create the bucket that s3 names, or mend its name"
        )
    return EndpointError(f"{said}; check model_name, instance_type, s3 and region")


def _advice(said: str) -> str:
    return (
        f"{redact_aws(said)}; log in again (`aws sso login`), check AWS_PROFILE and the clock of this machine, and "
        "allow sagemaker:CreateTransformJob, DescribeTransformJob and StopTransformJob, and s3:GetObject, PutObject, "
        "DeleteObject and ListBucket under the prefix"
    )


def _session(region: str, profile: str | None, credentials: AwsCredentials | None) -> Any:
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise MissingExtraError("transform jobs need boto3: install corpusmill[sagemaker]") from None
    try:
        return boto3.Session(
            botocore_session=aws_session(region=region, profile=profile, credentials=credentials)
        )
    except BotoCoreError as error:
        raise AuthenticationError(_advice(str(error))) from None


def _slept(seconds: float) -> bool:
    time.sleep(seconds)
    return True


class Patience:
    """Calls again what failed in passing, until it has done so for too long."""

    def __init__(
        self,
        seconds: float,
        *,
        sleep: Callable[[float], bool] = _slept,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take for how many seconds a call may go on failing; `sleep` gives False when it is time to stop."""
        self._seconds = seconds
        self._sleep = sleep
        self._clock = clock

    def call(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Call until it succeeds; raise `EndpointDownError` when patience is at its end.

        What a call takes before it fails for the first time tries no patience: it may move gigabytes.
        """
        failing_since: float | None = None
        pause = 0.5
        while True:
            try:
                return function(*arguments, **options)
            except PassingError as error:
                now = self._clock()
                failing_since = now if failing_since is None else failing_since
                if now - failing_since > self._seconds:
                    raise EndpointDownError(
                        f"AWS did not answer for {self._seconds:g} s ({error}); a job that was started goes on: run "
                        "the same command to take it up"
                    ) from None
                if not self._sleep(pause):
                    raise InterruptedRunError(
                        f"interrupted while AWS did not answer ({error}); a job that was started goes on"
                    ) from None
                pause = min(pause * 2, 30.0)
