"""Sessions of botocore: with the credentials that it finds by itself, or with those that were given and no others."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)
from botocore.loaders import create_loader
from botocore.session import Session

if TYPE_CHECKING:
    from corpusmill.endpoints.sagemaker.credentials import AssumedRole, AwsCredentials


@cache
def _loader() -> Any:
    """Give what reads the descriptions of services, which takes most of the time that a client does to make."""
    return create_loader()


def aws_session(
    *, region: str, profile: str | None = None, credentials: AwsCredentials | None = None
) -> Session:
    """Make a session. With credentials that were given the environment's and the profiles' are not looked at.

    Nothing is called yet: a role is assumed when credentials are first needed, and again before they expire. Raises
    botocore's own errors.
    """
    if credentials is None:
        return _session(region, profile)
    if credentials.access_key is None:
        session = _session(region, profile)
    else:
        assert credentials.secret_key is not None
        session = _session(region, profile, given=True)
        token = credentials.session_token
        session.set_credentials(
            credentials.access_key, credentials.secret_key.reveal(), token.reveal() if token else None
        )
    if credentials.role is None:
        return session
    assuming = _session(region, profile, given=credentials.access_key is not None)
    provider = _RoleProvider(session, credentials.role, region)
    assuming.register_component("credential_provider", CredentialResolver([provider]))
    return assuming


def _session(region: str, profile: str | None, *, given: bool = False) -> Session:
    # A profile that the environment names is none of a key's that was given, and may not even exist.
    hidden = {"profile": (None, None, None, None)} if given and profile is None else None
    session = Session(session_vars=hidden, profile=profile)
    session.set_config_variable("region", region)
    session.register_component("data_loader", _loader())
    return session


class _RoleProvider(CredentialProvider):  # type: ignore[misc] # botocore carries no types
    METHOD = "assume-role"

    def __init__(self, source: Session, role: AssumedRole, region: str) -> None:
        super().__init__()
        self._source = source
        self._role = role
        self._region = region

    def load(self) -> Any:
        """Give credentials that are fetched when they are needed."""
        client = partial(
            self._source.create_client, region_name=self._region, endpoint_url=self._role.endpoint_url
        )
        fetcher = AssumeRoleCredentialFetcher(
            client_creator=client,
            source_credentials=self._source.get_credentials(),
            role_arn=self._role.arn,
            extra_args={"RoleSessionName": "corpusmill", **self._role.options},
        )
        return DeferredRefreshableCredentials(method=self.METHOD, refresh_using=fetcher.fetch_credentials)
