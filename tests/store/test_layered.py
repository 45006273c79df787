from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from corpusmill.errors import StoreError, StoreMissError
from corpusmill.store import SQLiteStore, ThrowawayStore, Wanted, open_in_mode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from corpusmill.store import Put

    KeyOf = Callable[[str], bytes]
    PutOf = Callable[..., Put]


@pytest.fixture
def main(tmp_path: Path, put_of: PutOf) -> Path:
    """Fill a store with one answer."""
    path = tmp_path / "store.db"
    store = SQLiteStore(path)
    store.write(store.join("run").owner, puts=[put_of("a", model="m")])
    store.close()
    return path


def test_reading_only_answers_from_both_and_keeps_nothing(main: Path, put_of: PutOf, key_of: KeyOf) -> None:
    """Fresh answers serve the run that bought them, and the store stays as it was."""
    content = main.read_bytes()
    store = open_in_mode(f"sqlite:///{main}", "read-only")
    owner = store.join("run").owner
    claims = store.write(owner, wanted=[Wanted(key_of("b")), Wanted(key_of("a")), Wanted(key_of("c"))])
    assert claims == ["granted", "answered", "granted"]
    store.write(owner, puts=[put_of("b"), put_of("a", ceiling=5)])
    found = store.get_many([key_of("a"), key_of("b")])
    assert [entry.ceiling for entry in found[key_of("a")]] == [None, 5]
    assert len(found[key_of("b")]) == 1
    assert store.stats().by_model == {"m": 1}
    store.close()
    assert main.read_bytes() == content


def test_reading_only_knows_the_quota_that_others_used_up(main: Path) -> None:
    """A used-up day is known whoever learned of it, and what this run learns stays its own."""
    shared = SQLiteStore(main)
    shared.set_quota("theirs", resets_at=4e9, reason="a day")
    store = open_in_mode(f"sqlite:///{main}", "read-only")
    store.set_quota("ours", resets_at=4e9, reason="a day")
    assert store.quota("theirs") is not None
    assert store.quota("ours") is not None
    assert shared.quota("ours") is None
    store.close()
    shared.close()


def test_replay_answers_and_never_grants(main: Path, key_of: KeyOf) -> None:
    """What is stored is served; a miss is an error that names the request."""
    store = open_in_mode(f"sqlite:///{main}", "replay")
    owner = store.join("run").owner
    assert store.write(owner, wanted=[Wanted(key_of("a"))]) == ["answered"]
    with pytest.raises(StoreMissError, match=key_of("b").hex()):
        store.write(owner, wanted=[Wanted(key_of("a")), Wanted(key_of("b"))])
    store.close()


@pytest.mark.parametrize("mode", ["read-only", "replay"])
def test_a_missing_store_cannot_be_read(tmp_path: Path, mode: str) -> None:
    """These modes promise to read a store, so there has to be one."""
    with pytest.raises(StoreError, match="there is no store"):
        open_in_mode(f"sqlite:///{tmp_path / 'store.db'}", mode)  # type: ignore[arg-type]


def test_going_without_leaves_no_file(tmp_path: Path, put_of: PutOf) -> None:
    """The mode `off` does not touch the store that is named, and removes its own."""
    store = open_in_mode(f"sqlite:///{tmp_path / 'store.db'}", "off")
    assert isinstance(store, ThrowawayStore)
    store.write(store.join("run").owner, puts=[put_of("a")])
    folder = store.path.parent
    assert folder.exists()
    store.close()
    assert not folder.exists()
    assert not list(tmp_path.iterdir())
