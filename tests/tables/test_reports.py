"""The report beside a sink, found and read back."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from corpusmill.errors import SourceError
from corpusmill.tables.reports import read_report, report_address, write_failed_report
from corpusmill.tables.sink import SinkSpec, open_sink

if TYPE_CHECKING:
    from pathlib import Path

REPORT = {"rows": 3, "outcomes": {"completed": 3}, "prompts": []}


@pytest.mark.parametrize(
    ("sink", "expected"),
    [("out", "out/_corpusmill/report.json"), ("out.parquet", "_out.parquet.corpusmill/report.json")],
)
def test_a_report_is_found_by_its_sink(tmp_path: Path, sink: str, expected: str) -> None:
    """The address is absolute, so that another process finds it from anywhere."""
    address = report_address(tmp_path / sink)
    assert address == str(tmp_path / expected)
    with pytest.raises(SourceError, match="there is no report"):
        read_report(address)
    data = json.dumps(REPORT).encode()
    (tmp_path / expected).parent.mkdir(parents=True)
    (tmp_path / expected).write_bytes(data)
    assert read_report(address) == (REPORT, hashlib.sha256(data).hexdigest())


def test_a_report_is_read_from_an_object_store(bucket: str) -> None:
    """The address is its URL."""
    from corpusmill.tables.storage import place_of

    address = report_address(f"{bucket}/out")
    assert address == f"{bucket}/out/_corpusmill/report.json"
    place_of(address).write_bytes(json.dumps(REPORT).encode())
    assert read_report(address)[0] == REPORT


def test_the_report_of_a_run_that_committed_nothing_lies_beside_the_sink(tmp_path: Path, bucket: str) -> None:
    """Of a folder, a file, a partition, whose readers pass over it, a place in an object store, and a shard."""
    for sink, expected in (
        (tmp_path / "out", f"{tmp_path}/out.failed.report.json"),
        (tmp_path / "out.parquet", f"{tmp_path}/out.parquet.failed.report.json"),
        (SinkSpec(path=tmp_path, partition={"day": "1"}), f"{tmp_path}/_day=1.failed.report.json"),
        (f"{bucket}/out", f"{bucket}/out.failed.report.json"),
    ):
        assert write_failed_report(sink, REPORT) == expected
        assert read_report(expected)[0] == REPORT
        assert open_sink(sink).manifest() is None
    shards = {write_failed_report(f"{bucket}/out", REPORT, shard=("k" * 64, number)) for number in (0, 1)}
    assert [read_report(address)[0] for address in shards] == [REPORT, REPORT]


@pytest.mark.parametrize(
    "address",
    [
        "/etc/passwd",
        "/x/out.failed.jsonl",
        "/x/report.json",
        "/x/_corpusmill/manifest.json",
        "/x/_corpusmill/../report.json",
        "http://127.0.0.1:1/_corpusmill/report.json",
    ],
)
def test_nothing_but_a_sink_s_report_is_read(address: str) -> None:
    """Whoever can write an address cannot have any file shown."""
    with pytest.raises(SourceError):
        read_report(address)


@pytest.mark.parametrize("content", [b"root:x:0:0", b'{"rows": 1}', b"[1]", b""])
def test_what_is_no_report_is_refused_without_being_quoted(tmp_path: Path, content: bytes) -> None:
    """The message has the place and nothing of the content."""
    place = tmp_path / "_corpusmill" / "report.json"
    place.parent.mkdir()
    place.write_bytes(content)
    with pytest.raises(SourceError, match="is no report") as caught:
        read_report(str(place))
    assert "x:0:0" not in str(caught.value)
