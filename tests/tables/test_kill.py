"""A run that is killed at any step leaves the old dataset or the new one, and the next run needs no help."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from corpusmill.errors import SourceError
from corpusmill.tables import layout, open_sink, read
from corpusmill.tables.storage import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).with_name("killed_writer.py")
_spec = importlib.util.spec_from_file_location("killed_writer", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
killed_writer: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(killed_writer)

PARTS = ["sink.part:2", "sink.staged"]
RENAMED = [*PARTS, "sink.manifest", "sink.renamed"]
EXCHANGED = [*PARTS, "sink.manifest", "sink.exchanged", "sink.old-removed"]
ASIDE = ["sink.manifest", "sink.aside", "sink.renamed", "sink.old-removed"]
COPIED = ["sink.staged", "sink.moved:2", "sink.manifest", "sink.old-removed"]
FILE = ["sink.staged", "sink.renamed", "sink.manifest"]

CASES = [
    *(("out", "as-is", False, point) for point in RENAMED),
    *(("out", "as-is", True, point) for point in EXCHANGED),
    *(("out", "no-exchange", True, point) for point in ASIDE),
    ("out", "no-rename", False, "sink.moved:2"),
    *(("out", "no-rename", True, point) for point in COPIED),
    ("out.parquet", "as-is", False, "sink.renamed"),
    *(("out.parquet", "as-is", True, point) for point in FILE),
]


@pytest.fixture(autouse=True)
def _system_as_it_is() -> Iterator[None]:
    renamed = layout.can_be_renamed
    yield
    layout.can_be_renamed = renamed


def die(sink: str, mode: str, point: str, log: Path) -> None:
    """Let a process write generation 2 and die at the point."""
    environment = {**os.environ, "CORPUSMILL_KILL_AT": point, "CORPUSMILL_KILL_LOG": str(log)}
    run = subprocess.run([sys.executable, str(SCRIPT), sink, "2", mode], env=environment, check=False)
    assert run.returncode == -signal.SIGKILL
    assert log.read_text() == f"{point.partition(':')[0]}\n"


def generation_in(sink: str) -> int | None:
    """The generation that all rows are of; None where there is no dataset."""
    try:
        table = read(sink).to_table()
    except SourceError:
        return None
    (generation,) = set(table.column("generation").to_pylist())
    assert table.equals(killed_writer.rows_of(generation))
    return int(generation or 0)


def contents(folder: str) -> dict[str, bytes]:
    """All files below a folder, markers of empty folders aside."""
    root = place_of(folder)
    return {
        info.path.removeprefix(root.path): (root / info.path.removeprefix(root.path).lstrip("/")).read_bytes()
        for info in root.children(recursive=True)
        if info.is_file
    }


@pytest.mark.parametrize(("name", "mode", "replaces", "point"), CASES)
def test_a_local_run_killed_at_any_step_leaves_a_whole_dataset(
    tmp_path: Path, name: str, mode: str, point: str, *, replaces: bool
) -> None:
    """Old or new, or none where there was none; the next run removes all traces and ends like an unkilled one."""
    killed_writer.change_system(mode if mode == "no-rename" else "as-is")
    sink = str(tmp_path / "killed" / name)
    if replaces:
        killed_writer.write(sink, 1)
    die(sink, mode, point, tmp_path / "log")
    allowed: set[int | None] = {1, 2} if replaces else {None, 2}
    if point == "sink.aside":
        allowed = {None}
    assert generation_in(sink) in allowed
    with open_sink(sink).lock():
        recovered = generation_in(sink)
        assert recovered in ({1, 2} if replaces else {None, 2})
        if point in {"sink.aside", "sink.exchanged", "sink.renamed", "sink.old-removed"}:
            assert recovered == 2
    killed_writer.write(sink, 2)
    unkilled = str(tmp_path / "unkilled" / name)
    killed_writer.write(unkilled, 2)
    assert contents(str(tmp_path / "killed")) == contents(str(tmp_path / "unkilled"))


@pytest.mark.parametrize(
    ("name", "point"),
    [*(("out", point) for point in COPIED), ("out.parquet", "sink.staged"), ("out.parquet", "sink.renamed")],
)
def test_a_run_on_s3_killed_at_any_step_leaves_a_whole_dataset(
    bucket: str, tmp_path: Path, name: str, point: str
) -> None:
    """The old one until the new manifest is there; the dead run's lock stands in nobody's way."""
    sink = f"{bucket}/killed/{name}"
    killed_writer.write(sink, 1)
    die(sink, "as-is", point, tmp_path / "log")
    assert generation_in(sink) in {1, 2}
    killed_writer.write(sink, 2)
    killed_writer.write(f"{bucket}/unkilled/{name}", 2)
    killed, unkilled = contents(f"{bucket}/killed"), contents(f"{bucket}/unkilled")
    assert {path: data for path, data in killed.items() if data} == {
        path: data for path, data in unkilled.items() if data
    }
