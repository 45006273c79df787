"""Connections in all their forms."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import Connection

from corpusmill.airflow.hook import (
    OpenAICompatibleHook,
    SambaNovaHook,
    endpoint_of,
    endpoint_values,
    store_url,
)
from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpusmill.testing import FakeEndpoint

KEY = "sk-planted-0123456789"


def connection(**fields: Any) -> Connection:
    """Make a connection as a form does."""
    extra = fields.pop("extra", {"model": "m"})
    return Connection(conn_id="c", extra=json.dumps(extra), **fields)


@pytest.mark.parametrize(
    "made",
    [
        connection(conn_type="openai_compatible", host="http://127.0.0.1:8000/v1", password=KEY),
        connection(conn_type="openai_compatible", host="http://127.0.0.1:8000/v1/", password=f" {KEY}\n"),
        connection(conn_type="openai_compatible", host="127.0.0.1", port=8000, schema="v1", password=KEY),
        connection(
            conn_type="openai_compatible", host="http://127.0.0.1", port=8000, schema="v1", password=KEY
        ),
        connection(conn_type="openai_compatible", host="127.0.0.1", port=8000, schema="http", password=KEY),
        connection(
            conn_type="openai_compatible",
            extra={"model": "m", "base_url": "http://127.0.0.1:8000/v1", "api_key": KEY},
        ),
        connection(conn_type="openai", host="http://127.0.0.1:8000/v1", password=KEY),
        connection(
            conn_type="openai",
            password=KEY,
            extra={"openai_client_kwargs": {"base_url": "http://127.0.0.1:8000/v1", "model": "m"}},
        ),
        Connection.from_uri(
            f"openai-compatible://:{KEY}@http%3A%2F%2F127.0.0.1%3A8000%2Fv1/?model=m", conn_id="c"
        ),
        Connection.from_uri(f"openai-compatible://:{KEY}@127.0.0.1:8000/v1?model=m", conn_id="c"),
    ],
)
def test_every_form_of_a_connection_gives_one_url_and_one_key(made: Connection) -> None:
    """Forms, fields of their own, JSON and URIs mean the same; the identity is the same, so answers are shared."""
    endpoint = endpoint_of(made)
    assert endpoint.url == "http://127.0.0.1:8000/v1/chat/completions"
    assert endpoint.identity == "http://127.0.0.1:8000/v1 m"
    assert endpoint.auth_headers() == {"authorization": f"Bearer {KEY}"}
    assert KEY not in repr(endpoint)


def test_hosts_without_a_protocol_are_asked_over_tls_unless_they_are_here() -> None:
    """A key does not travel in the clear because somebody left out eight letters."""
    there = connection(conn_type="openai_compatible", host="llm.example", password=KEY)
    assert endpoint_of(there).url.startswith("https://llm.example/v1/")
    here = connection(conn_type="openai_compatible", host="localhost:80", password=KEY)
    assert endpoint_of(here).url.startswith("http://localhost/v1/")


def test_services_have_their_own_url_where_none_is_given() -> None:
    """SambaNova's and OpenAI's are known; any other server has to be named."""
    assert endpoint_of(connection(conn_type="sambanova", password=KEY)).url.startswith(
        "https://api.sambanova.ai/v1"
    )
    assert endpoint_of(connection(conn_type="openai", password=KEY)).url.startswith(
        "https://api.openai.com/v1"
    )
    with pytest.raises(UsageError, match="has no base URL"):
        endpoint_of(connection(conn_type="openai_compatible", password=KEY))


def test_extras_are_passed_on_and_a_task_may_ask_another_model() -> None:
    """Identity, context, streaming and headers are those of a job file."""
    made = connection(
        conn_type="openai_compatible",
        host="http://127.0.0.1:1/v1",
        extra={
            "model": "m",
            "identity": "the one",
            "context_tokens": 4096,
            "stream": True,
            "headers": json.dumps({"X-Team": "corpus"}),
        },
    )
    assert endpoint_values(made, model="other") == {
        "openai_compatible": {
            "base_url": "http://127.0.0.1:1/v1",
            "model": "other",
            "identity": "the one",
            "context_tokens": 4096,
            "stream": True,
            "headers": {"X-Team": "corpus"},
        }
    }


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({}, "names no model"),
        ({"model": "m", "headers": "{"}, "no JSON"),
        ({"model": "m", "headers": [1]}, "object"),
    ],
)
def test_a_connection_that_could_not_work_is_refused(extra: dict[str, Any], message: str) -> None:
    """The message names the connection and none of its secrets."""
    made = connection(conn_type="openai_compatible", host="http://127.0.0.1:1/v1", password=KEY, extra=extra)
    with pytest.raises(UsageError, match=message) as caught:
        endpoint_of(made)
    assert "'c'" in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_postgres_connection_is_the_url_of_a_store() -> None:
    """Whatever stands in user, password and extras arrives as it is."""
    made = connection(
        conn_type="postgres",
        host="db",
        port=5432,
        schema="corpus",
        login="me",
        password="p@ss/word",
        extra={"sslmode": "require", "schema": "mine"},
    )
    assert store_url(made) == "postgresql://me:p%40ss%2Fword@db:5432/corpus?sslmode=require&schema=mine"


def test_a_connection_is_tested_with_one_small_question(
    fake_endpoint_factory: Callable[..., FakeEndpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the URL that was asked and no key, whether it works or not."""
    endpoint = fake_endpoint_factory(api_key=KEY, models=["m"])
    url = f"{endpoint.base_url}/chat/completions"
    good = {
        "conn_type": "openai_compatible",
        "host": endpoint.base_url,
        "password": KEY,
        "extra": {"model": "m"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_GOOD", json.dumps(good))
    monkeypatch.setenv("AIRFLOW_CONN_BAD_KEY", json.dumps({**good, "password": "sk-other-0123456789"}))
    monkeypatch.setenv("AIRFLOW_CONN_BAD_MODEL", json.dumps({**good, "extra": {"model": "x"}}))
    monkeypatch.setenv("AIRFLOW_CONN_NO_MODEL", json.dumps({**good, "extra": {}}))
    assert OpenAICompatibleHook("good").test_connection() == (True, f"{url}: m answers")
    assert endpoint.stats().completion_tokens <= 1
    for name in ("bad_key", "bad_model", "no_model"):
        works, message = SambaNovaHook(name).test_connection()
        assert not works
        assert name == "no_model" or message.startswith(url)
        assert "0123456789" not in message


def test_a_hook_that_is_given_no_connection_takes_that_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose name Airflow proposes in its forms."""
    made = {"conn_type": "sambanova", "password": KEY, "extra": {"model": "m"}}
    monkeypatch.setenv("AIRFLOW_CONN_SAMBANOVA_DEFAULT", json.dumps(made))
    assert SambaNovaHook().get_conn().model == "m"
    assert OpenAICompatibleHook().conn_id == "openai_compatible_default"
