"""Closed and full standard streams change neither what is done nor, when nobody listens, the exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corpusmill
from corpusmill.cli.progress import Display
from corpusmill.cli.run import signals
from corpusmill.testing import Latency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from corpusmill.testing import FakeEndpoint


def run(folder: Path, endpoint: FakeEndpoint, redirection: str) -> subprocess.CompletedProcess[str]:
    """Run a small job through a shell that redirects."""
    write_job(folder, endpoint)
    command = f"'{sys.executable}' -m corpusmill run job.yaml {redirection}"
    return subprocess.run(
        ["/bin/sh", "-c", command], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )


def write_job(folder: Path, endpoint: FakeEndpoint) -> None:
    """Write a small table and its job."""
    pq.write_table(pa.table({"text": ["a", "b"]}), folder / "corpus.parquet")
    (folder / "job.yaml").write_text(
        "source: corpus.parquet\nsink: out/\nprompts: [{ask: {template: 'Say {text}', into: said}}]\n"
        f"endpoint: {{openai_compatible: {{base_url: '{endpoint.base_url}', model: any}}}}\n",
        "utf-8",
    )


def spoken(stderr: str) -> list[str]:
    """Give the lines after the one that opens a run."""
    return [line for line in stderr.splitlines() if not line.startswith("asking any at ")]


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-", "--json >&-"])
def test_closed_streams_change_nothing(tmp_path: Path, fake_endpoint: FakeEndpoint, redirection: str) -> None:
    """The output is there and the exit code is 0."""
    done = run(tmp_path, fake_endpoint, redirection)
    assert (done.returncode, spoken(done.stderr)) == (0, [])
    assert corpusmill.read(tmp_path / "out").count_rows() == 2


@pytest.mark.parametrize("redirection", ["--json >/dev/full", ">/dev/full"])
def test_a_full_standard_output_is_said_in_one_line(
    tmp_path: Path, fake_endpoint: FakeEndpoint, redirection: str
) -> None:
    """Half an answer must not pass for a success; the rows are written all the same."""
    done = run(tmp_path, fake_endpoint, redirection)
    assert done.returncode == 1
    (line,) = spoken(done.stderr)
    assert "standard output cannot be written: No space left on device" in line
    assert corpusmill.read(tmp_path / "out").count_rows() == 2


@pytest.mark.parametrize(
    "command", ["plan job.yaml", "run job.yaml --limit 1", "report out", "schema", "--help"]
)
def test_every_command_says_in_one_line_that_its_output_found_no_room(
    tmp_path: Path, fake_endpoint: FakeEndpoint, command: str
) -> None:
    """Not with a traceback."""
    run(tmp_path, fake_endpoint, "--quiet")
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "corpusmill", *command.split()],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
            check=False,
        )
    assert done.stderr.endswith("standard output cannot be written: No space left on device\n")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


@pytest.fixture(params=["full", "left"])
def deaf(request: pytest.FixtureRequest) -> Iterator[int]:
    """A descriptor that takes nothing: a disk without room, or a pipe whose reader has left."""
    if request.param == "full":
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, descriptor = os.pipe()
        os.close(reader)
    yield descriptor
    os.close(descriptor)


def test_progress_that_nobody_reads_ends_no_run(
    tmp_path: Path, fake_endpoint_factory: Callable[..., FakeEndpoint], deaf: int
) -> None:
    """The output is there when the exit code says so."""
    endpoint = fake_endpoint_factory(latency=Latency(mean=0.5))
    write_job(tmp_path, endpoint)
    assert deaf_code(tmp_path, deaf, "run job.yaml --progress-every 0.1") == 0
    assert corpusmill.read(tmp_path / "out").count_rows() == 2


@pytest.mark.parametrize(
    "command", ["run no-such-job.yaml", "run", "no-such-command", "store stats --store x"]
)
def test_an_error_that_nobody_reads_is_an_error(tmp_path: Path, deaf: int, command: str) -> None:
    """The exit code is what it is."""
    assert deaf_code(tmp_path, deaf, command) == 2


def deaf_code(folder: Path, descriptor: int, command: str) -> int:
    """The exit code of a command whose standard error goes nowhere."""
    return subprocess.run(
        [sys.executable, "-m", "corpusmill", *command.split()],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=descriptor,
        timeout=100,
        check=False,
    ).returncode


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="only Linux and its kin have the signal")
@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_terminal_that_is_lost_ends_a_run_gently_unless_nohup_has_it_passed_over(
    before: signal.Handlers,
) -> None:
    """What is in flight is then kept, as on Ctrl-C."""
    found = signal.signal(signal.SIGHUP, before)
    try:
        with signals(Display(quiet=True)) as stopper:
            assert (signal.getsignal(signal.SIGHUP) is stopper) == (before == signal.SIG_DFL)
        assert signal.getsignal(signal.SIGHUP) == before
    finally:
        signal.signal(signal.SIGHUP, found)
