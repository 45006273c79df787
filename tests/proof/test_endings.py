"""How a run of the command line ends: with which code, which words, and what is kept."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.proof.material import answer_to, rows_of, table

from corpusmill.testing import FakeEndpoint, Fault, Latency

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.proof.warm import Child, Warm

ROWS = 200


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., str]:
    """Write a corpus once, and a job file for it each time."""
    pq.write_table(table(ROWS), tmp_path / "corpus.parquet")

    def write(asked: FakeEndpoint | str, /, **changes: Any) -> str:
        base_url = asked if isinstance(asked, str) else asked.base_url
        content = {
            "source": str(tmp_path / "corpus.parquet"),
            "sink": str(tmp_path / "out"),
            "prompts": [{"ask": {"template": "Name the topic of: {text}", "into": "topic"}}],
            "endpoint": {"openai_compatible": {"base_url": base_url, "model": "any"}},
            "store": f"sqlite:///{tmp_path / 'store.db'}",
            "limits": {"concurrency": 8},
            **changes,
        }
        path = tmp_path / "job.json"
        path.write_text(json.dumps(content), "utf-8")
        return str(path)

    return write


def after(number: int, then: Callable[[], object]) -> Callable[[Mapping[str, Any], int], None]:
    """Make a script that calls something when so many requests have come in."""
    seen = 0

    def script(_request: Mapping[str, Any], _attempt: int) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            then()

    return script


def test_a_used_up_quota_ends_with_3_and_the_time_and_the_next_run_asks_once(
    tmp_path: Path, warm: Warm, endpoint: FakeEndpoint, job: Callable[..., str]
) -> None:
    """What was answered before is kept; when the quota is back, the same command comes to the end."""
    seen = 0

    def script(_request: Mapping[str, Any], _attempt: int) -> Fault | None:
        nonlocal seen
        seen += 1
        return Fault("quota", headers={"retry-after": "7200"}) if seen > 50 else None

    endpoint.script(script)
    path = job(endpoint)
    before = datetime.now(UTC)
    ended = warm.run("run", path, "--json", "--quiet")
    assert ended.code == 3, ended.err
    assert f"{before:%Y-}" in ended.err
    assert "UTC" in ended.err
    assert "Traceback" not in ended.err
    asked = endpoint.stats(details=False)
    assert asked.computed == 50
    assert asked.requests <= 50 + 8
    again = warm.run("run", path, "--quiet")
    assert again.code == 3
    assert "UTC" in again.err
    assert endpoint.stats(details=False).requests <= asked.requests + 1
    endpoint.script(None)
    other = job(endpoint, store=f"sqlite:///{tmp_path / 'other.db'}")
    assert warm.run("run", other, "--quiet").code == 0


def test_a_quota_that_is_back_is_forgotten_with_the_first_answer(
    tmp_path: Path, warm: Warm, endpoint: FakeEndpoint, job: Callable[..., str]
) -> None:
    """It said two seconds; the next command goes on where the first one stopped."""
    seen = 0

    def script(_request: Mapping[str, Any], _attempt: int) -> Fault | None:
        nonlocal seen
        seen += 1
        return Fault("quota", headers={"retry-after": "1"}) if seen == 100 else None

    endpoint.script(script)
    path = job(endpoint)
    assert warm.run("run", path, "--quiet").code == 3
    ended = warm.run("run", path, "--json", "--quiet")
    while ended.code == 3:
        ended = warm.run("run", path, "--json", "--quiet")
    assert ended.code == 0, ended.err
    assert endpoint.stats(details=False).computed_again == 0
    assert len(rows_of(tmp_path / "out")) == ROWS


@pytest.mark.parametrize(
    ("kind", "words"),
    [("401", "key"), ("403", "key"), ("404_model", "any"), ("410", "any"), ("402", "quota")],
)
def test_what_is_wrong_for_all_rows_ends_the_run_at_the_first_answer(
    warm: Warm, endpoint: FakeEndpoint, job: Callable[..., str], kind: str, words: str
) -> None:
    """Not after as many requests as there are rows; one message names what to look at."""
    endpoint.script(lambda _request, _attempt: kind)
    ended = warm.run("run", job(endpoint), "--quiet")
    assert ended.code == (3 if kind == "402" else 1)
    assert endpoint.stats(details=False).requests == 1
    assert len(ended.err.strip().splitlines()) == 1
    assert words in ended.err


@pytest.mark.parametrize("kind", ["reply", "empty_answer", "200_error"])
def test_an_endpoint_that_is_none_ends_the_run_early_with_one_message(
    warm: Warm, endpoint: FakeEndpoint, job: Callable[..., str], kind: str
) -> None:
    """A wrong URL answers 200 to everything; the message names the URL that was called."""
    junk = Fault("reply", body="Not found. Try /v2.", headers={"content-type": "text/plain"})
    endpoint.script(lambda _request, _attempt: junk if kind == "reply" else kind)
    path = job(endpoint, retry={"attempts": 2, "backoff": 0.001, "backoff_max": 0.002})
    ended = warm.run("run", path, "--quiet")
    assert ended.code == 1
    assert len(ended.err.strip().splitlines()) == 1
    assert endpoint.base_url in ended.err
    assert endpoint.stats(details=False).requests < ROWS


def test_an_endpoint_that_stays_down_ends_the_run_after_the_patience_and_costs_few_requests(
    warm: Warm, job: Callable[..., str]
) -> None:
    """Nobody listens there; after the patience the run says so, resumable."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        ended = warm.run(
            "run",
            job(f"http://127.0.0.1:{port}/v1", limits={"concurrency": 8, "patience": "1500ms"}),
            "--json",
            "--quiet",
        )
    assert ended.code == 1
    assert "has not answered for" in ended.err
    assert ended.report["live"] == 0
    assert ended.report["attempts"] < 40


