"""A job as an asset: what it tells, what it costs the second time, what its checks see, how it fails."""

from __future__ import annotations

import datetime as dt
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import dataset as pads

from corpusmill import Ask, SinkSpec, SourceSpec, read
from corpusmill.dagster import Dimension, OpenAICompatibleResource, Rule, StoreResource, enriched_asset
from corpusmill.dagster.assets import source_key
from corpusmill.dagster.failures import verdict_on
from corpusmill.dagster.metadata import escaped
from corpusmill.dagster.quality import RULES, rules_of, tally
from corpusmill.errors import (
    AuthenticationError,
    ComeBackLaterError,
    CountsError,
    EndpointDownError,
    SinkError,
    SinkHeldError,
    SourceError,
    SourceUnreachableError,
    UsageError,
)
from corpusmill.job import Job
from corpusmill.prompts.translate import Translate
from corpusmill.report import LATENCY_BOUNDS

if TYPE_CHECKING:
    from tests.dagster.conftest import Runs

    from corpusmill.prompts.prompt import Prompt
    from corpusmill.testing import FakeEndpoint


def test_an_asset_tells_its_schema_its_lineage_and_its_counts(job: dict[str, Any], runs: Runs) -> None:
    """One materialisation says which columns there are, where each comes from, and what the run did."""
    job["prompts"].append({"ask": {"template": "Topic of {text} in {lang}?", "into": "topic"}})
    job["prices"] = {"prompt": 1.0, "completion": 2.0}
    result = runs.materialise(enriched_asset("translated", job))
    assert result.success
    told = runs.told(result, "translated")
    assert [column.name for column in told["dagster/column_schema"].columns] == [
        *("id", "lang", "day", "text", "latvian", "latvian_outcome", "topic", "topic_outcome")
    ]
    lineage = told["dagster/column_lineage"].deps_by_column
    source = lineage["id"][0].asset_key
    assert {name: sorted(dep.column_name for dep in deps) for name, deps in lineage.items()} == {
        **{name: [name] for name in ("id", "lang", "day", "text")},
        **{name: ["text"] for name in ("latvian", "latvian_outcome")},
        **{name: ["lang", "text"] for name in ("topic", "topic_outcome")},
    }
    assert {dep.asset_key for deps in lineage.values() for dep in deps} == {source}
    assert told["dagster/row_count"] == 6
    assert told["corpusmill/outcome/completed"] == 11
    assert told["corpusmill/outcome/skipped"] == 1
    assert told["corpusmill/answers/live"] == 11
    assert told["corpusmill/answers/hit_share"] == 0.0
    assert told["corpusmill/cost_usd"] > 0
    assert told["corpusmill/latency/median_seconds"] in LATENCY_BOUNDS
    assert told["corpusmill/rows_per_second"] > 0
    assert Path(told["corpusmill/report"]).is_file()
    assert "passed through" in told["corpusmill/lineage"]
    assert all(math.isfinite(value) for value in told.values() if isinstance(value, float))
    assert {check.check_name for check in result.get_asset_check_evaluations() if check.passed} == {
        *("failed_rows", "truncated_rows", "blank_outputs", "untranslated_copies", "structure_kept", "schema")
    }


def test_what_lies_in_an_object_store_is_told_by_its_url(
    job: dict[str, Any], runs: Runs, bucket: str
) -> None:
    """The output and the page of its report, each as another tool would open it."""
    job["sink"] = f"{bucket}/translated"
    told = runs.told(runs.materialise(enriched_asset("translated", job)), "translated")
    assert told["dagster/uri"] == job["sink"]
    assert told["corpusmill/report"] == f"{job['sink']}/_corpusmill/report.html"


