"""Finding and reading back the report that a sink keeps beside its manifest."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import msgspec

from corpusmill.errors import SourceError, UsageError
from corpusmill.tables.sink import open_sink
from corpusmill.tables.storage import failures_as, place_of

if TYPE_CHECKING:
    from corpusmill.tables.sink import SinkLike

REPORT = "report.json"

LARGEST = 64 << 20
"""Bytes. A report is bounded by its making; what is larger is none."""

_ADDRESS = re.compile(r".+/(?:_corpusmill|_[^/]+\.corpusmill)/report\.json", re.DOTALL)


def report_address(sink: SinkLike) -> str:
    """Where the report of a sink lies: an absolute path, or the URL of an object."""
    place = open_sink(sink).layout.sidecars / REPORT
    return place.path if place.local else place.shown


def read_report(address: str) -> tuple[dict[str, Any], str]:
    """The report at an address that `report_address` gave, and the SHA-256 of its bytes, hexadecimal.

    Raises:
        SourceError: the address is not that of a report, nothing lies there, or it is no report.
    """
    if not _ADDRESS.fullmatch(address):
        raise SourceError("the address is not that of a sink's report")
    try:
        place = place_of(address)
    except UsageError as error:
        raise SourceError(str(error)) from error
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
