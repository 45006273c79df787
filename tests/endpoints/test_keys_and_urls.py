"""Keys are never shown, and one model has one identity by whatever spelling of its URL."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from corpusmill.endpoints import OpenAICompatible, SambaNova
from corpusmill.endpoints.endpoint import shown_url
from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "aVerySecretKey-0123456789"

VARIABLES = ("CORPUSMILL_API_KEY", "OPENAI_API_KEY", "SAMBANOVA_API_KEY")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_a_key_is_trimmed_of_what_copying_leaves_around_it() -> None:
    """Blanks and line ends around a key are no part of it."""
    endpoint = OpenAICompatible("http://127.0.0.1/v1", "m", api_key=f" \ufeff{KEY}\r\n")
    assert endpoint.auth_headers() == {"authorization": f"Bearer {KEY}"}


@pytest.mark.parametrize("key", ["", " \n", f"{KEY}\n{KEY}", f"{KEY} {KEY}", "clé", f"“{KEY}”", f"{KEY}\x00"])
def test_a_key_that_cannot_travel_is_refused_and_not_shown(key: str) -> None:
    """An empty, non-ASCII or broken key is a clear error that does not print it."""
    with pytest.raises(UsageError, match="api_key") as caught:
        OpenAICompatible("http://127.0.0.1/v1", "m", api_key=key)
    assert KEY not in str(caught.value)


def test_a_bad_key_from_the_environment_is_refused_by_the_variable_s_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names the variable, not its value."""
    monkeypatch.setenv("SAMBANOVA_API_KEY", f"{KEY}é")
    with pytest.raises(UsageError, match="SAMBANOVA_API_KEY") as caught:
        SambaNova("m").auth_headers()
    assert KEY not in str(caught.value)


def test_no_key_is_in_any_representation() -> None:
    """A key and a telling header are absent from repr and str."""
    endpoint = OpenAICompatible("http://127.0.0.1/v1", "m", api_key=KEY, headers={"X-Api-Key": KEY})
    assert KEY not in repr(endpoint) + str(endpoint) + repr(endpoint._key)


def test_a_key_from_the_environment_is_not_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an orchestrator serialises holds no key that lies in the environment, and still finds it there."""
    monkeypatch.setenv("CORPUSMILL_API_KEY", KEY)
    endpoint = OpenAICompatible("http://127.0.0.1/v1", "m")
    pickled = pickle.dumps(endpoint)
    assert KEY.encode() not in pickled
    assert pickle.loads(pickled).auth_headers() == {"authorization": f"Bearer {KEY}"}  # noqa: S301 - made here


@pytest.mark.parametrize(
    ("base_url", "variable"),
    [("https://api.openai.com/v1", "OPENAI_API_KEY"), ("https://example.org/v1", "CORPUSMILL_API_KEY")],
)
def test_a_key_goes_only_to_whom_it_belongs(
    monkeypatch: pytest.MonkeyPatch, base_url: str, variable: str
) -> None:
    """OpenAI's key is not sent to other hosts."""
    for name in VARIABLES:
        monkeypatch.setenv(name, name.lower())
    endpoint = OpenAICompatible(base_url, "m")
    assert endpoint.auth_headers() == {"authorization": f"Bearer {variable.lower()}"}


def test_without_a_key_no_header_is_sent() -> None:
    """A server that wants no key gets none."""
    assert OpenAICompatible("http://127.0.0.1/v1", "m").auth_headers() == {}


def test_sambanova_without_a_key_is_an_error_that_names_the_variable() -> None:
    """The service wants a key, so its absence is found before the first request."""
    with pytest.raises(UsageError, match="SAMBANOVA_API_KEY"):
        SambaNova("m").auth_headers()


