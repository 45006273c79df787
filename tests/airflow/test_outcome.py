"""What Airflow keeps of a run: lines in the log, the manifest, the key of a partition, the page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from corpusmill.airflow.lines import LogLines, ending, failures, line
from corpusmill.airflow.link import report_path
from corpusmill.airflow.outcome import EXTRA, event_extra, finite, key_of_partition, manifest
from corpusmill.engine.engine import Progress
from corpusmill.report import PromptReport, RunReport, Sample

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.conftest import FakeClock


def report(**changes: Any) -> RunReport:
    """Make a report of ten rows, two of which failed."""
    fields: dict[str, Any] = {
        "rows": 10,
        "outcomes": {"completed": 8, "failed": 2},
        "live": 8,
        "cached": 0,
        "deduplicated": 0,
        "skipped": 0,
        "unanswered": 2,
        "attempts": 11,
        "possibly_paid_twice": 0,
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "cost": 0.25,
        "seconds": 2.0,
        "output": "out",
        "skipped_run": False,
        "run_key": "k",
        "model": "m",
        "prompts": [PromptReport(into="lv", outcomes={"completed": 8, "failed": 2}, errors={"http_400": 2})],
        "failures": [
            Sample(row=3, into="lv", inputs={"text": "private"}, output=None, status="failed", error="e")
        ],
    }
    return RunReport(**{**fields, **changes})


def progress(**changes: Any) -> Progress:
    """Make the progress of a run that is a tenth done."""
    fields: dict[str, Any] = {
        "phase": "asking",
        "rows": 1_000,
        "total": 10_000,
        "seconds": 50.0,
        "live": 900,
        "hits": 100,
        "tokens": 123_456,
        "in_flight": 64,
        "concurrency": 64,
        "backing_off": 0,
        "rate_limited": 3,
        "waiting": None,
    }
    known = Progress.__dataclass_fields__
    return Progress(**{name: value for name, value in {**fields, **changes}.items() if name in known})


def test_a_line_says_rows_rate_time_left_tokens_hits_and_refusals() -> None:
    """All that somebody who reads the log wants to know."""
    assert line(progress()) == (
        "1,000 of 10,000 rows, 20.0 a second, about 7 min 30 s left, 123,456 tokens, 100 answers from the store, "
        "64 requests out, 3 times 429"
    )
    assert "left" not in line(progress(total=None))
    assert line(progress(waiting="requests per minute")).endswith("waiting: requests per minute")
    sent = progress(phase="uploading, 3 of 7 shards", concurrency=0)
    assert line(sent) == "uploading, 3 of 7 shards: 1,000 of 10,000 rows"
    assert "about 2 h 46 min left" in line(progress(rows=10, total=2_010, seconds=50.0))


def test_lines_come_every_half_minute(clock: FakeClock) -> None:
    """Progress comes four times a second."""
    written: list[str] = []
    lines = LogLines(written.append, clock=clock)
    for _ in range(400):
        clock.advance(0.25)
        lines(progress())
    assert len(written) == 3


def test_the_log_of_a_failure_counts_and_does_not_quote() -> None:
    """Kinds of errors, not texts."""
    assert failures(report()) == "lv: 8 completed, 2 failed (errors: 2 http_400)"
    assert "10 rows: 8 completed, 2 failed" in ending(report())
    assert ending(report(skipped_run=True)).startswith("nothing to do")


def test_a_manifest_is_small_fits_json_and_holds_no_text() -> None:
    """Numbers that JSON cannot hold become unknown."""
    made = manifest(report(cost=float("nan"), seconds=float("inf")), record={"address": "/x/report.json"})
    assert (made["cost"], made["seconds"]) == (None, None)
    text = json.dumps(made, allow_nan=False)
    assert "private" not in text
    assert set(event_extra(made)) == set(EXTRA)
    assert made["report"] == "/x/report.json"
    assert finite({"a": [1.0, float("-inf")], 2: (None,)}) == {"a": [1.0, None], "2": [None]}


@pytest.mark.parametrize(
    ("partition", "key"),
    [
        ({"day": "2026-01-31"}, "2026-01-31"),
        ({"a": "x/y", "b": "1,2"}, "a=x%2Fy/b=1%2C2"),
        ({"a": None, "b": "."}, "a=__HIVE_DEFAULT_PARTITION__/b=."),
        ({"a": "__HIVE_DEFAULT_PARTITION__", "b": "."}, "a=%5F_HIVE_DEFAULT_PARTITION__/b=."),
    ],
)
def test_the_key_of_a_partition_tells_partitions_apart(partition: Mapping[str, str | None], key: str) -> None:
    """Whatever characters its values hold."""
    assert key_of_partition(partition) == key


def test_the_address_of_a_page_is_escaped() -> None:
    """Runs have colons and plus signs in their names, and Dags may have dots."""
    path = report_path("my.dag", "manual__2026-01-31T00:00:00+00:00", "group.task", 3)
    assert path == "/corpusmill/report/my.dag/manual__2026-01-31T00%3A00%3A00%2B00%3A00/group.task/3"


def test_the_page_is_that_of_the_recorded_report_and_no_other(tmp_path: Path) -> None:
    """One that a later run replaced is not shown in its place, and no other file is shown at all."""
    from corpusmill.airflow.pages import drawn

    place = tmp_path / "_corpusmill" / "report.json"
    place.parent.mkdir()
    place.write_text(json.dumps(report().as_dict()), "utf-8")
    from corpusmill.tables.reports import read_report

    record = {"address": str(place), "sha256": read_report(str(place))[1]}
    page, status = drawn(record)
    assert status == 200
    assert "10 rows" in page
    place.write_text(json.dumps(report(rows=11).as_dict()), "utf-8")
    page, status = drawn(record)
    assert (status, "later run" in page) == (410, True)
    page, status = drawn({"address": "/etc/passwd", "sha256": "x"})
    assert status == 404
    assert "root:" not in page
    assert drawn({})[1] == 404
