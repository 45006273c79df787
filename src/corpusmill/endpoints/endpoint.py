"""Who is asked: the protocol that all endpoints share, and how their URLs and identities are written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import SplitResult, urlsplit, urlunsplit

from corpusmill.endpoints.secret import MASK
from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from corpusmill.endpoints.capabilities import Capabilities
    from corpusmill.exchange import Message

CeilingField = Literal["max_tokens", "max_completion_tokens"]

_ROUTE = "/chat/completions"
_DEFAULT_PORTS = {"http": 80, "https": 443}

# A password may hold a slash or a question mark that nobody has escaped; then no number follows the colon.
_USER = re.compile(r"([^/?#]*|[^/?#:]*:(?!\d*[/?#]).*)@")
_PIECES = re.compile(r"[?#&][^#&]*")
_REFERENCES = re.compile(r"\$\{[A-Za-z_]\w*\}|:")


class Endpoint(Protocol):
    """A model behind a URL.

    `url` is where chat completions are asked for. `identity` says which model answers, never with a secret in
    it, and is part of every request key. `stream` asks for the same answers in pieces. `ceiling_field` is the
    name under which the ceiling of completion tokens travels.
    """

    @property
    def url(self) -> str: ...  # noqa: D102
    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def identity(self) -> str: ...  # noqa: D102
    @property
    def stream(self) -> bool: ...  # noqa: D102
    @property
    def ceiling_field(self) -> CeilingField: ...  # noqa: D102
    @property
    def headers(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def capabilities(self) -> Capabilities: ...  # noqa: D102

    def auth_headers(self) -> dict[str, str]:
        """Give the headers that carry the key; raise `UsageError` where one is needed and there is none."""
        ...

    def check(self, parameters: Mapping[str, Any], messages: Sequence[Message] | None = None) -> None:
        """Raise `PromptError` for what this endpoint would refuse, before anything is sent."""
        ...

    def redact(self, text: str) -> str:
        """Mask this endpoint's secrets in a text that came from outside."""
        ...


def split_base_url(base_url: str) -> SplitResult:
    """Check a base URL and give its parts, without a trailing slash or the route of chat completions.

    User info is refused, because URLs are logged; a query stays (some servers take their version there).
    """
    text = base_url.strip()
    if any(character <= " " or character == "\x7f" for character in text):
        raise UsageError("base_url has a blank or a control character inside")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"base_url is not a URL ({error})") from None
    if "@" in parts.netloc:
        raise UsageError("base_url carries a user name or a password; give the key as api_key instead")
    if parts.scheme.lower() not in _DEFAULT_PORTS or not parts.hostname:
        raise UsageError(f"base_url is {shown_url(text)!r}; it must look like https://host/v1")
    if parts.fragment:
        raise UsageError(f"base_url is {shown_url(text)!r} with a fragment (#...) behind it; leave that out")
    path = parts.path.rstrip("/")
    path = path.removesuffix(_ROUTE).rstrip("/")
    scheme = parts.scheme.lower()
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    netloc = host if port is None or port == _DEFAULT_PORTS[scheme] else f"{host}:{port}"
    return SplitResult(scheme, netloc, path, parts.query, "")


def chat_url(parts: SplitResult) -> str:
    """Give the URL of chat completions under a base URL."""
    return urlunsplit(parts._replace(path=parts.path + _ROUTE))


def shown_url(url: str) -> str:
    """Give a URL as it may be shown: without user info, query and fragment, where secrets travel."""
    scheme, _, rest, _ = _taken_apart(url)
    return scheme + rest


def masked_url(url: str) -> str:
    """Give a URL as it was written, with stars for user info and for what its query says.

    References such as `${NAME}` are no secrets and stay.
    """
    scheme, user, rest, query = _taken_apart(url)
    return scheme + (f"{_starred(user)}@" if user else "") + rest + "".join(map(_starred_pair, query))


def _taken_apart(url: str) -> tuple[str, str, str, list[str]]:
    """Give the scheme with its slashes, the user info, host and path, and the pieces of query and fragment."""
    scheme, found, rest = url.partition("://")
    if not found:
        scheme, rest = "", url
    user = ""
    match = _USER.match(rest) if not rest.startswith("/") else None
    if match:
        user, rest = match[1], rest[match.end() :]
    bare = re.split(r"[?#]", rest, maxsplit=1)[0]
    return scheme + found, user, bare, _PIECES.findall(rest[len(bare) :])


def _starred_pair(pair: str) -> str:
    name, found, value = pair.partition("=")
    return f"{name}={_starred(value)}" if found else pair[0] + _starred(pair[1:])


def _starred(text: str) -> str:
    return text if not text or not _REFERENCES.sub("", text) else MASK


def identity_of(parts: SplitResult, model: str) -> str:
    """Give the identity of a model under a base URL: the URL without its query, a blank, the model."""
    return f"{urlunsplit(parts._replace(query=''))} {model}"
