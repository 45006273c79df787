"""The pytest fixtures that are shipped, used as a user uses them."""

from __future__ import annotations

import ssl
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx

from corpusmill.testing import expected_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpusmill.testing import FakeEndpoint

HTTP = httpx.Client(
    verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), limits=httpx.Limits(max_keepalive_connections=0)
)
"""Loads no certificates, which takes longer than a test, and keeps no connection."""

MESSAGES = [{"role": "user", "content": "Name the topic of: bread"}]


def test_the_fixture_answers_and_counts(fake_endpoint: FakeEndpoint) -> None:
    """A request to the fixture gets the expected answer and is counted."""
    response = HTTP.post(
        f"{fake_endpoint.base_url}/chat/completions", json={"model": "m", "messages": MESSAGES}
    )
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == expected_answer(MESSAGES)
    assert fake_endpoint.stats().computed == 1


def test_the_factory_starts_endpoints_with_options(
    fake_endpoint_factory: Callable[..., FakeEndpoint],
) -> None:
    """Each endpoint of the factory has its own address and its own options."""
    plain, guarded = fake_endpoint_factory(), fake_endpoint_factory(api_key="secret")
    assert plain.base_url != guarded.base_url
    assert HTTP.get(f"{plain.base_url}/models").status_code == 200
    assert HTTP.get(f"{guarded.base_url}/models").status_code == 401


def test_loading_the_plugin_imports_no_server() -> None:
    """Pytest loads the plugin in every project, so it imports neither uvicorn nor msgspec."""
    code = (
        "import sys, corpusmill.testing.plugin\n"
        "print(sorted({'uvicorn', 'starlette', 'httptools', 'msgspec', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
