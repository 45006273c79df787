from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from corpusmill.killpoints import reach

if TYPE_CHECKING:
    from pathlib import Path

PASSES = "from corpusmill.killpoints import reach\nfor _ in range(3): reach('a'); print('passed', flush=True)"


@pytest.mark.parametrize(("wanted", "passes"), [("a", 0), ("a:1", 0), ("a:3", 2)])
def test_a_process_ends_at_the_wanted_pass_of_the_wanted_point(
    tmp_path: Path, wanted: str, passes: int
) -> None:
    """With SIGKILL, after it has said so in the log."""
    environment = {**os.environ, "CORPUSMILL_KILL_AT": wanted, "CORPUSMILL_KILL_LOG": str(tmp_path / "log")}
    run = subprocess.run(
        [sys.executable, "-c", PASSES], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == -signal.SIGKILL
    assert run.stdout.count("passed") == passes
    assert (tmp_path / "log").read_text() == "a\n"


@pytest.mark.parametrize("wanted", ["b", "a:4", ""])
def test_a_process_passes_all_other_points(wanted: str) -> None:
    """Another name, a pass that never comes, nothing at all."""
    environment = {**os.environ, "CORPUSMILL_KILL_AT": wanted}
    run = subprocess.run([sys.executable, "-c", PASSES], env=environment, check=False, capture_output=True)
    assert run.returncode == 0


def test_without_a_wish_a_point_is_passed() -> None:
    """As in every run of a user."""
    reach("sink.part")
