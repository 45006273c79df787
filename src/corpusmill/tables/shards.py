"""Parts that several processes stage, until one of them commits them all.

They lie beside the sink under the token of their plan, where no other run looks: `recover` passes over them, and
whoever commits takes only what the records of its own plan name. Each attempt at a shard writes into a folder of its
own, and its record, written last and in one step, says which files count.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from corpusmill.errors import SinkError
from corpusmill.tables.parts import StagedPart
from corpusmill.tables.storage import failures_as
from corpusmill.tables.writing import Writing

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from corpusmill.tables.sink import Sink
    from corpusmill.tables.storage import Place

ABANDONED = 7 * 86_400.0
"""Seconds after which what was staged and never committed is taken for abandoned."""

_SHARDS = "shards"


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    index: int
    first_row: int
    rows: int
    size: int
    sha256: str


class ShardRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a shard came to: its parts, its report as a dictionary, and how many rows failed.

    `failures` names the file with the failed rows, one JSON object a line; empty when there are none.
    """

    run_key: str
    shard: int
    parts: list[_Part]
    report: dict[str, Any]
    failed: int
    failures: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A shard that is staged: its record, its parts, and the lines of its failed rows."""

    record: ShardRecord
    parts: tuple[StagedPart, ...]
    failures: bytes = field(repr=False)


class ShardWriting(Writing):
    """The parts of one shard while they are written. `record` makes them count; `commit` is somebody else's."""

    def __init__(self, sink: Sink, schema: pa.Schema, *, run_key: str, job_key: str, shard: int) -> None:
        self._folder = shard_folder(sink, run_key)
        self._attempt = f"attempt-{shard:06}-{secrets.token_hex(4)}"
        self._shard = shard
        self._key = run_key
        super().__init__(
            sink.layout,
            schema,
            compression=sink.spec.compression,
            run_key=run_key,
            job_key=job_key,
            staging=self._folder / self._attempt,
        )

    def record(self, *, report: dict[str, Any], failed: int, failures: bytes) -> None:
        """Say that the shard is whole, and what it came to.

        Raises:
            SinkError: the place cannot be written.
        """
        name = ""
        with failures_as(SinkError, "cannot write", self._folder):
            if failures:
                name = f"{self._attempt}/failures.jsonl"
                (self._folder / name).write_bytes(failures)
            record = ShardRecord(
                run_key=self._key,
                shard=self._shard,
                parts=[
                    _Part(
                        file=f"{self._attempt}/{part.place.name}",
                        index=part.index,
                        first_row=part.first_row,
                        rows=part.rows,
                        size=part.size,
                        sha256=part.sha256,
                    )
                    for part in self.staged()
                ],
                report=report,
                failed=failed,
                failures=name,
            )
            (self._folder / _record_name(self._shard)).write_bytes(msgspec.json.encode(record))


def shard_folder(sink: Sink, run_key: str) -> Place:
    """Where the shards of one plan are staged."""
    layout, token = sink.layout, run_key[:16]
    if layout.beside:
        return layout.target.beside(f"{layout.hidden}-{_SHARDS}-{token}")
    return layout.sidecars / _SHARDS / token


def staged_shard(sink: Sink, run_key: str, shard: int) -> Staged | None:
    """What was staged for a shard of this plan; None when it is not whole yet.

    Raises:
        SinkError: there is something, and it cannot be read.
    """
    folder = shard_folder(sink, run_key)
    place = folder / _record_name(shard)
    with failures_as(SinkError, "cannot read", place):
        if not place.is_file():
            return None
        data = place.read_bytes()
    try:
        record = msgspec.json.decode(data, type=ShardRecord)
    except msgspec.MsgspecError as error:
        raise SinkError(f"{place.shown} is damaged: {error}") from error
    if (record.run_key, record.shard) != (run_key, shard):
        raise SinkError(f"{place.shown} is of another plan")
    with failures_as(SinkError, "cannot read", folder):
        failures = (folder / record.failures).read_bytes() if record.failures else b""
    parts = tuple(
        StagedPart(
            index=part.index,
            first_row=part.first_row,
            rows=part.rows,
            place=folder / part.file,
            size=part.size,
            sha256=part.sha256,
        )
        for part in record.parts
    )
    return Staged(record=record, parts=parts, failures=failures)


def drop_shards(sink: Sink, run_key: str) -> None:
    """Remove what was staged for this plan."""
    folder = shard_folder(sink, run_key)
    with failures_as(SinkError, "cannot clear", folder):
        folder.delete()


def drop_abandoned(sink: Sink, *, clock: Callable[[], float] = time.time) -> None:
    """Remove what other plans staged and nobody has touched for a week. `clock` tells Unix seconds."""
    parent = shard_folder(sink, "x").parent
    prefix = f"{sink.layout.hidden}-{_SHARDS}-" if sink.layout.beside else ""
    with failures_as(SinkError, "cannot clear", parent):
        for info in parent.children():
            if not info.base_name.startswith(prefix):
                continue
            folder = parent / info.base_name
            times = [inner.mtime for inner in folder.children(recursive=True) if inner.mtime is not None]
            if times and clock() - max(times).timestamp() > ABANDONED:
                folder.delete()


def _record_name(shard: int) -> str:
    return f"shard-{shard:06}.json"