def test_the_graph_holds_the_source_and_the_code_version_follows_the_prompt(job: dict[str, Any]) -> None:
    """The source is a spec of its own, and another prompt, model or glossary is another code version."""
    graph = enriched_asset("translated", job).resolve_asset_graph()
    (source,) = graph.get(dg.AssetKey("translated")).parent_keys
    assert source.path[-1] == "corpus"
    assert "dagster/uri" in graph.get(source).metadata

    def version(**changes: Any) -> str | None:
        changed = enriched_asset("translated", {**job, **changes}).resolve_asset_graph()
        return changed.get(dg.AssetKey("translated")).code_version

    def translation(**fields: Any) -> list[dict[str, Any]]:
        return [{"translate": {"column": "text", "into": "latvian", "to": "lv", **fields}}]

    endpoint = {"openai_compatible": {**job["endpoint"]["openai_compatible"], "model": "other"}}
    versions = [
        version(),
        version(prompts=translation(to="lt")),
        version(prompts=translation(top_p=0.5)),
        version(prompts=translation(glossary={"sea": "jūra"})),
        version(endpoint=endpoint),
    ]
    assert len(set(versions)) == len(versions)
    assert version(limits={"concurrency": 3}, store="sqlite:///elsewhere.db") == versions[0]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("s3://${BUCKET}/raw/corpus.parquet", ["raw", "corpus"]),
        ("raw/day=*/${DAY}/*.parquet", ["raw"]),
        ("raw/$${name}/corpus.parquet", ["name", "corpus"]),
    ],
)
def test_a_source_is_called_after_its_path_without_what_varies(path: str, key: list[str]) -> None:
    """Wildcards and variables are no names; a folder that is only written like a variable has one."""
    assert source_key(path) == dg.AssetKey(key)


