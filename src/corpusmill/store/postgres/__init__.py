"""The store in a PostgreSQL database, shared by all processes of many machines."""

from corpusmill.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
