"""Several processes on one store."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.proof.warm import Warm
from tests.store.storm import Storm

from corpusmill.store import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from corpusmill.store import Store

WORKER = """
import sys
from corpusmill.store import Entry, Put, Wanted, open_store
store = open_store(sys.argv[1])
member = store.join("run")
print("ready", flush=True)
sys.stdin.readline()
asked = 0
keys = [row.to_bytes(20, "big") for row in range(int(sys.argv[2]))]
for start in range(0, len(keys), 20):
    group = keys[start : start + 20]
    claims = store.write(member.owner, wanted=[Wanted(key) for key in group])
    mine = [key for key, claim in zip(group, claims) if claim.startswith("granted")]
    asked += len(mine)
    store.write(
        member.owner,
        puts=[Put(entry=Entry(key, b"{}", None, "stop", 1, 1, 1, 1.0, member.invocation)) for key in mine],
    )
store.close()
print(asked)
"""


def test_many_processes_ask_each_request_once_between_them(url: str, opened: Callable[[], Store]) -> None:
    """Whoever starts first, each key is granted to one of eight writers, and none runs into a lock."""
    rows = 400
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, url, str(rows)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    asked = [int(worker.communicate()[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 8
    assert sum(asked) == rows
    store = opened()
    assert (store.stats().completions, store.stats().claims) == (rows, 0)
    assert store.spend("run").possibly_paid_twice == 0


def test_a_killed_process_gives_way_at_once_and_answers_stay(
    store: Store, crash: Callable[..., list[str]]
) -> None:
    """What it was asking is taken over in the next claim, without waiting for any lease, and only that counts."""
    keys = [row.to_bytes(20, "big") for row in range(5)]
    owner = store.join("run").owner
    assert store.write(owner, wanted=[Wanted(keys[0])]) == ["granted"]
    assert crash("run", *keys) == ["held", *["granted"] * 4]
    assert store.write(owner, wanted=[Wanted(key) for key in keys]) == ["held", *["granted_again"] * 4]
    assert store.spend("run").possibly_paid_twice == 4


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    """A process that has everything imported, and forks the processes that are killed."""
    with Warm() as warm:
        yield warm


def test_eight_processes_of_which_one_is_killed_again_and_again_lose_nothing(
    url: str, warm: Warm, tmp_path: Path
) -> None:
    """What was durable is there once, each key has its own answer, and the file is sound."""
    storm = Storm(warm=warm, url=url, folder=tmp_path, keys=500, kills=6)
    storm.run()
    storm.check()


def test_a_server_that_crashes_under_eight_processes_loses_nothing(
    postgres_server: str, warm: Warm, tmp_path: Path
) -> None:
    """Whoever was talking to it waits until it is back, and goes on: nobody is told of an error."""
    url = f"{postgres_server}&schema=storm"
    storm = Storm(warm=warm, url=url, folder=tmp_path, keys=500, kills=1, crashes=2)
    storm.run()
    storm.check()
