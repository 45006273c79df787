"""Connections: one base URL and one key from every form in which Airflow keeps them.

A connection of type `sambanova` or `openai_compatible` has its base URL as host, its key as password, and in the
extras `model`, `identity`, `context_tokens`, `stream` and `headers`. Connections of type `openai`, as another
provider writes them, are read too. Nothing here is called from an event loop: a look-up there can block a worker.
"""

from __future__ import annotations

import ipaddress
import json
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Connection

    from corpusmill.endpoints import Endpoint

OPENAI_URL = "https://api.openai.com/v1"

_SCHEMES = ("http", "https")
_PASSED_ON = ("identity", "context_tokens", "stream")


class OpenAICompatibleHook(BaseHook):
    """The endpoint behind a connection, and a test of it."""

    conn_name_attr = "conn_id"
    default_conn_name = "openai_compatible_default"
    conn_type = "openai_compatible"
    hook_name = "OpenAI-compatible endpoint"

    def __init__(self, conn_id: str | None = None, *, model: str | None = None, **kwargs: Any) -> None:
        """Name a connection, or leave it the default; `model` is asked in place of the one that it names."""
        super().__init__(**kwargs)
        self.conn_id = self.default_conn_name if conn_id is None else conn_id
        self.model = model

    def get_conn(self) -> Endpoint:
        """Give the endpoint. Raises `UsageError` for a connection that names no model or no usable URL."""
        return endpoint_of(self.get_connection(self.conn_id), model=self.model)

    def test_connection(self) -> tuple[bool, str]:
        """Ask a question of a dozen tokens; the message names the final URL, never the key."""
        from corpusmill.chat.probe import probe

        try:
            endpoint = self.get_conn()
        except UsageError as error:
            return False, str(error)
        found = probe(endpoint)
        return found.works, found.message


class SambaNovaHook(OpenAICompatibleHook):
    """The same for SambaNova Cloud."""

    default_conn_name = "sambanova_default"
    conn_type = "sambanova"
    hook_name = "SambaNova Cloud"


def endpoint_values(connection: Connection, *, model: str | None = None) -> dict[str, Any]:
    """Give the `endpoint` of a job file that a connection stands for; its key is in it.

    Raises `UsageError` when there is no model, or extras that are not what they should be.
    """
    extra = extra_of(connection)
    client = extra.get("openai_client_kwargs")
    client = client if isinstance(client, dict) else {}
    name = model or text_of(extra.get("model")) or text_of(client.get("model"))
    if not name:
        raise UsageError(
            f"the connection {connection.conn_id!r} names no model; give one in its field Model or to the task"
        )
    fields: dict[str, Any] = {"base_url": base_url(connection, {**client, **extra}), "model": name}
    key = connection.password or text_of(extra.get("api_key")) or text_of(client.get("api_key"))
    if key and key.strip():
        fields["api_key"] = key
    fields.update({name: extra[name] for name in _PASSED_ON if extra.get(name) not in (None, "")})
    headers = _headers(connection, extra.get("headers") or client.get("default_headers"))
    if headers:
        fields["headers"] = headers
    return {"sambanova" if connection.conn_type == "sambanova" else "openai_compatible": fields}


def endpoint_of(connection: Connection, *, model: str | None = None) -> Endpoint:
    """Give the endpoint of a connection."""
    from corpusmill.endpoints import OpenAICompatible, SambaNova

    ((kind, fields),) = endpoint_values(connection, model=model).items()
    name, url = fields.pop("model"), fields.pop("base_url")
    if kind == "sambanova":
        return SambaNova(name, base_url=url, **fields)
    return OpenAICompatible(url, name, **fields)


def base_url(connection: Connection, extra: Mapping[str, Any]) -> str:
    """Give the base URL, whichever way the connection was written.

    A form has the whole URL as host. A URI is taken apart by Airflow: host, port, and as schema either the
    protocol or the path.
    """
    stated = text_of(extra.get("base_url"))
    if stated:
        return stated
    host = (connection.host or "").strip()
    if not host:
        return _default_url(connection)
    schema = (connection.schema or "").strip()
    scheme, found, rest = host.partition("://")
    if not found:
        scheme, rest = schema if schema in _SCHEMES else ("http" if _is_local(host) else "https"), host
    authority, slash, path = rest.partition("/")
    if connection.port and ":" not in authority.rpartition("]")[2]:
        authority = f"{authority}:{connection.port}"
    if not slash and schema and schema not in _SCHEMES:
        path = schema.lstrip("/")
    if not found and not path:
        path = "v1"
    return f"{scheme}://{authority}/{path}".rstrip("/")


def _default_url(connection: Connection) -> str:
    if connection.conn_type == "openai":
        return OPENAI_URL
    if connection.conn_type == "sambanova":
        from corpusmill.endpoints.sambanova import BASE_URL

        return BASE_URL
    raise UsageError(f"the connection {connection.conn_id!r} has no base URL; write it as its host")


def store_url(connection: Connection) -> str:
    """Give the URL of the store that a connection of type `postgres` stands for; its password is in it."""
    from urllib.parse import quote, urlencode

    who = quote(connection.login or "", safe="")
    if connection.password:
        who += f":{quote(connection.password, safe='')}"
    host = connection.host or ""
    where = f"{host}:{connection.port}" if connection.port else host
    options = {name: value for name, value in extra_of(connection).items() if isinstance(value, str | int)}
    query = f"?{urlencode(options)}" if options else ""
    return f"postgresql://{f'{who}@' if who else ''}{where}/{quote(connection.schema or '', safe='')}{query}"


def extra_of(connection: Connection) -> dict[str, Any]:
    """Give the extras of a connection; none where they are no mapping."""
    found: Any = connection.extra_dejson  # whatever JSON somebody typed
    return dict(found) if isinstance(found, dict) else {}


def _headers(connection: Connection, headers: object) -> dict[str, str]:
    if isinstance(headers, str) and headers.strip():
        try:
            headers = json.loads(headers)
        except ValueError:
            raise UsageError(f"the headers of the connection {connection.conn_id!r} are no JSON") from None
    if not headers:
        return {}
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise UsageError(
            f"the headers of the connection {connection.conn_id!r} must be a JSON object of texts"
        )
    return {str(name): value for name, value in headers.items()}


def _is_local(host: str) -> bool:
    name = host.partition("/")[0].rpartition(":")[0] or host.partition("/")[0]
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def text_of(value: object) -> str | None:
    """Give a text that is not blank; None for anything else."""
    return value if isinstance(value, str) and value.strip() else None
