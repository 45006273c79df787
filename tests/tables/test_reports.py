"""The report beside a sink, found and read back."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from corpusmill import Ask, Limits, OpenAICompatible, enrich
from corpusmill.errors import AuthenticationError, SourceError
from corpusmill.tables.reports import page_address, read_report, report_address, write_failed_report
from corpusmill.tables.sink import SinkSpec, open_sink
from corpusmill.tables.storage import place_of
from corpusmill.testing import FakeEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from corpusmill.tables import Manifest
    from corpusmill.tables.layout import ReportKind

REPORT = {"rows": 3, "outcomes": {"completed": 3}, "prompts": []}
FILES: dict[ReportKind, bytes] = {"json": json.dumps(REPORT).encode(), "html": b"<!doctype html>"}


@pytest.fixture(params=["out", "out.parquet", "set/day=1", "s3", "s3.parquet"])
def target(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A place for an output, of each kind."""
    name = str(request.param)
    if name.startswith("s3"):
        return f"{request.getfixturevalue('bucket')}/{name.replace('s3', 'out')}"
    return str(tmp_path / name)


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
        assert write_failed_report(sink, FILES) == expected
        assert read_report(expected)[0] == REPORT
        assert place_of(page_address(expected)).read_bytes() == FILES["html"]
        assert open_sink(sink).manifest() is None
    shards = {write_failed_report(f"{bucket}/out", FILES, shard=("k" * 64, number)) for number in (0, 1)}
    assert [read_report(address)[0] for address in shards] == [REPORT, REPORT]
    assert [place_of(page_address(address)).read_bytes() for address in shards] == [FILES["html"]] * 2


def test_a_partition_that_is_named_by_its_path_has_its_report_in_the_same_place(tmp_path: Path) -> None:
    """Whoever is told the folder finds what was written by whoever was told the keys, and no reader sees it."""
    by_keys = open_sink(SinkSpec(path=tmp_path, partition={"day": "1", "lang": "lv"})).layout
    by_path = open_sink(tmp_path / "day=1" / "lang=lv").layout
    assert by_path.failed_report("html") == by_keys.failed_report("html")
    assert by_path.failures == by_keys.failures
    assert by_path.failures.name == "_lang=lv.failed.jsonl"


def test_a_commit_takes_the_report_of_a_failure_away(target: str, fill: Callable[..., Manifest]) -> None:
    """Both of its forms, beside a folder, a file, a partition and a place in an object store."""
    write_failed_report(target, FILES)
    layout = open_sink(target).layout
    places = [layout.failed_report("json"), layout.failed_report("html")]
    assert [place.is_file() for place in places] == [True, True]
    fill(target, pa.table({"a": [1]}))
    assert [place.is_file() for place in places] == [False, False]


@pytest.mark.parametrize("mode", ["read-write", "off"])
def test_a_run_that_ends_early_says_where_its_report_lies(target: str, tmp_path: Path, mode: str) -> None:
    """Whatever the sink is, and with a store or without one; the run after it, which commits, takes it away."""
    table = pa.table({"text": [f"text {number}" for number in range(12)]})
    ask = Ask("Topic of {text}", into="topic")
    with FakeEndpoint() as endpoint:
        asked = OpenAICompatible(endpoint.base_url, "any")
        options: dict[str, Any] = {
            "endpoint": asked,
            "store": f"sqlite:///{tmp_path / 'store.db'}",
            "mode": mode,
        }
        numbers = itertools.count()
        endpoint.script(lambda _request, _attempt: "401" if next(numbers) == 8 else None)
        with pytest.raises(AuthenticationError) as ended:
            enrich(table, target, ask, limits=Limits(concurrency=1), **options)
        address = ended.value.report_address
        assert address is not None
        report, _ = read_report(address)
        assert ended.value.report is not None
        assert report["answers"] == ended.value.report.answers == 8
        assert report["ended"] == str(ended.value)
        assert place_of(address) == place_of(open_sink(target).layout.failed_report("json").shown)
        page = place_of(page_address(address))
        assert "ended early, nothing committed" in page.read_bytes().decode()
        endpoint.script(None)
        enrich(table, target, ask, **options)
    assert not place_of(address).is_file()
    assert not page.is_file()
    assert read_report(report_address(target))[0]["rows"] == 12


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
