"""Credentials of AWS that were given, where those that botocore finds by itself are not the ones to use."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from corpusmill.endpoints.secret import Secret, clean_key
from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/\S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedRole:
    """A role to assume: `options` are further arguments of AssumeRole, such as `ExternalId`."""

    arn: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    endpoint_url: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is no role."""
        if not _ROLE.fullmatch(self.arn):
            raise UsageError(
                f"role_arn is {self.arn!r}; it must look like arn:aws:iam::123456789012:role/name"
            )
        if "SerialNumber" in self.options:
            raise UsageError(
                f"the role {self.arn} is to be assumed with the code of a device (SerialNumber), and nobody is there "
                "to type it; use a role that a key alone may assume"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsCredentials:
    """An access key with its secret, or a role to assume, or both: the role is then assumed by the holder of the key.

    A role alone is assumed by whoever botocore finds (environment, profile, role of the machine). The secrets show
    themselves as stars.
    """

    access_key: str | None = None
    secret_key: Secret | None = None
    session_token: Secret | None = None
    role: AssumedRole | None = None

    def __post_init__(self) -> None:
        """Refuse half a pair."""
        if (self.access_key is None) != (self.secret_key is None):
            missing = "secret key" if self.secret_key is None else "access key"
            raise UsageError(f"the AWS credentials have no {missing}; give both halves, or neither")
        if self.session_token is not None and self.access_key is None:
            raise UsageError("the AWS credentials have a session token and no access key; give all three")
        if self.access_key is None and self.role is None:
            raise UsageError("the AWS credentials hold neither a key nor a role; leave them out")


def aws_credentials(
    *,
    access_key: str | None = None,
    secret_key: str | None = None,
    session_token: str | None = None,
    role: AssumedRole | None = None,
    origin: str = "the AWS credentials",
) -> AwsCredentials | None:
    """Give credentials made of texts, blanks around them taken off; None when there are none.

    `origin` says in an error where they came from.
    """
    given = {"access key": access_key, "secret key": secret_key, "session token": session_token}
    texts = {
        what: clean_key(text, origin=f"the {what} of {origin}")
        for what, text in given.items()
        if text is not None and text.strip()
    }
    if not texts and role is None:
        return None
    secret, token = texts.get("secret key"), texts.get("session token")
    return AwsCredentials(
        access_key=texts.get("access key"),
        secret_key=None if secret is None else Secret(secret),
        session_token=None if token is None else Secret(token),
        role=role,
    )
