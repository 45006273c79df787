"""Stores to test. A second kind of store passes the same suite once it has a fixture here."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from corpusmill.store import Entry, Put, Store, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CRASH = """
import os, signal, sys
from corpusmill.store import Release, Wanted, open_store
store = open_store(sys.argv[1])
member = store.join(sys.argv[2])
keys = [bytes.fromhex(key) for key in sys.argv[3:]]
print(",".join(store.write(member.owner, wanted=[Wanted(key) for key in keys])), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Name a store that does not exist yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'folder' / 'store.db'}"
    server: str = request.getfixturevalue("postgres_server")
    return f"{server}&schema=store_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def opened(url: str) -> Iterator[Callable[[], Store]]:
    """Open the same store once more, as another process would."""
    stores: list[Store] = []

    def once_more() -> Store:
        stores.append(open_store(url))
        return stores[-1]

    yield once_more
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[[], Store]) -> Store:
    """Open the store."""
    return opened()


@pytest.fixture
def crash(url: str) -> Callable[..., list[str]]:
    """Let another process claim keys and die of SIGKILL; give what it was granted."""

    def run(run_key: str, *keys: bytes) -> list[str]:
        child = subprocess.run(
            [sys.executable, "-c", CRASH, url, run_key, *(key.hex() for key in keys)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert child.returncode == -9, child.stderr
        return child.stdout.strip().split(",")

    return run


def key_of(name: str) -> bytes:
    """Give a request key, the same for the same name."""
    return hashlib.blake2b(name.encode(), digest_size=20).digest()


def put_of(name: str, **changes: Any) -> Put:
    """Give an answer to a named request; any field of the entry or of the put can be set."""
    facts = {
        "key": key_of(name),
        "body": b'{"answer": "' + name.encode() + b'"}',
        "ceiling": None,
        "finish_reason": "stop",
        "prompt_tokens": 7,
        "completion_tokens": 11,
        "choices": 1,
        "created_at": 1000.0,
        "invocation": "invocation",
        "kind": "completion",
    }
    beside = {name: changes.pop(name) for name in list(changes) if name not in facts}
    return Put(entry=Entry(**(facts | changes)), **beside)


@pytest.fixture(name="key_of")
def key_of_fixture() -> Callable[[str], bytes]:
    """Hand over `key_of`."""
    return key_of


@pytest.fixture(name="put_of")
def put_of_fixture() -> Callable[..., Put]:
    """Hand over `put_of`."""
    return put_of
