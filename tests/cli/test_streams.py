"""Closed and full standard streams change neither what is done nor, when nobody listens, the exit code."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corpusmill

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.testing import FakeEndpoint


def run(folder: Path, endpoint: FakeEndpoint, redirection: str) -> subprocess.CompletedProcess[str]:
    """Run a small job through a shell that redirects."""
    pq.write_table(pa.table({"text": ["a", "b"]}), folder / "corpus.parquet")
    (folder / "job.yaml").write_text(
        "source: corpus.parquet\nsink: out/\nprompts: [{ask: {template: 'Say {text}', into: said}}]\n"
        f"endpoint: {{openai_compatible: {{base_url: '{endpoint.base_url}', model: any}}}}\n",
        "utf-8",
    )
    command = f"'{sys.executable}' -m corpusmill run job.yaml {redirection}"
    return subprocess.run(
        ["/bin/sh", "-c", command], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-", "--json >&-"])
def test_closed_streams_change_nothing(tmp_path: Path, fake_endpoint: FakeEndpoint, redirection: str) -> None:
    """The output is there and the exit code is 0."""
    done = run(tmp_path, fake_endpoint, redirection)
    assert (done.returncode, done.stderr) == (0, "")
    assert corpusmill.read(tmp_path / "out").count_rows() == 2


@pytest.mark.parametrize("redirection", ["--json >/dev/full", ">/dev/full"])
def test_a_full_standard_output_is_said_in_one_line(
    tmp_path: Path, fake_endpoint: FakeEndpoint, redirection: str
) -> None:
    """Half an answer must not pass for a success; the rows are written all the same."""
    done = run(tmp_path, fake_endpoint, redirection)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "standard output cannot be written: No space left on device" in done.stderr
    assert corpusmill.read(tmp_path / "out").count_rows() == 2
