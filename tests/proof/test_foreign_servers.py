"""Servers that nobody here wrote: `llmock`, which breaks answers and judges its client, and `fakellm`.

Both are OpenAI-style servers from the package index. Their answers follow from the request, so that each row's own
answer is known; `llmock` keeps a journal, in which an answer that was bought twice would show.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import signal
import socket
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uvicorn
from llmock.chaos import StreamChaos
from llmock.ratelimit import LimitSettings, RateLimiter
from llmock.scenarios import Fail
from llmock.simulation import MockResponseSettings
from llmock.testing import LLMockServer
from llmock.verdict import judge
from tests.proof.harness import parts
from tests.proof.material import QUICK, rows_of, store_in, texts

import corpusmill
from corpusmill.errors import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.proof.warm import Warm

TEMPLATE = "Row {id}: {text}"
ASK = corpusmill.Ask(template=TEMPLATE, into="topic")


def table(count: int) -> pa.Table:
    """Give a table whose rows differ in their first characters already, which is all that `llmock` repeats."""
    return pa.table({"id": [str(row) for row in range(count)], "text": texts(count)})


def prompt_of(row: dict[str, Any]) -> str:
    """Give what is asked about a row."""
    return f"Row {row['id']}: {row['text']}"


def echo_to(row: dict[str, Any]) -> str:
    """Give `llmock`'s answer to a row."""
    return "Hello! You said: " + " ".join(prompt_of(row).split())[:120]


def fingerprint_to(row: dict[str, Any]) -> str:
    """Give `fakellm`'s answer to a row: it shows a digest of the whole body."""
    body = {"model": "any", "messages": [{"role": "user", "content": prompt_of(row)}]}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:8]
    return f"[mock response for any, fingerprint {digest}]"


def answered(server: LLMockServer) -> Counter[str]:
    """Count the whole answers that the journal holds, by request."""
    records = server.state.journal.records(wait=5.0)
    return Counter(
        one.fingerprint for one in records if one.status == 200 and one.completed and not one.fault
    )


def findings(server: LLMockServer) -> set[str]:
    """Name what `llmock` finds wrong with its client."""
    return {finding.code for finding in judge(server.state.journal.records(wait=5.0)).findings}


@pytest.fixture
def llmock_server() -> Iterator[LLMockServer]:
    """An `llmock` that repeats what it is told, without any chaos yet."""
    with LLMockServer(responses=MockResponseSettings(response_style="echo")) as server:
        yield server


@pytest.fixture
def fakellm_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A `fakellm` that refuses the first try of some rows, and every try of others."""
    rules = [
        {
            "name": "poison",
            "when": {"messages_contain": "statement"},
            "respond": {"status": 400, "error": "no"},
        },
        {
            "name": "first",
            "when": {"messages_contain": "object", "turn": 1},
            "respond": {"status": 429, "error": "slower"},
        },
    ]
    (tmp_path / "fakellm.yaml").write_text(json.dumps({"version": 1, "rules": rules}), "utf-8")
    monkeypatch.setenv("FAKELLM_CONFIG", str(tmp_path / "fakellm.yaml"))
    module = importlib.reload(importlib.import_module("fakellm.server"))
    importlib.import_module("fakellm._state").reset()
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(module.app, log_level="warning", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="fakellm")
    thread.start()
    while not server.started:
        time.sleep(0.01)  # its start cannot be waited for otherwise
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_each_row_gets_its_own_answer_from_a_server_that_fails_by_chance(
    tmp_path: Path, llmock_server: LLMockServer, *, stream: bool
) -> None:
    """Errors, broken connections, streams that end early or hang: no row is lost, nor bought twice."""
    state = llmock_server.state
    state.chaos.error_rates = {429: 0.03, 500: 0.05, 502: 0.02, 503: 0.02}
    if stream:
        kinds = ("disconnect", "truncate", "malformed", "stall")
        state.stream_chaos = StreamChaos(fault_rates=tuple((kind, 0.03) for kind in kinds), stall_seconds=2.0)
    report = corpusmill.enrich(
        table(100),
        tmp_path / "out",
        ASK,
        endpoint=corpusmill.OpenAICompatible(llmock_server.base_url(), "any", stream=stream),
        store=store_in(tmp_path),
        limits=corpusmill.Limits(concurrency=16, read_timeout=0.7),
        retry=QUICK,
    )
    assert report.outcomes == {"completed": 100}
    assert report.attempts > 100
    assert all(row["topic"] == echo_to(row) for row in rows_of(tmp_path / "out"))
    assert set(answered(llmock_server).values()) == {1}
    # Whether a bad stream was believed is seen in the rows: `llmock` orders attempts by their ends, not their starts.
    wrong = {"retry_after_ignored", "retried_non_retryable", "retry_storm", "no_read_timeout"}
    assert not findings(llmock_server) & wrong


def test_the_wait_that_another_server_asks_for_is_kept_to(
    tmp_path: Path, llmock_server: LLMockServer
) -> None:
    """It measures the time itself, and finds no Retry-After ignored."""
    llmock_server.state.scenarios.add(
        Fail(429, retry_after=0.5, times=3), Fail(503, retry_after=0.4, times=2)
    )
    report = corpusmill.enrich(
        table(40),
        tmp_path / "out",
        ASK,
        endpoint=corpusmill.OpenAICompatible(llmock_server.base_url(), "any"),
        store=store_in(tmp_path),
        retry=QUICK,
    )
    assert report.outcomes == {"completed": 40}
    assert report.attempts == 45
    assert all(row["topic"] == echo_to(row) for row in rows_of(tmp_path / "out"))
    assert not findings(llmock_server) & {"retry_after_ignored", "retry_storm"}


def test_a_context_that_overflows_is_the_row_s_own_and_is_not_tried_again(
    tmp_path: Path, llmock_server: LLMockServer
) -> None:
    """In the dress in which this server has it."""
    llmock_server.state.limiter = RateLimiter(LimitSettings(context_window=100))
    corpusmill.enrich(
        table(60),
        tmp_path / "out",
        ASK,
        endpoint=corpusmill.OpenAICompatible(llmock_server.base_url(), "any"),
        store=store_in(tmp_path),
        failures=corpusmill.FailurePolicy(max_failed=1.0),
    )
    rows = rows_of(tmp_path / "out")
    statuses = {row["id"]: row["topic_outcome"]["status"] for row in rows}
    assert statuses == {
        row["id"]: "failed" if len(prompt_of(row)) // 4 > 100 else "completed" for row in rows
    }
    assert set(statuses.values()) == {"failed", "completed"}
    assert "retried_non_retryable" not in findings(llmock_server)


def test_a_key_that_another_server_refuses_ends_the_run_at_its_first_answer(
    tmp_path: Path, llmock_server: LLMockServer
) -> None:
    """One request, one error."""
    llmock_server.state.scenarios.add(Fail(401, times=None))
    with pytest.raises(AuthenticationError):
        corpusmill.enrich(
            table(60),
            tmp_path / "out",
            ASK,
            endpoint=corpusmill.OpenAICompatible(llmock_server.base_url(), "any"),
            store=store_in(tmp_path),
        )
    assert len(llmock_server.state.journal.records(wait=5.0)) == 1


def write_job(folder: Path, base_url: str, name: str) -> str:
    """Write a job over the folder's corpus, with a sink and a store by this name."""
    job = {
        "source": str(folder / "corpus.parquet"),
        "sink": {"path": str(folder / name), "rows_per_part": 50},
        "prompts": [{"ask": {"template": TEMPLATE, "into": "topic"}}],
        "endpoint": {"openai_compatible": {"base_url": base_url, "model": "any"}},
        "store": f"sqlite:///{folder / name}.db",
        "limits": {"concurrency": 8},
        "retry": {"backoff": 0.01, "backoff_max": 0.05},
        "failures": {"max_failed": 1.0},
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(job), "utf-8")
    return str(path)


