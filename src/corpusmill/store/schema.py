"""What the tables of an SQLite store look like, and how to tell a store from any other file.

The header carries `APPLICATION` and `FORMAT`. A file that is not empty and does not carry them is never
touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.errors import StoreError

if TYPE_CHECKING:
    import sqlite3

APPLICATION = 0x636D696C
FORMAT = 1

PAGE_SIZE = 8192
"""Bytes. Smaller pages are slower to read, larger ones make each scattered write of the index dearer."""

TABLES = (
    """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
    """,
    # Words that many rows share: models, scripts, invocations, lists of field names.
    """
    CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)
    """,
    # `facts` is a JSON array, see `records.Facts`. The body comes last, so that reading the rest of a row
    # never walks through its pages.
    """
    CREATE TABLE completions (
      id INTEGER PRIMARY KEY,
      key BLOB NOT NULL CHECK (length(key) = 20),
      created_at REAL NOT NULL,
      rejected INTEGER NOT NULL,
      facts TEXT NOT NULL,
      model INTEGER,
      characters INTEGER,
      script INTEGER,
      shape INTEGER,
      field_names INTEGER,
      field_digests BLOB,
      body BLOB NOT NULL
    )
    """,
    "CREATE INDEX completions_by_key ON completions (key)",
    "CREATE TABLE shapes (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, fields TEXT NOT NULL)",
    # An id is never given out twice: a claim may outlive its owner.
    """
    CREATE TABLE owners (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      run_key TEXT NOT NULL,
      invocation TEXT NOT NULL,
      host TEXT NOT NULL,
      pid INTEGER NOT NULL,
      process_created_at REAL NOT NULL,
      joined_at REAL NOT NULL,
      lease_until REAL NOT NULL,
      reserved_tokens INTEGER NOT NULL DEFAULT 0,
      reserved_usd REAL NOT NULL DEFAULT 0
    )
    """,
    # `lost`: nobody is asking, but somebody did, may have been charged, and got no answer.
    """
    CREATE TABLE claims (
      key BLOB PRIMARY KEY, owner INTEGER NOT NULL, lost INTEGER NOT NULL, claimed_at REAL NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE runs (
      run_key TEXT PRIMARY KEY,
      label TEXT NOT NULL,
      first_started_at REAL NOT NULL,
      finished_at REAL,
      requests INTEGER NOT NULL DEFAULT 0,
      attempts INTEGER NOT NULL DEFAULT 0,
      prompt_tokens INTEGER NOT NULL DEFAULT 0,
      completion_tokens INTEGER NOT NULL DEFAULT 0,
      usd REAL NOT NULL DEFAULT 0,
      possibly_paid_twice INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE quotas (identity TEXT PRIMARY KEY, resets_at REAL NOT NULL, reason TEXT NOT NULL) WITHOUT
    ROWID
    """,
    # What all processes together may send just now; see `rates.Levels`.
    """
    CREATE TABLE rates (
      identity TEXT PRIMARY KEY, requests REAL NOT NULL, tokens REAL NOT NULL, updated REAL NOT NULL
    ) WITHOUT ROWID
    """,
)


def is_store(connection: sqlite3.Connection, path: str) -> bool:
    """Tell whether the file is a store of this format (True) or holds nothing at all (False).

    Raises `StoreError` for a store of another format and for a database of another program.
    """
    # All three of one moment: another process may be making this very store.
    alone = not connection.in_transaction
    if alone:
        connection.execute("BEGIN")
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    finally:
        if alone and connection.in_transaction:
            connection.execute("COMMIT")
    if application == APPLICATION and version == FORMAT and tables:
        return True
    if application == APPLICATION and version > FORMAT:
        raise StoreError(
            f"store {path} has format {version}, and this corpusmill knows formats up to {FORMAT}: "
            "upgrade corpusmill, or name another store"
        )
    if application == 0 and version == 0 and tables == 0:
        return False
    if application == APPLICATION:
        raise StoreError(
            f"store {path} is damaged: format {version}, {tables} tables; restore it from a copy"
        )
    raise StoreError(f"{path} is an SQLite database of another program: name another file for the store")


def create(connection: sqlite3.Connection, path: str) -> None:
    """Make an empty database a store; does nothing when another process was faster."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not is_store(connection, path):
            for statement in TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
