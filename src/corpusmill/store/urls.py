"""From the URL of a store to the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from corpusmill.endpoints.endpoint import shown_url
from corpusmill.errors import UsageError
from corpusmill.store.layered import ReadOnlyStore, ReplayStore, ThrowawayStore
from corpusmill.store.postgres import PostgresStore
from corpusmill.store.postgres.links import exists as postgres_exists
from corpusmill.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from corpusmill.policy import Mode
    from corpusmill.store.protocol import Store

POSTGRES = ("postgresql", "postgres")
"""The schemes of a PostgreSQL database."""


def open_in_mode(url: str, mode: Mode) -> Store:
    """Open a store as a run of this mode uses it. Raises what `open_store` raises."""
    if mode == "off":
        return ThrowawayStore()
    if mode == "read-only":
        return ReadOnlyStore(open_store(url, read_only=True))
    if mode == "replay":
        return ReplayStore(open_store(url, read_only=True))
    return open_store(url)


def open_store(url: str, *, read_only: bool = False) -> SQLiteStore | PostgresStore:
    """Open the store at `sqlite:///relative/path`, `sqlite:////absolute/path` or `postgresql://host/database`.

    Raises `UsageError` for any other URL, `StoreError` when the store cannot be used.
    """
    if _parts(url).scheme in POSTGRES:
        return PostgresStore(url, read_only=read_only)
    return SQLiteStore(store_path(url), read_only=read_only)


def store_exists(url: str) -> bool:
    """Tell whether there is a store at a URL; nothing is made. Raises what `open_store` raises."""
    if _parts(url).scheme in POSTGRES:
        return postgres_exists(url)
    return store_path(url).exists()


def sqlite_file(url: str) -> Path | None:
    """Give the file of the store at a URL; None for one that is no file. Raises what `open_store` raises."""
    return None if _parts(url).scheme in POSTGRES else store_path(url)


def store_path(url: str) -> Path:
    """Give the file of the store at a URL. Raises `UsageError` for a URL of no store."""
    parts = _parts(url)
    extras = parts.netloc or parts.query or parts.fragment
    if parts.path == "/:memory:":
        raise UsageError("a store in memory would lose what was paid for; for none at all use the mode off")
    if parts.scheme != "sqlite" or extras or not parts.path.strip("/"):
        raise UsageError(
            f"store is {shown_url(url)!r}; it must be sqlite:///relative/path, sqlite:////absolute/path or "
            "postgresql://host/database"
        )
    return Path(unquote(parts.path[1:]))


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        # What is wrong with it may be its password.
        raise UsageError(
            "store is no URL that can be read; write special characters of user and password with percent signs"
        ) from None
