"""Partitions: which rows and which folder a key stands for, and runs over many of them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill import read
from corpusmill.dagster import Dimension, enriched_asset
from corpusmill.dagster.partitions import conditions_of, first_keys, keys_of, partitions_definition, variables
from corpusmill.errors import JobError, UsageError

if TYPE_CHECKING:
    from tests.dagster.conftest import Runs

    from corpusmill.testing import FakeEndpoint

TARGETS = dg.StaticPartitionsDefinition(["lv", "lt", "et"])
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-03")


def test_a_key_is_a_value_of_the_prompt_and_a_folder_of_the_sink(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """The target language is the partition: each key has its own translation, in its own hive folder."""
    job["prompts"][0]["translate"]["to"] = "${PARTITION_LANG}"
    definitions = enriched_asset(
        "translated", job, partitions={"lang": Dimension(definition=TARGETS, hive="to")}
    )
    assert runs.materialise(definitions, partition="lt").success
    assert read(job["sink"], partition={"to": "lt"}).count_rows() == 6
    assert not (Path(job["sink"]) / "to=lv").exists()


def test_a_run_over_many_partitions_tells_of_each(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """Every partition of a single run has its own event, row count and data version; again, it costs nothing."""
    days = {"day": Dimension(definition=DAYS, column="day")}
    job["sink"] = {"path": job["sink"], "columns": ["id", "text"]}
    definitions = enriched_asset("translated", job, partitions=days)
    first = runs.materialise(definitions, span=("2026-01-01", "2026-01-02"))
    events = runs.events(first, "translated")
    assert {key: event.metadata["dagster/partition_row_count"].value for key, event in events.items()} == {
        "2026-01-01": 3,
        "2026-01-02": 3,
    }
    versions = [(event.tags or {})["dagster/data_version"] for event in events.values()]
    assert len(set(versions)) == 2
    asked = endpoint.stats().requests
    again = runs.materialise(definitions, span=("2026-01-01", "2026-01-02"))
    assert endpoint.stats().requests == asked
    repeated = runs.events(again, "translated").values()
    assert [(event.tags or {})["dagster/data_version"] for event in repeated] == versions
    (check,) = [each for each in again.get_asset_check_evaluations() if each.check_name == "failed_rows"]
    assert check.metadata["latvian/of"].value == 5


def test_one_bad_partition_fails_the_run_and_leaves_the_others_done(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """The partitions before and after the bad one are materialised; the failure names the bad one."""
    endpoint.configure(faults=None)
    pq.write_table(pa.table({"lang": ["lv", "et"], "text": ["one", "two"]}), job["source"])
    bad = dg.StaticPartitionsDefinition(["lv", "xx-none", "et"])
    job["prompts"][0]["translate"]["to"] = "lv"
    job["source"] = {"path": job["source"]}
    definitions = enriched_asset("translated", job, partitions={"lang": Dimension(definition=bad)})
    (Path(job["sink"]) / "lang=xx-none").mkdir(parents=True)
    (Path(job["sink"]) / "lang=xx-none" / "notes.txt").write_text("mine", "utf-8")
    result = runs.materialise(definitions, span=("lv", "et"))
    assert not result.success
    assert set(runs.events(result, "translated")) == {"lv", "et"}
    description, told = runs.failure(result)
    assert "1 of 3 partitions failed" in description
    assert told["corpusmill/failed_partitions"] == ["xx-none"]
    assert "corpusmill/reports" not in told


def test_each_partition_whose_rows_failed_has_a_report_that_the_failure_names(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """By the key of the partition; those that are done are not among them."""
    endpoint.script(lambda request, _attempt: "400" if "ruhig" in str(request["messages"]) else None)
    job["sink"] = {"path": job["sink"], "columns": ["text"]}
    langs = dg.StaticPartitionsDefinition(["de", "en"])
    definitions = enriched_asset(
        "translated", job, partitions={"lang": Dimension(definition=langs, column="lang")}
    )
    result = runs.materialise(definitions, span=("de", "en"))
    assert set(runs.events(result, "translated")) == {"en"}
    page = Path(job["sink"]["path"]) / "_lang=de.failed.report.html"
    assert runs.failure(result)[1]["corpusmill/reports"] == {"de": str(page)}
    assert "ended early, nothing committed" in page.read_text("utf-8")


def test_an_endpoint_that_refuses_the_key_ends_a_run_over_many_partitions_at_once(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """What concerns the endpoint is not tried partition by partition."""
    endpoint.configure(faults={"401": 1.0})
    definitions = enriched_asset("translated", job, partitions={"lang": Dimension(definition=TARGETS)})
    result = runs.materialise(definitions, span=("lv", "et"))
    assert "Check the key" in runs.failure(result)[0]
    assert endpoint.stats().requests <= 6


def test_an_asset_downstream_runs_after_a_run_over_many_partitions(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """A backfill of two assets in one run reaches the second, and each partition keeps its own data version."""
    job["prompts"][0]["translate"]["to"] = "${PARTITION}"
    ran = []

    @dg.asset(deps=["translated"], partitions_def=TARGETS, backfill_policy=dg.BackfillPolicy.single_run())
    def after() -> None:
        ran.append("after")

    upstream = enriched_asset("translated", job, partitions={"lang": Dimension(definition=TARGETS)})
    result = runs.materialise(
        dg.Definitions.merge(upstream, dg.Definitions(assets=[after])), span=("lv", "et")
    )
    assert result.success
    assert ran == ["after"]
    events = runs.events(result, "translated")
    assert len({(event.tags or {})["dagster/data_version"] for event in events.values()}) == 3
    assert all("dagster/partition_row_count" in event.metadata for event in events.values())


def test_two_dimensions_narrow_the_source_and_nest_the_folders(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """A day of the source by a target language of the prompt."""
    job["prompts"][0]["translate"]["to"] = "${PARTITION_LANG}"
    job["sink"] = {"path": job["sink"], "columns": ["id", "text"]}
    both = {"day": Dimension(definition=DAYS, column="day"), "lang": Dimension(definition=TARGETS)}
    result = runs.materialise(enriched_asset("translated", job, partitions=both), partition="2026-01-02|lt")
    assert result.success
    assert read(job["sink"]["path"], partition={"day": "2026-01-02", "lang": "lt"}).count_rows() == 3
    (event,) = runs.events(result, "translated").values()
    assert isinstance(event.partition, dg.MultiPartitionKey)
    definition = partitions_definition(both)
    assert isinstance(definition, dg.MultiPartitionsDefinition)
    key = dg.MultiPartitionKey({"day": "2026-01-01", "lang": "et"})
    assert keys_of(both, key) == keys_of(both, str(key)) == {"day": "2026-01-01", "lang": "et"}
    assert variables(keys_of(both, key)) == {
        "PARTITION": "2026-01-01|et",
        "PARTITION_DAY": "2026-01-01",
        "PARTITION_LANG": "et",
    }


def test_dynamic_partitions_have_their_keys_when_they_run(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """Keys with slashes and dots have folders of their own; before any key exists the job is taken on trust."""
    dynamic = {"source": Dimension(definition=dg.DynamicPartitionsDefinition(name="sources"), column="lang")}
    assert first_keys(dynamic) is None
    table = pa.table({"lang": ["a/b", "..", "a/b"], "text": ["one", "two", "three"]})
    pq.write_table(table, job["source"])
    job["sink"] = {"path": job["sink"], "columns": ["text"]}
    definitions = enriched_asset("translated", job, partitions=dynamic)
    runs.instance.add_dynamic_partitions("sources", ["a/b", ".."])
    for key, rows in (("a/b", 2), ("..", 1)):
        assert runs.materialise(definitions, partition=key).success
        assert read(job["sink"]["path"], partition={"source": key}).count_rows() == rows
    assert {path.parent for path in Path(job["sink"]["path"]).glob("*/*.parquet")} == set(
        Path(job["sink"]["path"]).glob("source=*")
    )


def test_a_job_file_that_is_not_there_is_named_before_any_key_exists(tmp_path: Path) -> None:
    """By the message of a job file, not by Python's own."""
    dynamic = {"source": Dimension(definition=dg.DynamicPartitionsDefinition(name="sources"))}
    with pytest.raises(JobError, match=r"missing\.yaml: the job file cannot be read \(No such file"):
        enriched_asset("translated", tmp_path / "missing.yaml", partitions=dynamic)


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (pa.string(), [["day", "=", "2026-01-02"]]),
        (pa.dictionary(pa.int32(), pa.string()), [["day", "=", "2026-01-02"]]),
        (pa.date32(), [["day", ">=", dt.date(2026, 1, 2)], ["day", "<", dt.date(2026, 1, 3)]]),
        (
            pa.timestamp("us"),
            [["day", ">=", dt.datetime(2026, 1, 2)], ["day", "<", dt.datetime(2026, 1, 3)]],  # noqa: DTZ001
        ),
        (
            pa.timestamp("us", "UTC"),
            [
                ["day", ">=", dt.datetime(2026, 1, 2, tzinfo=dt.UTC)],
                ["day", "<", dt.datetime(2026, 1, 3, tzinfo=dt.UTC)],
            ],
        ),
    ],
)
def test_a_window_of_time_is_a_filter_that_fits_the_column(type_: pa.DataType, expected: list[Any]) -> None:
    """Texts hold the key, dates and moments lie in the window: start inclusive, end exclusive."""
    assert conditions_of(Dimension(definition=DAYS, column="day"), "2026-01-02", type_) == expected