def interrupted_at(number: int, endpoint: FakeEndpoint, child: Child, kind: int) -> None:
    """Send a signal when so many requests have come in."""
    endpoint.script(after(number, lambda: child.signal(kind)))


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains_and_says_how_to_go_on(
    tmp_path: Path, warm: Warm, job: Callable[..., str], kind: signal.Signals
) -> None:
    """Exit code 130; what was in flight is kept, nothing is paid twice by going on."""
    with FakeEndpoint(latency=Latency(mean=0.01)) as endpoint:
        path = job(endpoint)
        child = warm.start("run", path, "--quiet")
        interrupted_at(60, endpoint, child, kind)
        ended = child.wait()
        assert ended.code == 130, ended.err
        assert f"corpusmill run {path}" in ended.err
        stopped = endpoint.stats(details=False)
        assert stopped.requests <= 60 + 2 * 8
        assert stopped.computed == stopped.delivered
        endpoint.script(None)
        again = warm.run("run", path, "--json", "--quiet")
        assert again.code == 0, again.err
        assert again.report["cached"] == stopped.computed
        assert again.report["possibly_paid_twice"] == 0
        assert endpoint.stats(details=False).computed == ROWS
    assert all(row["topic"] == answer_to(row["text"]) for row in rows_of(tmp_path / "out"))


def test_the_second_signal_leaves_at_once(warm: Warm, job: Callable[..., str]) -> None:
    """Requests that would take a minute are not waited for; going on asks no stored answer again."""
    with FakeEndpoint() as endpoint:
        path = job(endpoint)
        child = warm.start("run", path, "--quiet")
        interrupt = after(52, lambda: child.signal(signal.SIGINT))
        number = itertools.count(1)

        def script(request: Mapping[str, Any], attempt: int) -> str | None:
            interrupt(request, attempt)
            return "stall" if next(number) >= 50 else None

        endpoint.script(script)
        while "once more to leave at once" not in child.said():
            time.sleep(0.01)  # the child is another process; nothing here moves its clock
        child.signal(signal.SIGINT)
        ended = child.wait()
        assert ended.code == 130
        kept = endpoint.stats(details=False).computed
        endpoint.script(None)
        again = warm.run("run", path, "--json", "--quiet")
        assert again.code == 0
        assert again.report["live"] == ROWS - again.report["cached"]
        assert kept - 8 <= again.report["cached"] <= kept


