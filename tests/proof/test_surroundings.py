"""Who calls, and where: threads, loops, forks, other processes, full disks, files that change."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow.parquet as pq
import pytest
from tests.proof.harness import TEMPLATE
from tests.proof.material import ASK, answer_to, endpoint_at, rows_of, store_in, table

import corpusmill
from corpusmill.errors import SinkError, SourceChangedError, StoreError
from corpusmill.store.sqlite import SQLiteStore
from corpusmill.testing import FakeEndpoint, Latency

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.proof.warm import Warm

    from corpusmill.store.protocol import Quota


def at_request(number: int, then: Callable[[], object]) -> Callable[[Mapping[str, Any], int], None]:
    """Make a script that calls something when so many requests have come in."""
    seen = 0

    def script(_request: Mapping[str, Any], _attempt: int) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            then()

    return script


def write_job(folder: Path, endpoint: FakeEndpoint, sink: Path, **changes: Any) -> str:
    """Write a job file beside the corpus."""
    job = {
        "source": str(folder / "corpus.parquet"),
        "sink": str(sink),
        "prompts": [{"ask": {"template": TEMPLATE, "into": "topic"}}],
        "endpoint": {"openai_compatible": {"base_url": endpoint.base_url, "model": "any"}},
        "store": store_in(folder),
        "limits": {"concurrency": 8},
        **changes,
    }
    path = folder / f"{sink.name}.json"
    path.write_text(json.dumps(job), "utf-8")
    return str(path)


def our_threads() -> list[str]:
    """Name the threads of runs that are alive."""
    names = (thread.name for thread in threading.enumerate())
    return [name for name in names if name.startswith("corpusmill") and "fake" not in name]


class TimedOutError(BaseException):
    """What an orchestrator raises in the main thread."""


@pytest.mark.parametrize("error", [TimedOutError, KeyboardInterrupt])
def test_what_is_raised_in_the_calling_thread_goes_on_upwards_and_ends_the_asking(
    tmp_path: Path, error: type[BaseException]
) -> None:
    """No thread stays behind, nothing new is sent, and what was answered is not asked again."""

    def handle(_number: int, _frame: object) -> None:
        raise error

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with FakeEndpoint(latency=Latency(mean=0.01)) as endpoint:
            endpoint.script(at_request(60, lambda: os.kill(os.getpid(), signal.SIGUSR1)))
            with pytest.raises(error):
                corpusmill.enrich(
                    table(900),
                    tmp_path / "out",
                    ASK,
                    endpoint=endpoint_at(endpoint),
                    store=store_in(tmp_path),
                )
            assert our_threads() == []
            stopped = endpoint.stats(details=False)
            assert stopped.in_flight == 0
            assert stopped.requests < 900
            assert not (tmp_path / "out").exists()
            report = corpusmill.enrich(
                table(900), tmp_path / "out", ASK, endpoint=endpoint_at(endpoint), store=store_in(tmp_path)
            )
            assert report.cached == stopped.computed
            assert endpoint.stats(details=False).computed == 900
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_run_works_inside_a_running_event_loop(tmp_path: Path, endpoint: FakeEndpoint) -> None:
    """As in a notebook: its loop is not touched."""

    async def cell() -> int:
        report = corpusmill.enrich(
            table(30), tmp_path / "out", ASK, endpoint=endpoint_at(endpoint), store=store_in(tmp_path)
        )
        await asyncio.sleep(0)
        return report.live

    assert asyncio.run(cell()) == 30


FORKS = """
import os, sys
import corpusmill, pyarrow as pa
folder, base_url = sys.argv[1:]
def run(name):
    texts = [f"{name} {row}" for row in range(40)]
    return corpusmill.enrich(
        pa.table({"text": texts}), f"{folder}/{name}", corpusmill.Ask(template="{text}", into="topic"),
        endpoint=corpusmill.OpenAICompatible(base_url, "any"), store=f"sqlite:///{folder}/store.db",
    )
assert run("parent").live == 40
children = []
for name in ("one", "two"):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if run(name).live == 40 else 1)
    children.append(pid)
assert run("meanwhile").live == 40
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_a_run_works_after_a_fork_on_both_sides_of_it(
    tmp_path: Path, warm: Warm, endpoint: FakeEndpoint
) -> None:
    """As in Airflow: neither connections nor the store's locks are taken along."""
    ended = warm.execute(FORKS, str(tmp_path), endpoint.base_url)
    assert ended.code == 0, ended.err
    assert endpoint.stats(details=False).computed == 160
    assert all(len(rows_of(tmp_path / name)) == 40 for name in ("parent", "one", "two", "meanwhile"))


def test_two_processes_over_the_same_rows_ask_each_request_once_between_them(
    tmp_path: Path, warm: Warm
) -> None:
    """Each waits for the answers that the other is asking for, and both have all of them."""
    pq.write_table(table(250), tmp_path / "corpus.parquet")
    with FakeEndpoint(latency=Latency(mean=0.01)) as endpoint:
        children = [
            warm.start("run", write_job(tmp_path, endpoint, tmp_path / name), "--json", "--quiet")
            for name in ("one", "two")
        ]
        ended = [child.wait() for child in children]
        assert [one.code for one in ended] == [0, 0], ended
        assert endpoint.stats(details=False).computed == 250
    assert sum(one.report["live"] for one in ended) == 250
    assert all(one.report["live"] + one.report["cached"] + one.report["deduplicated"] == 250 for one in ended)
    one, two = (rows_of(tmp_path / name) for name in ("one", "two"))
    assert one == two
    assert all(row["topic"] == answer_to(row["text"]) for row in one)


