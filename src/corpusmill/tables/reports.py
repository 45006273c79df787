"""The report that a sink keeps beside its manifest, and that of a run which committed nothing."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import msgspec

from corpusmill.errors import SinkError, SourceError
from corpusmill.tables.layout import REPORT_KINDS
from corpusmill.tables.shards import shard_folder
from corpusmill.tables.sink import open_sink
from corpusmill.tables.storage import failures_as, place_of, refusals_as

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corpusmill.tables.layout import ReportKind
    from corpusmill.tables.sink import Sink, SinkLike
    from corpusmill.tables.storage import Place

REPORT = "report.json"

LARGEST = 64 << 20
"""Bytes. A report is bounded by its making; what is larger is none."""

_ADDRESS = re.compile(
    r".+/(?:(?:_corpusmill|_[^/]+\.corpusmill)/report\.json|[^/]+\.failed\.report\.json)", re.DOTALL
)


def report_address(sink: SinkLike) -> str:
    """Where the report of a sink lies: an absolute path, or the URL of an object."""
    return (open_sink(sink).layout.sidecars / REPORT).address


def write_failed_report(
    sink: SinkLike, files: Mapping[ReportKind, bytes], *, shard: tuple[str, int] | None = None
) -> str:
    """Keep the report of a run that committed nothing beside the sink, until one commits; give its address.

    `files` are its two forms. What lies in the sink, and its report, stay as they are. The report of a `shard`, named
    by run key and number, lies where the shards of the run are staged.

    Raises:
        SinkError: the place cannot be written.
    """
    target = open_sink(sink)
    for kind in REPORT_KINDS:
        place = _failed_report(target, kind, shard)
        with failures_as(SinkError, "cannot write the report", place):
            place.write_bytes(files[kind])
    return _failed_report(target, "json", shard).address


def page_address(address: str) -> str:
    """Where the page of the report lies that has this address: beside it."""
    return f"{address.removesuffix('.json')}.html"


def read_report(address: str) -> tuple[dict[str, Any], str]:
    """The report at an address that one of these functions gave, and the SHA-256 of its bytes, hexadecimal.

    Raises:
        SourceError: the address is not that of a report, nothing lies there, or it is no report.
    """
    if not _ADDRESS.fullmatch(address):
        raise SourceError("the address is not that of a sink's report")
    with refusals_as(SourceError):
        place = place_of(address)
    with failures_as(SourceError, "cannot read the report", place):
        info = place.info()
        if not info.is_file:
            raise SourceError(f"there is no report at {place.shown}")
        if info.size > LARGEST:
            raise SourceError(f"{place.shown} is no report: it has {info.size:,} bytes")
        data = place.read_bytes()
    try:
        report = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.MsgspecError:
        raise SourceError(f"{place.shown} is no report") from None
    if not {"rows", "outcomes", "prompts"} <= report.keys():
        raise SourceError(f"{place.shown} is no report")
    return report, hashlib.sha256(data).hexdigest()


def _failed_report(target: Sink, kind: ReportKind, shard: tuple[str, int] | None) -> Place:
    if shard is None:
        return target.layout.failed_report(kind)
    run_key, number = shard
    return shard_folder(target, run_key) / f"shard-{number:06}.failed.report.{kind}"