def killed_and_resumed(folder: Path, warm: Warm, base_url: str) -> tuple[dict[str, Any], int]:
    """Kill a run at four points, let it end, compare the bytes; give its report and the number of kills."""
    pq.write_table(table(120), folder / "corpus.parquet")
    job = write_job(folder, base_url, "killed")
    points = ("sending:20", "store.commit:3", "stored:15", "sink.staged:1")
    for point in points:
        ended = warm.run("run", job, "--quiet", environment={"CORPUSMILL_KILL_AT": point})
        assert ended.code == -signal.SIGKILL, (point, ended.err)
    ended = warm.run("run", job, "--json", "--quiet")
    assert ended.code == 0, ended.err
    return ended.report, len(points)


def test_a_run_against_llmock_that_is_killed_comes_to_the_same_bytes(
    tmp_path: Path, warm: Warm, llmock_server: LLMockServer
) -> None:
    """Its journal shows no more answers bought twice than the report says."""
    llmock_server.state.chaos.error_rates = {500: 0.05}
    report, kills = killed_and_resumed(tmp_path, warm, llmock_server.base_url())
    again = sum(count - 1 for count in answered(llmock_server).values())
    assert again <= report["possibly_paid_twice"] <= kills * 8
    assert report["outcomes"] == {"completed": 120}
    assert all(row["topic"] == echo_to(row) for row in rows_of(tmp_path / "killed"))
    calm = warm.run("run", write_job(tmp_path, llmock_server.base_url(), "calm"), "--quiet")
    assert calm.code == 0, calm.err
    assert parts(tmp_path / "killed") == parts(tmp_path / "calm")


def test_a_run_against_fakellm_that_is_killed_comes_to_the_same_bytes(
    tmp_path: Path, warm: Warm, fakellm_url: str
) -> None:
    """Rows that it refuses for good are failed, those that it refuses once are answered."""
    report, _ = killed_and_resumed(tmp_path, warm, fakellm_url)
    rows = rows_of(tmp_path / "killed")
    poisoned = {row["id"] for row in rows if "statement" in prompt_of(row).lower()}
    assert report["outcomes"] == {"completed": 120 - len(poisoned), "failed": len(poisoned)}
    assert poisoned
    for row in rows:
        assert row["topic"] == (None if row["id"] in poisoned else fingerprint_to(row))
    calm = warm.run("run", write_job(tmp_path, fakellm_url, "calm"), "--quiet")
    assert calm.code == 0, calm.err
    assert parts(tmp_path / "killed") == parts(tmp_path / "calm")


def test_streams_of_fakellm_are_read_to_their_end(tmp_path: Path, fakellm_url: str) -> None:
    """It sends no usage, and a role of its own first; each row has an answer of its own."""
    rows = table(40)
    report = corpusmill.enrich(
        rows,
        tmp_path / "out",
        ASK,
        endpoint=corpusmill.OpenAICompatible(fakellm_url, "any", stream=True),
        store=store_in(tmp_path),
    )
    assert report.outcomes == {"completed": 40}
    topics = corpusmill.read(tmp_path / "out").to_table()["topic"].to_pylist()
    assert len(set(topics)) == 40
    assert all(str(topic).startswith("[mock response for any, fingerprint ") for topic in topics)
