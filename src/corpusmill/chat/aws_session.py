"""Sessions of botocore: with the credentials that it finds by itself, or with those that were given and no others."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corpusmill.endpoints.sagemaker.credentials import AssumedRole, AwsCredentials


@cache
def _loader() -> Any:
    """Give what reads the descriptions of services, which takes most of the time that a client does to make."""
    from botocore.loaders import create_loader

    return create_loader()


def aws_session(*, region: str, profile: str | None = None, credentials: AwsCredentials | None = None) -> Any:
    """Make a session of botocore.

    With a key that was given the keys of the environment and of profiles are not looked at. Nothing is called yet: a
    role is assumed when credentials are first needed, and again before they expire. Raises botocore's own errors.
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
    from botocore.credentials import CredentialResolver

    assuming = _session(region, profile, given=credentials.access_key is not None)
    provider = _RoleProvider(session, credentials.role, region)
    assuming.register_component("credential_provider", CredentialResolver([provider]))
    return assuming


def _session(region: str, profile: str | None, *, given: bool = False) -> Any:
    from botocore.session import Session

    # A profile that the environment names is none of a key's that was given, and may not even exist.
    hidden = {"profile": (None, None, None, None)} if given and profile is None else None
    session = Session(session_vars=hidden, profile=profile)
    session.set_config_variable("region", region)
    session.register_component("data_loader", _loader())
    return session


class _RoleProvider:
    """One of botocore's providers of credentials, as far as it asks for one."""

    METHOD = "assume-role"

    def __init__(self, source: Any, role: AssumedRole, region: str) -> None:
        self._source = source
        self._role = role
        self._region = region

    def load(self) -> Any:
        """Give credentials that are fetched when they are needed."""
        from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
        from botocore.exceptions import NoCredentialsError

        holder = self._source.get_credentials()
        if holder is None:
            raise NoCredentialsError
        client = partial(
            self._source.create_client, region_name=self._region, endpoint_url=self._role.endpoint_url
        )
        fetcher = AssumeRoleCredentialFetcher(
            client_creator=client,
            source_credentials=holder,
            role_arn=self._role.arn,
            extra_args={"RoleSessionName": "corpusmill", **self._role.options},
        )
        return DeferredRefreshableCredentials(method=self.METHOD, refresh_using=fetcher.fetch_credentials)