def test_a_wrong_job_file_is_one_line_with_file_line_and_nearest_key(
    tmp_path: Path, warm: Warm, endpoint: FakeEndpoint, job: Callable[..., str]
) -> None:
    """Exit code 2, and nothing is sent."""
    path = job(endpoint, limits={"concurency": 3})
    ended = warm.run("run", path)
    assert ended.code == 2
    assert "concurency" in ended.err
    assert "concurrency" in ended.err
    assert path in ended.err
    yaml = tmp_path / "job.yaml"
    yaml.write_text("source: a\nsink: b\nprompts: []\nendpoit: {}\n", "utf-8")
    ended = warm.run("run", str(yaml))
    assert ended.code == 2
    assert "job.yaml:4" in ended.err
    assert "endpoint" in ended.err
    assert warm.run("run", str(tmp_path / "none.yaml")).code == 2
    assert endpoint.stats(details=False).requests == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompts": [{"ask": {"template": "{txt}", "into": "topic"}}]}, "txt"),
        ({"prompts": [{"ask": {"template": "no column", "into": "topic"}}]}, "column"),
        ({"prompts": [{"translate": {"column": "id", "to": "lv", "into": "topic"}}]}, "int64"),
        ({"prompts": [{"ask": {"template": "{text}", "into": "TEXT"}}]}, "TEXT"),
        ({"source": "nowhere.parquet"}, "nowhere.parquet"),
        ({"sink": {"path": "/proc/none/out"}}, "/proc/none"),
        ({"store": "redis://x"}, "redis"),
        ({"limits": {"concurrency": 100_000_000}}, "open files"),
        ({"endpoint": {"openai_compatible": {"base_url": "ftp://x", "model": "m"}}}, "ftp"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_sent(
    warm: Warm, endpoint: FakeEndpoint, job: Callable[..., str], changes: dict[str, Any], words: str
) -> None:
    """Exit code 2 with one line that names the thing."""
    ended = warm.run("run", job(endpoint, **changes), "--quiet")
    assert ended.code == 2, ended.err
    assert words in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert endpoint.stats(details=False).requests == 0


def test_a_budget_that_is_used_up_ends_with_4_and_a_larger_one_goes_on(
    tmp_path: Path, warm: Warm, endpoint: FakeEndpoint, job: Callable[..., str]
) -> None:
    """Nothing is committed, what was paid is kept, and less than the budget was spent."""
    prompts = [{"ask": {"template": "Name the topic of: {text}", "into": "topic", "max_tokens": 50}}]
    ended = warm.run("run", job(endpoint, prompts=prompts, budget={"tokens": 10_000}), "--json", "--quiet")
    assert ended.code == 4, ended.err
    spent = ended.report["prompt_tokens"] + ended.report["completion_tokens"]
    assert 0 < spent <= 10_000
    assert not (tmp_path / "out").exists()
    kept = endpoint.stats(details=False).computed
    again = warm.run(
        "run", job(endpoint, prompts=prompts, budget={"tokens": 10_000_000}), "--json", "--quiet"
    )
    assert again.code == 0, again.err
    assert again.report["cached"] == kept
    assert endpoint.stats(details=False).computed_again == 0


def test_with_json_standard_output_holds_the_report_and_nothing_else(
    warm: Warm, endpoint: FakeEndpoint, job: Callable[..., str]
) -> None:
    """Progress and words are on standard error; the fields are those that were promised."""
    ended = warm.run("run", job(endpoint), "--json")
    assert ended.code == 0
    assert set(ended.report) == {
        "rows", "outcomes", "live", "cached", "deduplicated", "skipped", "unanswered", "attempts",
        "possibly_paid_twice", "prompt_tokens", "completion_tokens", "cost", "seconds", "output", "skipped_run",
    }  # fmt: skip
    skipped = warm.run("run", job(endpoint), "--json")
    assert skipped.report["skipped_run"]
    assert skipped.report["rows"] == ROWS
    assert endpoint.stats(details=False).requests == ROWS


def test_a_terminal_of_another_encoding_or_a_closed_one_changes_neither_code_nor_output(
    tmp_path: Path, warm: Warm, endpoint: FakeEndpoint, job: Callable[..., str]
) -> None:
    """Standard output that is ASCII, and one whose reader has gone."""
    prompts = [{"ask": {"template": "Тема: {text}", "into": "тема"}}]
    path = job(endpoint, prompts=prompts, sink=str(tmp_path / "выход"))
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    command = [sys.executable, "-m", "corpusmill", "run", path, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert b"Traceback" not in err
    rows = rows_of(tmp_path / "выход")
    assert len(rows) == ROWS
    assert all(row["тема"] for row in rows)
    assert warm.run("run", path, "--json").report["output"].endswith("выход")
