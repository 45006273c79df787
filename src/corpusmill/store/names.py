"""Words that many rows share, each kept once under a number: models, scripts, invocations, lists of field names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.store.packing import text

if TYPE_CHECKING:
    import sqlite3


class Names(dict[int, str]):
    """The names by their numbers, as far as this process knows them; a number never changes its meaning.

    A name that is given a number in a transaction has it only once that is committed: `forget` after a
    rollback.
    """

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[str, int] = {}

    def number(self, connection: sqlite3.Connection, name: str | None) -> int | None:
        """Give the number of a name, a new one if need be; within a transaction."""
        if name is None:
            return None
        number = self._numbers.get(name)
        if number is None:
            clean = text(name)
            connection.execute("INSERT OR IGNORE INTO names (name) VALUES (?)", (clean,))
            number = int(connection.execute("SELECT id FROM names WHERE name = ?", (clean,)).fetchone()[0])
            self._numbers[name] = number
        return number

    def learn(self, connection: sqlite3.Connection) -> None:
        """Read all names that are not known yet."""
        self.update(connection.execute("SELECT id, name FROM names WHERE id > ?", (max(self, default=0),)))

    def forget(self) -> None:
        """Forget all numbers."""
        self._numbers.clear()
        self.clear()