def test_the_second_of_two_runs_on_one_sink_is_refused_and_the_first_goes_on(
    tmp_path: Path, warm: Warm
) -> None:
    """It names the process that holds the sink."""
    pq.write_table(table(60), tmp_path / "corpus.parquet")
    arrived = threading.Event()
    with FakeEndpoint(latency=Latency(mean=0.05)) as endpoint:
        endpoint.script(at_request(1, arrived.set))
        job = write_job(tmp_path, endpoint, tmp_path / "out")
        first = warm.start("run", job, "--quiet")
        assert arrived.wait(60)
        with pytest.raises(SinkError, match=f"process {first.pid}"):
            corpusmill.enrich(
                tmp_path / "corpus.parquet",
                tmp_path / "out",
                ASK,
                endpoint=endpoint_at(endpoint),
                store=store_in(tmp_path),
            )
        assert first.wait().code == 0
        assert endpoint.stats(details=False).computed == 60


def test_a_source_that_changes_under_the_run_commits_nothing(tmp_path: Path, endpoint: FakeEndpoint) -> None:
    """The message names the file; what was answered is kept for the run over the new state."""
    corpus = tmp_path / "corpus.parquet"
    pq.write_table(table(50), corpus)
    endpoint.script(at_request(10, lambda: pq.write_table(table(51), corpus)))
    with pytest.raises(SourceChangedError, match=r"corpus\.parquet"):
        corpusmill.enrich(
            corpus, tmp_path / "out", ASK, endpoint=endpoint_at(endpoint), store=store_in(tmp_path)
        )
    assert not (tmp_path / "out").exists()
    report = corpusmill.enrich(
        corpus, tmp_path / "out", ASK, endpoint=endpoint_at(endpoint), store=store_in(tmp_path)
    )
    assert report.live + report.cached == 51
    assert endpoint.stats(details=False).computed_again == 0


def test_too_few_descriptors_are_found_before_anything_is_sent(
    tmp_path: Path, warm: Warm, endpoint: FakeEndpoint
) -> None:
    """The message says which concurrency would do."""
    pq.write_table(table(5), tmp_path / "corpus.parquet")
    job = write_job(tmp_path, endpoint, tmp_path / "out", limits={"concurrency": 500})
    ended = warm.run("run", job, "--quiet", limits={"NOFILE": 200})
    assert ended.code == 2
    assert "ulimit -n" in ended.err
    assert endpoint.stats(details=False).requests == 0


def test_runs_leave_no_descriptor_and_no_thread_behind(tmp_path: Path, endpoint: FakeEndpoint) -> None:
    """However many there were, and however they ended."""
    process = psutil.Process()

    def run(number: int) -> None:
        with contextlib.suppress(corpusmill.CorpusmillError):
            corpusmill.enrich(
                table(40),
                tmp_path / f"out{number}",
                ASK,
                endpoint=endpoint_at(endpoint),
                store=f"sqlite:///{tmp_path / f'{number}.db'}",
                retry=corpusmill.RetryPolicy(attempts=1),
            )

    run(0)
    run(1)
    before = process.num_fds()
    for number in range(2, 4):
        endpoint.script((lambda _request, _attempt: "cut_body") if number % 2 else None)
        run(number)
    # Connections of the endpoint, which lives in this process too, are closed when it notices.
    endpoint.reset()
    assert process.num_fds() <= before + 16
    assert our_threads() == []


def test_a_run_that_cannot_begin_leaves_no_thread_behind(tmp_path: Path, endpoint: FakeEndpoint) -> None:
    """Not even the one that would go on telling the store that the run is alive."""

    class Locked(SQLiteStore):
        def quota(self, identity: str) -> Quota | None:
            raise StoreError(f"what is left for {identity} cannot be read")

    with (
        contextlib.closing(Locked(tmp_path / "store.db")) as store,
        pytest.raises(StoreError, match="is left"),
    ):
        corpusmill.enrich(table(5), tmp_path / "out", ASK, endpoint=endpoint_at(endpoint), store=store)
    assert our_threads() == []


MEMORY = """
import resource, sys
import corpusmill, pyarrow as pa
folder, base_url, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
texts = [f"text {number} " * 20 for number in range(500)]
def batches():
    for start in range(0, count, 1000):
        yield pa.record_batch({"id": range(start, start + 1000), "text": [texts[i % 500] for i in range(1000)]})
rows = 0
for batch in corpusmill.enrich_batches(
    batches(), corpusmill.Ask(template="{text}", into="topic"),
    endpoint=corpusmill.OpenAICompatible(base_url, "any"), store=f"sqlite:///{folder}/store.db",
):
    rows += batch.num_rows
assert rows == count, rows
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, warm: Warm, endpoint: FakeEndpoint) -> None:
    """Ten times the rows take hardly more of it."""
    few = warm.execute(MEMORY, str(tmp_path), endpoint.base_url, "10000")
    many = warm.execute(MEMORY, str(tmp_path), endpoint.base_url, "100000")
    assert (few.code, many.code) == (0, 0), few.err + many.err
    assert int(many.out) < 1.25 * int(few.out)
    assert endpoint.stats(details=False).computed == 500
