"""A run that is killed and started again: the same output as one that was not, and nothing paid twice."""

from __future__ import annotations

import json
import os
import pydoc_data.topics
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.testing import FakeEndpoint

if TYPE_CHECKING:
    from pathlib import Path

CONCURRENCY = 16


def help_topics(path: Path, *, paragraphs: int) -> None:
    """Write the paragraphs of Python's help topics as a corpus."""
    texts = [text for topic in pydoc_data.topics.topics.values() for text in topic.split("\n\n")]
    pq.write_table(pa.table({"id": range(paragraphs), "text": texts[:paragraphs]}), path)


def write_job(folder: Path, base_url: str, name: str) -> Path:
    """Write a job that reads the corpus of the folder and keeps its output and store under `name`."""
    job = folder / f"{name}.json"
    job.write_text(
        json.dumps(
            {
                "source": str(folder / "corpus.parquet"),
                "sink": {"path": str(folder / name), "rows_per_part": 256},
                "prompts": [{"ask": {"template": "Name the topic of: {text}", "into": "topic"}}],
                "endpoint": {"openai_compatible": {"base_url": base_url, "model": "any"}},
                "store": f"sqlite:///{folder / name}.db",
                "limits": {"concurrency": CONCURRENCY},
            }
        ),
        "utf-8",
    )
    return job


def run(job: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a job as a user does, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "corpusmill", "run", str(job), "--json", "--quiet"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def output(folder: Path) -> dict[str, bytes]:
    """Give the bytes of the parts of a dataset by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


@pytest.mark.parametrize("point", ["rendering:1", "claiming:300", "sending:300", "stored:300", "part:1"])
def test_a_killed_run_resumes_to_the_same_bytes_and_pays_for_no_stored_answer_again(
    tmp_path: Path, point: str
) -> None:
    """Kill at a named point, run again: output equal byte for byte, double payment within the bound."""
    help_topics(tmp_path / "corpus.parquet", paragraphs=700)
    with FakeEndpoint() as endpoint:
        calm = run(write_job(tmp_path, endpoint.base_url, "calm"))
        assert calm.returncode == 0, calm.stderr
        endpoint.reset()
        job = write_job(tmp_path, endpoint.base_url, "killed")
        log = tmp_path / "points.log"
        killed = run(job, CORPUSMILL_KILL_AT=point, CORPUSMILL_KILL_LOG=str(log))
        assert killed.returncode == -9, killed.stderr
        assert log.read_text("utf-8").split() == [point.partition(":")[0]]
        assert not (tmp_path / "killed").exists()
        resumed = run(job)
        assert resumed.returncode == 0, resumed.stderr
        report = json.loads(resumed.stdout)
        twice = endpoint.stats().computed_again
    assert output(tmp_path / "killed") == output(tmp_path / "calm")
    assert twice <= report["possibly_paid_twice"] <= CONCURRENCY