def test_what_a_server_echoes_of_a_key_is_masked() -> None:
    """Neither the key nor what looks like one survives in a server's text."""
    endpoint = OpenAICompatible(
        "http://127.0.0.1/v1", "m", api_key=KEY, headers={"x-api-key": "otherSecret1"}
    )
    told = endpoint.redact(f"bad key {KEY}, header otherSecret1, Bearer abcdef.ghi, sk-abcdefghijklmnopqrst")
    assert told == "bad key ***, header ***, Bearer ***, ***"


@pytest.mark.parametrize(
    "base_url",
    [
        "https://api.example.org/v1",
        "https://api.example.org/v1/",
        "HTTPS://API.Example.org:443/v1//",
        "https://api.example.org/v1/chat/completions",
        "https://api.example.org/v1?token=secret",
        "  https://api.example.org/v1\n",
    ],
)
def test_spellings_of_one_url_are_one_identity(base_url: str) -> None:
    """Case, default port, slashes, route and query do not make another model."""
    assert OpenAICompatible(base_url, "m").identity == "https://api.example.org/v1 m"


def test_the_query_of_a_base_url_is_sent_and_not_shown() -> None:
    """Some servers take their version in the query; secrets lie there too."""
    endpoint = OpenAICompatible("https://h.example/v1?api-version=1", "m")
    assert endpoint.url == "https://h.example/v1/chat/completions?api-version=1"
    assert "api-version" not in repr(endpoint)
    assert shown_url(endpoint.url) == "https://h.example/v1/chat/completions"


@pytest.mark.parametrize(
    ("base_url", "said"),
    [
        ("api.example.org/v1", "https://host/v1"),
        ("ftp://example.org/v1", "https://host/v1"),
        ("https:///v1", "https://host/v1"),
        ("https://example.org/v1#x", "fragment"),
        ("https://exa mple.org/v1", "blank"),
        ("https://example.org:port/v1", "not a URL"),
        ("https://me:s3cret@example.org/v1", "user name"),
        ("", "https://host/v1"),
    ],
)
def test_a_base_url_that_cannot_work_is_refused(base_url: str, said: str) -> None:
    """Each is one clear error before the first request, without the password that it may hold."""
    with pytest.raises(UsageError, match=said) as caught:
        OpenAICompatible(base_url, "m")
    assert "s3cret" not in str(caught.value)


def test_ports_and_addresses_of_version_6_stay() -> None:
    """Only the default port is dropped, and an IPv6 host keeps its brackets."""
    assert OpenAICompatible("http://[::1]:8000/v1", "m").identity == "http://[::1]:8000/v1 m"


def test_an_explicit_identity_holds() -> None:
    """One model behind two routes may have one identity."""
    assert OpenAICompatible("http://127.0.0.1/v1", "m", identity="model x").identity == "model x"


@pytest.mark.parametrize("model", ["", "  ", "a\nb", None, 5])
def test_a_model_s_name_is_text(model: str) -> None:
    """A blank or broken name is refused."""
    with pytest.raises(UsageError, match="model"):
        OpenAICompatible("http://127.0.0.1/v1", model)


@pytest.mark.parametrize("headers", [{"a b": "x"}, {"": "x"}, {"x": "a\r\nb: c"}, {"x": "é"}, {"x:": "y"}])
def test_a_header_that_cannot_be_sent_is_refused(headers: Mapping[str, str]) -> None:
    """A line break in a header would begin another header."""
    with pytest.raises(UsageError, match="header"):
        OpenAICompatible("http://127.0.0.1/v1", "m", headers=headers)


def test_the_ceiling_travels_under_the_name_that_the_host_knows() -> None:
    """OpenAI's own models refuse `max_tokens`; all others take it."""
    assert OpenAICompatible("https://api.openai.com/v1", "m").ceiling_field == "max_completion_tokens"
    assert SambaNova("m").ceiling_field == "max_tokens"


def test_the_context_s_size_is_a_capability() -> None:
    """`context_tokens` is a short way to state the one capability that differs by model."""
    assert SambaNova("m", context_tokens=65_536).capabilities.context_tokens == 65_536
