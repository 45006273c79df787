"""Connections of type `aws`, as the Amazon provider writes them, which need not be installed.

Keys, tokens and roles go into the endpoint and nowhere else: neither into the environment nor into what a trigger is
made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from corpusmill.airflow.jobs import AwsAccess
from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Connection

    from corpusmill.endpoints.sagemaker import AssumedRole

_REFUSED = ("assume_role_with_saml", "assume_role_with_web_identity")
"""Ways to a role that need more than a call."""


class AwsHook(BaseHook):
    """Looks connections up; nothing is called."""


def aws_access(connection: Connection) -> AwsAccess:
    """Give what a connection says. Raises `UsageError`, which shows no secret, for what cannot be used.

    Read are login and password, and of the extras `aws_access_key_id`, `aws_secret_access_key`, `aws_session_token`,
    `region_name`, `profile_name`, `role_arn` with `assume_role_kwargs`, `endpoint_url` for all services, and
    `service_config` with an `endpoint_url` for `sagemaker`, `sagemaker-runtime`, `s3` or `sts`.
    """
    from corpusmill.endpoints.sagemaker.credentials import aws_credentials

    found: Any = connection.extra_dejson  # whatever JSON somebody typed
    extra: dict[str, Any] = found if isinstance(found, dict) else {}
    session = _mapping(extra.get("session_kwargs"))
    credentials = aws_credentials(
        access_key=connection.login or _text(extra, "aws_access_key_id"),
        secret_key=connection.password or _text(extra, "aws_secret_access_key"),
        session_token=_text(extra, "aws_session_token") or _text(session, "aws_session_token"),
        role=_role(connection, extra),
        origin=f"the connection {connection.conn_id!r}",
    )
    return AwsAccess(
        region=_text(extra, "region_name") or _text(session, "region_name"),
        profile=_text(extra, "profile_name") or _text(session, "profile_name"),
        sagemaker_url=_url(extra, "sagemaker"),
        runtime_url=_url(extra, "sagemaker-runtime"),
        s3_url=_url(extra, "s3"),
        credentials=credentials,
    )


def _role(connection: Connection, extra: Mapping[str, Any]) -> AssumedRole | None:
    from corpusmill.endpoints.sagemaker.credentials import AssumedRole

    arn = _text(extra, "role_arn")
    if arn is None:
        return None
    method = _text(extra, "assume_role_method")
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
    return _text(of_service, "endpoint_url") or _text(extra, "endpoint_url")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    return value if isinstance(value, str) and value.strip() else None
