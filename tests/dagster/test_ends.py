"""Run workers that end before their run does: killed, or told to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.dagster import enriched_asset

if TYPE_CHECKING:
    from tests.dagster.conftest import Runs

    from corpusmill.testing import FakeEndpoint

WORKER = Path(__file__).with_name("run_worker.py")
ROWS = 400
CONCURRENCY = 8


def start(folder: Path, job: dict[str, Any], **environment: str) -> subprocess.Popen[str]:
    """Start a run worker for a job."""
    path = folder / "job.json"
    path.write_text(json.dumps(job), "utf-8")
    return subprocess.Popen(
        [sys.executable, str(WORKER), str(path)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_killed_and_an_interrupted_worker_lose_no_paid_answer(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    """SIGKILL in mid-run, then SIGTERM in mid-run, then a run to the end: no answer that arrived is paid again."""
    pq.write_table(
        pa.table({"text": [f"The {number}th ship came home." for number in range(ROWS)]}), job["source"]
    )
    job["limits"] = {"concurrency": CONCURRENCY}
    killed = start(tmp_path, job, CORPUSMILL_KILL_AT="stored:100")
    killed.communicate(timeout=100)
    assert killed.returncode == -signal.SIGKILL
    assert not Path(job["sink"]).exists()
    paid = endpoint.stats().computed
    assert 100 <= paid < ROWS

    # Slow from here on, so that the worker is surely in mid-run when it is told to stop.
    endpoint.configure(latency=0.2)
    told = start(tmp_path, job)
    while endpoint.stats(details=False).computed < paid + 20:
        assert told.poll() is None, told.communicate()
        time.sleep(0.02)  # another process works meanwhile, and no clock of ours could say when
    told.send_signal(signal.SIGTERM)
    _, errors = told.communicate(timeout=60)
    assert told.returncode != 0
    assert "DagsterExecutionInterruptedError" in errors or told.returncode == -signal.SIGTERM, errors[-2000:]
    after = endpoint.stats()
    assert after.computed_again <= CONCURRENCY

    endpoint.configure(latency=None)
    report = runs.told(runs.materialise(enriched_asset("translated", job)), "translated")
    assert report["dagster/row_count"] == ROWS
    assert report["corpusmill/answers/cached"] >= after.distinct - CONCURRENCY
    done = endpoint.stats()
    assert done.distinct == ROWS
    assert done.computed_again <= report["corpusmill/possibly_paid_twice"] <= 2 * CONCURRENCY
