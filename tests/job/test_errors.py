"""What is wrong with a job file is said in one line each: file, line, key, and the nearest right key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from corpusmill.errors import JobError
from corpusmill.job import Job, job_of, load_job, parse_job

if TYPE_CHECKING:
    from pathlib import Path

JOB = """\
source: in.parquet
sink: out
prompts:
  - translate:
      column: text
      into: lv
      to: lv
endpoint:
  openai_compatible:
    base_url: http://127.0.0.1:1/v1
    model: any
store: sqlite:///s.db
limits:
  concurrency: 4
"""


def changed(old: str, new: str, **environment: str) -> Job:
    """Parse the job with one change."""
    assert old in JOB
    return parse_job(JOB.replace(old, new, 1), name="job.yaml", environment=environment)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("limits:", "limit:", "13: the key 'limit' is not known; did you mean 'limits'?"),
        (
            "concurrency",
            "concurency",
            "14: the key 'concurency' is not known in limits; did you mean 'concurrency'?",
        ),
        (
            "concurrency: 4",
            "concurrency: 0",
            "14: limits.concurrency: input should be greater than or equal to 1",
        ),
        (
            "concurrency: 4",
            "concurrency: eight",
            "14: limits.concurrency: must be a whole number, and is 'eight'",
        ),
        ("concurrency: 4", "concurrency: 1.5", "14: limits.concurrency: must be a whole number, and is 1.5"),
        (
            "concurrency: 4",
            "patience: soon",
            "14: limits.patience: must be a duration: a number of seconds such as 90, or a text such as 90s, 15m or 2h",
        ),
        (
            "      to: lv",
            "      to: lv\n      temperature: hot",
            "8: prompts.0.translate.temperature: must be a number, and is 'hot'",
        ),
        (
            "store: sqlite:///s.db",
            "store: {refresh: [fail]}",
            "12: store.refresh.0: input should be 'completed', 'truncated', 'refused', 'filtered', 'invalid'",
        ),
        (
            "source: in.parquet",
            "source: {path: a, filter: [lang, '=', fr]}",
            '1: source.filter: must be a list of conditions; for one alone write [[lang, "=", …]]',
        ),
        (
            "source: in.parquet",
            "source: {path: a, filter: [lang, is null]}",
            '1: source.filter: must be a list of conditions; for one alone write [[lang, "is null"]]',
        ),
        (
            "concurrency: 4",
            "connect_timeout: -1",
            "13: limits: limits.connect_timeout is -1.0 s; it must be more",
        ),
        (
            "source: in.parquet",
            "source: {path: a, colums: [b]}",
            "1: the key 'colums' is not known in source; did you",
        ),
        ("source: in.parquet", "source: [a]", "1: source must be a text or a mapping"),
        ("source: in.parquet", "source:", "1: source must be a text or a mapping"),
        ("source: in.parquet", "source: {path: a, columns: b}", "1: source.columns must be a list"),
        ("source: in.parquet", "source: {path: a, rows: [1]}", "1: source.rows needs more than 1 value"),
        (
            "sink: out",
            "sink:\n  path: out\n  partion: {a: b}",
            "4: the key 'partion' is not known in sink; did you",
        ),
        (
            "sink: out",
            "sink:\n  path: out\n  rows_per_part: 0",
            "4: sink.rows_per_part: input should be greater",
        ),
        (
            "store: sqlite:///s.db",
            "store: {ulr: x}",
            "12: the key 'ulr' is not known in store; did you mean 'url'?",
        ),
        (
            "store: sqlite:///s.db",
            "store: {mode: write}",
            "12: store.mode: input should be 'read-write', 'read-only'",
        ),
        ("store: sqlite:///s.db", "store: [x]", "12: store must be a text or a mapping"),
        (
            "      to: lv",
            "      to: lv\n      tone: formal",
            "8: the key 'tone' is not known in prompts.0.translate",
        ),
        (
            "  - translate:",
            "  - translat:",
            "4: the key 'translat' is not known in prompts.0; did you mean 'translate'",
        ),
        ("  - translate:", "  - text\n  - translate:", "4: prompts.0 must be a mapping"),
        (
            "  - translate:",
            "  - answer: {question: {column: a, x: 1}, context: b, into: c}\n  - translate:",
            "4: the key 'x' is not known in prompts.0.answer.question; known are column",
        ),
        (
            "    model: any",
            "    model: any\n    headers: {a: [b]}",
            "12: endpoint.openai_compatible.headers.a must be a text",
        ),
        ("  openai_compatible:", "  openai:", "9: the key 'openai' is not known in endpoint"),
        ("    model: any", "    model: any\n  sambanova: {model: x}", "8: endpoint: exactly one of"),
        (
            "    model: any",
            "    model: any\n    capabilities: {json_shema: true}",
            "8: endpoint: capabilities has the unknown key 'json_shema'; did you mean 'json_schema'?",
        ),
        (
            "limits:",
            "retry: {backoff: -1}\nlimits:",
            "13: retry: retry.backoff is -1.0 s; it must be 0 or more",
        ),
        ("limits:", "retry: {deadline: 1x}\nlimits:", "13: retry.deadline: must be a duration: a number of"),
        (
            "limits:",
            "failures: {statuses: [fail]}\nlimits:",
            "13: failures: failures.statuses names 'fail'; known are",
        ),
        (
            "limits:",
            "failures: {max_failed: 5}\nlimits:",
            "13: failures.max_failed: must be a share of the rows, from 0 to 1, and not their number; for 5 % write",
        ),
        (
            "limits:",
            "failures: {max_failed: 2.5 %}\nlimits:",
            "13: failures.max_failed: must be a share of the rows, from 0 to 1: for 2.5 % write 0.025",
        ),
        (
            "limits:",
            "failures: {max_failed: 1000}\nlimits:",
            "13: failures.max_failed: must be a share of the rows, from 0 to 1, and not their number",
        ),
        (
            "limits:",
            "failures: {max_failed: few}\nlimits:",
            "13: failures.max_failed: must be a number, and is 'few'",
        ),
    ],
)
def test_one_thing_that_is_wrong_is_one_line(old: str, new: str, message: str) -> None:
    """At whatever depth, and also where a text might have stood instead of a mapping."""
    with pytest.raises(JobError) as raised:
        changed(old, new)
    assert str(raised.value).startswith(f"job.yaml:{message}")
    assert len(str(raised.value).splitlines()) == 1


def test_several_things_that_are_wrong_are_all_said() -> None:
    """A key that is missing and the one that was written instead."""
    with pytest.raises(JobError) as raised:
        changed("      to: lv", "      too: lv")
    assert str(raised.value).splitlines() == [
        "job.yaml:4: the key 'to' is missing in prompts.0.translate",
        "job.yaml:7: the key 'too' is not known in prompts.0.translate; did you mean 'to'?",
    ]


@pytest.mark.parametrize("text", ["", "- a", "text"])
def test_what_is_no_mapping_is_no_job(text: str) -> None:
    """The message says which keys a job has."""
    with pytest.raises(JobError, match="a job is a mapping with the keys source, sink, prompts and endpoint"):
        parse_job(text, environment={})


def test_the_values_of_wrong_keys_are_not_repeated() -> None:
    """They may be secrets."""
    with pytest.raises(JobError) as raised:
        changed("    model: any", "    model: any\n    api_kee: sk-canary\n    api_key: [sk-canary]")
    assert "canary" not in str(raised.value)


def test_a_variable_is_filled_in_wherever_it_stands_in_a_text() -> None:
    """Several in one text, beside literal ones; what is no reference stays."""
    job = changed("    model: any", '    model: "a${X}b${Y_2}$c{d}"', X="1", Y_2="2")
    assert job.endpoint.model == "a1b2$c{d}"


def test_what_a_variable_holds_is_never_yaml() -> None:
    """Braces, colons and further references in it are text."""
    value = 'no: {a: [b], "c": ${X}} # '
    assert changed("    model: any", "    model: ${X}", X=value).endpoint.model == value


def test_a_variable_may_be_a_number() -> None:
    """It is text, and read as a number where one is needed."""
    assert changed("concurrency: 4", "concurrency: ${N}", N="8").limits.concurrency == 8


def test_a_variable_that_is_not_set_is_named_with_its_line_and_place() -> None:
    """An empty one is set."""
    with pytest.raises(JobError) as raised:
        changed("    model: any", "    model: any\n    api_key: ${NOT_THERE}")
    assert str(raised.value) == (
        "job.yaml:12: endpoint.openai_compatible.api_key needs the environment variable NOT_THERE, which is not set"
    )
    with pytest.raises(JobError, match="model is ''"):
        changed("    model: any", "    model: ${X}", X="")


def test_values_from_elsewhere_are_checked_alike_without_lines() -> None:
    """As a component's YAML gives them."""
    with pytest.raises(JobError, match=r"^defs: the key 'sorce' is not known; did you mean 'source'\?"):
        job_of({**parse_job(JOB, environment={}).written, "sorce": "a"}, name="defs")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Whether it is missing, a folder, or not UTF-8."""
    (tmp_path / "latin.yaml").write_bytes("source: \xe4".encode("latin-1"))
    for name in ("missing.yaml", "latin.yaml", "."):
        with pytest.raises(JobError, match="cannot be read"):
            load_job(tmp_path / name)


def test_a_word_that_is_none_of_those_known_is_quoted_with_the_nearest() -> None:
    """After those that are known."""
    with pytest.raises(
        JobError, match=r"'replay', 'refresh' or 'off', and is 'readonly'; did you mean 'read-only'\?$"
    ):
        changed("store: sqlite:///s.db", "store: {mode: readonly}")
    with pytest.raises(JobError, match=r"15m or 2h, and is 'soon'$"):
        changed("concurrency: 4", "patience: soon")


def test_what_is_quoted_is_what_stands_in_the_file(tmp_path: Path) -> None:
    """What a variable holds may be a secret, wherever it was put; what an endpoint takes may be one as it stands."""
    with pytest.raises(JobError, match=r"and is '\$\{RATE\}'$") as caught:
        changed("concurrency: 4", "concurrency: ${RATE}", RATE="hush-hush")
    assert "hush-hush" not in str(caught.value)
    with pytest.raises(JobError, match=r"context_tokens: must be a whole number$"):
        changed("    model: any", "    model: any\n    context_tokens: hush-hush")
    with pytest.raises(JobError) as filtered:
        changed(
            "source: in.parquet",
            "source: {path: a, filter: [lang, '=', '${LANG_OF_MINE}']}",
            LANG_OF_MINE="hush",
        )
    assert "hush" not in str(filtered.value)
