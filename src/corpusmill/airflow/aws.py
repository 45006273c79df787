"""Connections of type `aws`, as the Amazon provider writes them, which need not be installed.

Keys, tokens and roles go into the endpoint and nowhere else: neither into the environment nor into what a trigger is
made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corpusmill.airflow.hook import extra_of, text_of
from corpusmill.airflow.jobs import AwsAccess
from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Connection

    from corpusmill.endpoints.sagemaker import AssumedRole

_REFUSED = ("assume_role_with_saml", "assume_role_with_web_identity")
"""Ways to a role that need more than a call."""


def aws_access(connection: Connection) -> AwsAccess:
    """Give what a connection says. Raises `UsageError`, which shows no secret, for what cannot be used.

    Read are login and password, and of the extras `aws_access_key_id`, `aws_secret_access_key`, `aws_session_token`,
    `region_name`, `profile_name` (the last three also in `session_kwargs`), `role_arn` with `assume_role_kwargs`,
    `endpoint_url` for all services, and `service_config` with an `endpoint_url` for `sagemaker`, `sagemaker-runtime`,
    `s3` or `sts`.
    """
    from corpusmill.endpoints.sagemaker.credentials import aws_credentials

    extra = extra_of(connection)
    session = _mapping(extra.get("session_kwargs"))
    credentials = aws_credentials(
        access_key=connection.login or text_of(extra.get("aws_access_key_id")),
        secret_key=connection.password or text_of(extra.get("aws_secret_access_key")),
        session_token=text_of(extra.get("aws_session_token")) or text_of(session.get("aws_session_token")),
        role=_role(connection, extra),
        origin=f"the connection {connection.conn_id!r}",
    )
    return AwsAccess(
        region=text_of(extra.get("region_name")) or text_of(session.get("region_name")),
        profile=text_of(extra.get("profile_name")) or text_of(session.get("profile_name")),
        sagemaker_url=_url(extra, "sagemaker"),
        runtime_url=_url(extra, "sagemaker-runtime"),
        s3_url=_url(extra, "s3"),
        credentials=credentials,
    )


def _role(connection: Connection, extra: Mapping[str, Any]) -> AssumedRole | None:
    from corpusmill.endpoints.sagemaker.credentials import AssumedRole

    arn = text_of(extra.get("role_arn"))
    if arn is None:
        return None
    method = text_of(extra.get("assume_role_method"))
    if method in _REFUSED:
        raise UsageError(
            f"the connection {connection.conn_id!r} assumes its role by {method}, which is not known here; let the "
            "worker have the role (its environment or its machine's), or use assume_role"
        )
    return AssumedRole(
        arn=arn, options=_mapping(extra.get("assume_role_kwargs")), endpoint_url=_url(extra, "sts")
    )


def _url(extra: Mapping[str, Any], service: str) -> str | None:
    of_service = _mapping(_mapping(extra.get("service_config")).get(service))
    return text_of(of_service.get("endpoint_url")) or text_of(extra.get("endpoint_url"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
