"""Stores that leave no trace, for the modes that read only, replay, or go without a store.

Each keeps what the run itself needs, claims and fresh answers, in a throwaway file that goes when it is closed.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.errors import StoreMissError
from corpusmill.store.protocol import Waits
from corpusmill.store.serving import choose
from corpusmill.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from corpusmill.store.protocol import (
        Claim,
        Entry,
        Nearest,
        Put,
        Quota,
        Release,
        Store,
        StoreStats,
        UsageSample,
        Wanted,
    )


class ThrowawayStore(SQLiteStore):
    """A store in a temporary folder, which is removed when the store is closed: the mode `off`."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="corpusmill-"))
        try:
            super().__init__(self._folder / "store.db")
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def close(self) -> None:
        """Let go of everything and remove it."""
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


class ReadOnlyStore(ThrowawayStore):
    """Answers from `main`, which is not written to; everything new is thrown away: the mode `read-only`.

    Closing it closes `main` too.
    """

    def __init__(self, main: Store) -> None:
        super().__init__()
        self.main = main

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, list[Entry]]:
        """Give the entries of the main store, and after them the fresh ones."""
        found = self.main.get_many(keys)
        for key, entries in super().get_many(keys).items():
            found.setdefault(key, []).extend(entries)
        return found

    def write(
        self,
        owner: int,
        *,
        puts: Sequence[Put] = (),
        releases: Sequence[Release] = (),
        wanted: Sequence[Wanted] = (),
    ) -> list[Claim]:
        """Write to the throwaway store; what the main store has an answer to is answered."""
        entries = self.main.get_many([want.key for want in wanted]) if wanted else {}
        open_ones = [want for want in wanted if not _answered(want, entries)]
        claims = iter(super().write(owner, puts=puts, releases=releases, wanted=open_ones))
        return ["answered" if _answered(want, entries) else next(claims) for want in wanted]

    def quota(self, identity: str) -> Quota | None:
        """Tell whether a quota is used up, by what this run or anybody else has learned."""
        return super().quota(identity) or self.main.quota(identity)

    def nearest(self, fields: Mapping[str, str]) -> Nearest | None:
        """Look into the main store."""
        return self.main.nearest(fields)

    def identities(self) -> list[str]:
        """Look into the main store."""
        return self.main.identities()

    def usage_samples(self, *, model: str | None = None, limit: int = 10_000) -> list[UsageSample]:
        """Look into the main store."""
        return self.main.usage_samples(model=model, limit=limit)

    def stats(self) -> StoreStats:
        """Count in the main store."""
        return self.main.stats()

    def hurry(self) -> None:
        """Wait no longer for the main store, where it is on a server."""
        if isinstance(self.main, Waits):
            self.main.hurry()

    def waiting(self) -> str | None:
        """Say that the main store is waited for."""
        return self.main.waiting() if isinstance(self.main, Waits) else None

    def close(self) -> None:
        """Let go of both."""
        try:
            super().close()
        finally:
            self.main.close()


class ReplayStore(ReadOnlyStore):
    """Answers from `main`, and whatever it cannot answer is an error: the mode `replay`."""

    def write(
        self,
        owner: int,
        *,
        puts: Sequence[Put] = (),
        releases: Sequence[Release] = (),
        wanted: Sequence[Wanted] = (),
    ) -> list[Claim]:
        """Write to the throwaway store; raises `StoreMissError` for a key that would have to be asked."""
        claims = super().write(owner, puts=puts, releases=releases, wanted=wanted)
        for want, claim in zip(wanted, claims, strict=True):
            if claim != "answered":
                raise StoreMissError(
                    f"replay: the store has no answer to request {want.key.hex()}; run in another mode to ask it, "
                    "or `corpusmill store explain` to see what differs"
                )
        return claims


def _answered(want: Wanted, entries: Mapping[bytes, Sequence[Entry]]) -> bool:
    return choose(entries.get(want.key, ()), want.ceiling, want.not_before) is not None
