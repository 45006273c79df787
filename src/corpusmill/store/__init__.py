"""Where completions, claims, spend and quota are kept: the cache, and what several processes share."""

from __future__ import annotations

from corpusmill.store.layered import ReadOnlyStore, ReplayStore, ThrowawayStore
from corpusmill.store.postgres import PostgresStore
from corpusmill.store.protocol import (
    NOTHING,
    Claim,
    Cost,
    Entry,
    Kind,
    Membership,
    Nearest,
    Put,
    Quota,
    Release,
    Reservation,
    Spend,
    Store,
    StoreStats,
    UsageSample,
    Wanted,
)
from corpusmill.store.rates import Rates
from corpusmill.store.serving import choose, serves, was_cut
from corpusmill.store.sqlite import SQLiteStore
from corpusmill.store.urls import open_in_mode, open_store
from corpusmill.store.writer import GroupWriter

__all__ = [
    "NOTHING",
    "Claim",
    "Cost",
    "Entry",
    "GroupWriter",
    "Kind",
    "Membership",
    "Nearest",
    "PostgresStore",
    "Put",
    "Quota",
    "Rates",
    "ReadOnlyStore",
    "Release",
    "ReplayStore",
    "Reservation",
    "SQLiteStore",
    "Spend",
    "Store",
    "StoreStats",
    "ThrowawayStore",
    "UsageSample",
    "Wanted",
    "choose",
    "open_in_mode",
    "open_store",
    "serves",
    "was_cut",
]