def test_an_hour_is_no_whole_day_and_a_word_no_number() -> None:
    """A key that cannot be compared with its column is refused."""
    hours = Dimension(definition=dg.HourlyPartitionsDefinition("2026-01-01-00:00"), column="day")
    with pytest.raises(UsageError, match="whole days"):
        conditions_of(hours, "2026-01-01-05:00", pa.date32())
    with pytest.raises(UsageError, match="is no number"):
        conditions_of(Dimension(definition=TARGETS, column="n"), "lv", pa.int64())
    assert conditions_of(Dimension(definition=TARGETS, column="n"), "7", pa.int64()) == [["n", "=", 7]]


def test_three_dimensions_and_a_key_that_is_set_twice_are_refused(job: dict[str, Any], runs: Runs) -> None:
    """Dagster allows two dimensions; a folder's key comes from one place."""
    with pytest.raises(UsageError, match="Dagster allows two"):
        partitions_definition({name: Dimension(definition=TARGETS) for name in ("a", "b", "c")})
    with pytest.raises(UsageError, match="must be a word"):
        partitions_definition({"target language": Dimension(definition=TARGETS)})
    job["sink"] = {"path": job["sink"], "partition": {"lang": "lv"}}
    definitions = enriched_asset("twice", job, partitions={"lang": Dimension(definition=TARGETS)})
    assert "both set lang" in runs.failure(runs.materialise(definitions, partition="lv"))[0]