def test_a_second_materialisation_asks_nothing_and_has_the_same_version(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """Unchanged inputs are skipped by the run key; the data version is that of the bytes, which are the same."""
    definitions = enriched_asset("translated", job)
    first = runs.events(runs.materialise(definitions), "translated")[None]
    asked = endpoint.stats().requests
    again = runs.materialise(definitions)
    second = runs.events(again, "translated")[None]
    assert endpoint.stats().requests == asked
    assert (first.tags or {})["dagster/data_version"] == (second.tags or {})["dagster/data_version"]
    told = runs.told(again, "translated")
    assert told["corpusmill/skipped_run"] is True
    assert told["corpusmill/answers/cached"] == 5
    assert told["corpusmill/tokens/completion"] == 0
    assert told["corpusmill/cost_usd"] == 0
    assert all(check.passed for check in again.get_asset_check_evaluations())


def test_new_code_replaces_the_assets_own_output_and_nothing_elses(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """After a change of the prompt the output is rebuilt; an output of another job is refused."""
    assert runs.materialise(enriched_asset("translated", job)).success
    changed = {**job, "prompts": [{"translate": {"column": "text", "into": "latvian", "to": "lt"}}]}
    assert runs.materialise(enriched_asset("translated", changed)).success
    result = runs.materialise(enriched_asset("another", job))
    assert not result.success
    description, _ = runs.failure(result)
    assert "holds the output of another job" in description
    assert runs.materialise(enriched_asset("another", job, overwrite=True)).success


def test_a_corpus_that_the_command_line_has_enriched_costs_nothing(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    """The same job run by the command line: no request is made, and in another sink all comes from the store."""
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job), "utf-8")
    command = [sys.executable, "-m", "corpusmill", "run", str(path), "--quiet"]
    subprocess.run(command, check=True, timeout=100)
    asked = endpoint.stats().requests
    assert asked == 5
    told = runs.told(runs.materialise(enriched_asset("translated", path)), "translated")
    assert told["corpusmill/skipped_run"] is True
    elsewhere = enriched_asset("elsewhere", {**job, "sink": str(tmp_path / "elsewhere")})
    told = runs.told(runs.materialise(elsewhere), "elsewhere")
    assert (told["corpusmill/answers/cached"], told["corpusmill/answers/live"]) == (5, 0)
    assert endpoint.stats().requests == asked


def test_faults_of_rows_are_data_and_the_checks_see_them(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """Cut and refused answers are counted; a blocking check keeps what is downstream from running."""
    endpoint.configure(faults={"overflow": 0.3, "length": 0.3}, seed=4)
    job |= {"failures": {"max_failed": 1.0}, "retry": {"attempts": 2, "backoff": 0.001}}
    job["prompts"][0]["translate"]["max_tokens"] = 50
    ran = []

    @dg.asset(deps=["translated"])
    def after() -> None:
        ran.append("after")

    upstream = enriched_asset("translated", job, checks={"failed_rows": Rule(blocking=True), "schema": False})
    result = runs.materialise(dg.Definitions.merge(upstream, dg.Definitions(assets=[after])))
    checks = {check.check_name: check for check in result.get_asset_check_evaluations()}
    outcomes = read(job["sink"]).to_table().column("latvian_outcome").to_pylist()
    statuses = [outcome["status"] for outcome in outcomes if outcome is not None]
    assert statuses.count("failed") > 0
    assert statuses.count("truncated") > 0
    assert checks["failed_rows"].metadata["latvian/rows"].value == statuses.count("failed")
    assert checks["truncated_rows"].metadata["latvian/rows"].value == statuses.count("truncated")
    assert not checks["failed_rows"].passed
    assert not checks["truncated_rows"].passed
    assert checks["truncated_rows"].severity == dg.AssetCheckSeverity.WARN
    assert "schema" not in checks
    assert not ran


def test_blank_outputs_copies_and_lost_lines_are_counted() -> None:
    """Each check counts completed rows of its kind, by what the columns hold, and of translations only."""
    outcomes = [
        {"status": "completed", "notes": ["untranslated"]},
        {"status": "completed", "notes": ["lines 2→1", "untranslated 1 lines"]},
        {"status": "completed", "notes": ["placeholder_missing {name}"]},
        {"status": "completed", "notes": None},
        {"status": "failed", "notes": ["lines 2→1"]},
        {"status": "skipped", "notes": []},
    ]
    values = ["one", " ", "three", None, None, None]
    columns = {"t": values, "t_outcome": outcomes, "a": values, "a_outcome": outcomes}
    prompts: list[Prompt] = [Translate("text", "t", to="lv"), Ask("{text}", into="a")]
    counted = {
        each.into: {name: each.counted(name) for name in RULES if name != "schema"}
        for each in tally(pads.dataset(pa.table(columns)), prompts)
    }
    assert counted["t"] == {
        "failed_rows": (5, 1),
        "truncated_rows": (5, 0),
        "blank_outputs": (4, 2),
        "untranslated_copies": (4, 2),
        "structure_kept": (4, 2),
    }
    assert counted["a"]["untranslated_copies"] == (0, 2)
    assert "untranslated_copies" not in rules_of({}, prompts[1:])
    with pytest.raises(UsageError, match="no check is called typo"):
        rules_of({"typo": False}, prompts)


def test_one_bad_share_of_rows_fails_the_run_and_says_where_they_are(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """More failures than are allowed commit nothing; the failure names the file that lists them."""
    endpoint.configure(faults={"overflow": 1.0})
    result = runs.materialise(enriched_asset("translated", job))
    description, told = runs.failure(result)
    assert "failed.jsonl" in description
    assert told["corpusmill/rows_read"] == 6
    assert told["corpusmill/report"] == f"{job['sink']}.failed.report.html"
    assert "ended early, nothing committed" in Path(told["corpusmill/report"]).read_text("utf-8")
    assert not Path(job["sink"]).exists()


def test_a_wrong_key_fails_at_once_says_what_to_do_and_shows_no_key(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """A wrong key is not tried again, whatever the asset's retry policy says."""
    endpoint.configure(faults={"401": 1.0})
    del job["endpoint"]
    resource = OpenAICompatibleResource(base_url=endpoint.base_url, model="any", api_key="sk-very-secret-key")
    definitions = enriched_asset(
        "translated", job, endpoint_resource="llm", retry_policy=dg.RetryPolicy(max_retries=3)
    )
    result = runs.materialise(definitions, resources={"llm": resource})
    description, _ = runs.failure(result)
    assert "Check the key" in description
    assert not [event for event in result.all_events if event.event_type_value == "STEP_UP_FOR_RETRY"]
    logged = "".join(str(record) for record in runs.instance.all_logs(result.run_id))
    assert "very-secret" not in logged
    assert "very-secret" not in repr(resource)


def test_resources_are_shared_and_take_the_place_of_what_a_job_says(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    """Two assets that ask the same of one resource and one store pay once."""
    del job["endpoint"], job["store"]
    names: dict[str, Any] = {"endpoint_resource": "llm", "store_resource": "answers", "endpoint_model": "one"}
    definitions = dg.Definitions.merge(
        enriched_asset("one", job, **names),
        enriched_asset("two", {**job, "sink": f"{job['sink']}-2"}, **names),
    )
    resources = {
        "llm": OpenAICompatibleResource(base_url=endpoint.base_url),
        "answers": StoreResource(url=f"sqlite:///{tmp_path / 'shared.db'}"),
    }
    result = runs.materialise(definitions, resources=resources)
    assert result.success
    assert endpoint.stats().computed == 5
    assert runs.told(result, "two")["corpusmill/model"] == "one"
    with pytest.raises(UsageError, match="names an endpoint"):
        enriched_asset("both", {**job, "endpoint": {"sambanova": {"model": "m"}}}, endpoint_resource="llm")
    with pytest.raises(UsageError, match="no model is named"):
        OpenAICompatibleResource(base_url=endpoint.base_url).endpoint()


def test_a_job_object_is_a_job_too(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    """Python objects make an asset as a file does, whole or by a function of the partition's keys."""
    from corpusmill import OpenAICompatible

    made = Job(
        source=SourceSpec(path=job["source"]),
        sink=SinkSpec(path=tmp_path / "asked"),
        prompts=(Ask("Topic of {text}?", into="topic"),),
        endpoint=OpenAICompatible(endpoint.base_url, "any"),
        store=job["store"],
    )
    assert runs.materialise(enriched_asset("asked", made)).success
    languages = Dimension(definition=dg.StaticPartitionsDefinition(["en", "de"]), column="lang")

    def in_language(keys: dict[str, str]) -> Job:
        return replace(
            made,
            sink=SinkSpec(path=tmp_path / "by_lang"),
            prompts=(Ask(f"Topic of {{text}} ({keys['lang']})?", into="topic"),),
        )

    result = runs.materialise(
        enriched_asset("asked", in_language, partitions={"lang": languages}), partition="de"
    )
    assert result.success
    assert read(tmp_path / "by_lang", partition={"lang": "de"}).count_rows() == 2


def test_a_preview_is_escaped_and_can_be_switched_off(job: dict[str, Any], runs: Runs, corpus: Path) -> None:
    """Markup of a row is text in the preview, and without a preview no text of a row is in the metadata."""
    pq.write_table(pa.table({"text": ["| <script>alert(1)</script>\n# [x](y)"]}), corpus)
    told = runs.told(runs.materialise(enriched_asset("translated", job)), "translated")
    lines = told["corpusmill/preview"].splitlines()
    assert len(lines) == 3
    assert "<script>" not in told["corpusmill/preview"]
    assert "&#60;script&#62;" in lines[2]
    off = runs.materialise(enriched_asset("translated", job, preview_rows=0))
    assert "alert" not in str(runs.told(off, "translated"))


def test_cells_are_cut_flattened_and_harmless() -> None:
    """A cell is one line of bounded length, without control characters and without markup."""
    assert escaped("a\n\tb\x00 c") == "a b c"
    assert escaped("x" * 1_000).endswith("…")
    assert escaped("*_`|") == "&#42;&#95;&#96;&#124;"


def test_a_quota_that_resets_soon_is_waited_for_and_one_that_resets_later_fails() -> None:
    """Up to ten minutes the step asks to be tried again; beyond, or after many waits, it says when."""
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    soon = ComeBackLaterError("used up", resets_at=now + dt.timedelta(minutes=9))
    later = ComeBackLaterError("used up", resets_at=now + dt.timedelta(minutes=11))
    assert verdict_on(soon, now=now, waits=0).wait == pytest.approx(541)
    assert verdict_on(soon, now=now, waits=20).wait is None
    verdict = verdict_on(later, now=now, waits=0)
    assert (verdict.wait, verdict.again, verdict.resets_at) == (None, False, later.resets_at)
    assert verdict_on(ComeBackLaterError("used up"), now=now, waits=0).resets_at is None
    assert not verdict_on(AuthenticationError("no"), now=now, waits=0).again
    assert verdict_on(EndpointDownError("down"), now=now, waits=0).again
    assert verdict_on(SourceUnreachableError("no network"), now=now, waits=0).again
    assert not verdict_on(SourceError("no such file"), now=now, waits=0).again
    assert verdict_on(SinkHeldError("held"), now=now, waits=0).again
    assert not verdict_on(CountsError("do not add up"), now=now, waits=0).again
    assert not verdict_on(SinkError("of another job"), now=now, waits=0).again


def test_lineage_knows_columns_that_are_not_kept_and_names_with_dots(
    job: dict[str, Any], runs: Runs, corpus: Path
) -> None:
    """A prompt may read a field of a struct, or a column that the output leaves out; the source names both."""
    pq.write_table(pa.table({"doc": [{"body": "one"}], "title.short": ["two"], "id": [1]}), corpus)
    job["sink"] = {"path": job["sink"], "columns": ["id"]}
    job["prompts"] = [{"ask": {"template": "{doc.body} {title.short}", "into": "topic"}}]
    lineage = runs.told(runs.materialise(enriched_asset("asked", job)), "asked")["dagster/column_lineage"]
    assert {dep.column_name for dep in lineage.deps_by_column["topic"]} == {"doc", "title.short"}


def test_columns_of_any_name_are_read_filled_and_told(
    job: dict[str, Any], runs: Runs, corpus: Path, endpoint: FakeEndpoint
) -> None:
    """In the filter of a partition, in prompts and in the lineage, which has the names of the table."""
    written = "gro\u0308\u00dfe"
    pq.write_table(
        pa.table(
            {"Text Body (orig.)": ["one", "two"], written: ["s", "l"], "2024": ["x", "y"], "a.b": ["c", "d"]}
        ),
        corpus,
    )
    job["source"] = {"path": str(corpus)}
    job["sink"] = {"path": job["sink"], "columns": ["2024", "gr\u00f6\u00dfe"]}
    job["prompts"] = [
        {"ask": {"template": "{column:Text Body (orig.)} {gr\u00f6\u00dfe} {a.b}", "into": "topic.b |"}},
        {"translate": {"column": "Text Body (orig.)", "into": "Latvian?", "to": "lv", "vary_by": "2024"}},
    ]
    sizes = Dimension(definition=dg.StaticPartitionsDefinition(["s", "l"]), column="größe", hive="Size (cm)")
    asset = enriched_asset("asked", job, partitions={"size": sizes})
    result = runs.materialise(asset, partition="s")
    assert result.success
    assert endpoint.stats().requests == 2
    told: Any = runs.events(result, "asked")["s"].metadata
    lineage = told["dagster/column_lineage"].value.deps_by_column
    assert {dep.column_name for dep in lineage["topic.b |"]} == {"Text Body (orig.)", written, "a.b"}
    assert {dep.column_name for dep in lineage["Latvian?"]} == {"Text Body (orig.)", "2024"}
    assert [dep.column_name for dep in lineage[written]] == [written]
