"""Disks that are full or closed to us: a clear error, nothing corrupt, and the next run goes on for free."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.proof.disk import run_until_full, run_without_privilege
from tests.proof.harness import TEMPLATE, stored_keys
from tests.proof.material import answer_to, rows_of, table, texts
from tests.store.storm import check_integrity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.proof.warm import Warm

    from corpusmill.testing import FakeEndpoint

ROWS = 200


@contextmanager
def mounted(place: Path, *, size: str) -> Iterator[None]:
    """A file system of this size at `place`, while this lasts."""
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("needs the right to mount a file system of its own")
    try:
        yield
    finally:
        # Detached at once, though something may still hold a file of it open.
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A corpus in `folder`, and a place on a disk with the file that fills it; None where a quota does."""

    warm: Warm
    endpoint: FakeEndpoint
    folder: Path
    disk: Path
    ballast: Path | None = None

    def corpus(self, rows: int) -> None:
        """Write so many rows."""
        pq.write_table(table(rows), self.folder / "corpus.parquet")

    def job(self, **changes: Any) -> str:
        """Write a job over the corpus."""
        job = {
            "source": str(self.folder / "corpus.parquet"),
            "sink": str(self.folder / "out"),
            "prompts": [{"ask": {"template": TEMPLATE, "into": "topic"}}],
            "endpoint": {"openai_compatible": {"base_url": self.endpoint.base_url, "model": "any"}},
            "store": f"sqlite:///{self.folder / 'store.db'}",
            "limits": {"concurrency": 8},
            **changes,
        }
        path = self.folder / "job.json"
        path.write_text(json.dumps(job), "utf-8")
        return str(path)

    def runs(self, job: str) -> dict[str, Any]:
        """Run a job to its end."""
        ended = self.warm.run("run", job, "--json", "--quiet")
        assert ended.code == 0, ended.err
        return ended.report

    def is_full_at(self, point: str, job: str) -> dict[str, Any]:
        """Run a job on a disk that is full from a named point on, and make room again; give its report or its error."""
        found = run_until_full(self.warm, job, point, ballast=self.ballast)
        if self.ballast is not None:
            self.ballast.unlink()
        return found

    def requests(self) -> int:
        """Count what was sent so far."""
        return self.endpoint.stats(details=False).requests


@pytest.fixture(params=["filled", "quota"])
def case(
    request: pytest.FixtureRequest, tmp_path: Path, warm: Warm, endpoint: FakeEndpoint
) -> Iterator[Case]:
    """A disk that can be filled, or a quota that can be used up, which works everywhere."""
    place = tmp_path / "disk"
    if request.param == "quota":
        place.mkdir()
        yield Case(warm=warm, endpoint=endpoint, folder=tmp_path, disk=place)
    else:
        with mounted(place, size="16m"):
            yield Case(warm=warm, endpoint=endpoint, folder=tmp_path, disk=place, ballast=place / "ballast")


@pytest.mark.parametrize(
    ("case", "point"),
    [
        ("filled", "sending:40"),
        ("filled", "stored:150"),
        ("quota", "claiming:1"),
        ("quota", "store.commit:5"),
    ],
    indirect=["case"],
)
def test_a_disk_that_is_full_at_the_store_ends_the_run_and_nothing_is_corrupt(case: Case, point: str) -> None:
    """The message names the file and the free space; with room the run goes on, and asks no stored answer again."""
    store = case.disk / "store.db"
    case.corpus(ROWS)
    job = case.job(store=f"sqlite:///{store}")
    found = case.is_full_at(point, job)
    assert found["error"] == "StoreError", found
    assert str(store) in found["message"]
    assert "bytes are free" in found["message"]
    assert not (case.folder / "out").exists()
    check_integrity(store)
    kept, asked = len(stored_keys(store)), case.requests()
    assert asked < ROWS
    report = case.runs(job)
    assert report["cached"] == kept
    assert case.requests() == asked + ROWS - kept
    assert case.endpoint.stats(details=False).computed_again <= report["possibly_paid_twice"] <= 8
    check_integrity(store)
    assert [row["topic"] for row in rows_of(case.folder / "out")] == [answer_to(text) for text in texts(ROWS)]


@pytest.mark.parametrize(
    ("case", "point", "sink"),
    [
        # A quota is the store's, too, in which a run says that it lives: until the commit it would be met there.
        ("filled", "part:1", "out"),
        ("filled", "sink.staged:1", "out"),
        ("quota", "before commit:1", "out"),
        ("quota", "sink.staged:1", "out"),
        ("filled", "before commit:1", "out.parquet"),
        ("quota", "before commit:1", "out.parquet"),
    ],
    indirect=["case"],
)
def test_a_disk_that_is_full_at_parts_or_manifest_leaves_the_old_dataset_whole(
    case: Case, point: str, sink: str
) -> None:
    """The error names the place and the free space; with room the same run comes to its end from the store alone."""
    place = case.disk / sink
    shape = {"path": str(place), "rows_per_part": 60}
    case.corpus(20)
    case.runs(case.job(sink=shape))
    old = rows_of(place)
    # All answers are stored before the disk is full, so that it is the sink which meets it.
    case.corpus(ROWS)
    case.runs(case.job(sink=str(case.folder / "elsewhere")))
    store = {"url": f"sqlite:///{case.folder / 'store.db'}", "mode": "read-only"}
    job = case.job(sink=shape, store=store)
    found = case.is_full_at(point, job)
    assert found["error"] == "SinkError", found
    assert str(case.disk) in found["message"]
    assert "bytes are free" in found["message"]
    assert rows_of(place) == old
    report = case.runs(job)
    assert (report["cached"], report["live"]) == (ROWS, 0)
    assert case.requests() == ROWS
    assert [row["topic"] for row in rows_of(place)] == [answer_to(text) for text in texts(ROWS)]
    assert {path.name for path in case.disk.iterdir()} <= {sink, f"_{sink}.corpusmill"}


def test_a_disk_that_is_full_after_the_commit_takes_nothing_back(case: Case) -> None:
    """What is left to do then is tidying up; the dataset is whole and the next run has nothing to do."""
    case.corpus(20)
    job = case.job(sink=str(case.disk / "out"))
    found = case.is_full_at("sink.renamed:1", job)
    assert "report" in found or "bytes are free" in found["message"]
    assert len(rows_of(case.disk / "out")) == 20
    assert case.runs(job)["skipped_run"]
    assert case.requests() == 20


@pytest.fixture
def closed(tmp_path: Path, warm: Warm, endpoint: FakeEndpoint) -> Iterator[Case]:
    """A folder that nobody may write into, until the test is over."""
    folder = tmp_path / "closed"
    folder.mkdir()
    yield Case(warm=warm, endpoint=endpoint, folder=tmp_path, disk=folder)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)


@pytest.mark.parametrize("what", ["sink", "sink.parquet", "old-sink", "store", "store-file", "source"])
def test_what_may_not_be_read_or_written_is_said_before_anything_is_sent(closed: Case, what: str) -> None:
    """One line that names the file; for the super-user too, once it has no more than the rights that modes give."""
    place = closed.disk
    named, mode, changes = {
        "sink": ([place], 0o555, {"sink": str(place / "out")}),
        "sink.parquet": ([place], 0o555, {"sink": str(place / "out.parquet")}),
        "old-sink": ([place / "out", place], 0o555, {"sink": str(place / "out")}),
        "store": ([place], 0o555, {"store": f"sqlite:///{place / 'store.db'}"}),
        "store-file": ([place / "store.db"], 0o444, {"store": f"sqlite:///{place / 'store.db'}"}),
        "source": ([closed.folder / "corpus.parquet"], 0o000, {}),
    }[what]
    closed.corpus(20)
    if what in {"old-sink", "store-file"}:
        closed.runs(closed.job(**changes))
        closed.corpus(40)
    asked, job = closed.requests(), closed.job(**changes)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    for path in named:
        path.chmod(mode)
    ended = run_without_privilege(closed.warm, "run", job, "--quiet")
    assert ended.code == (1 if what.startswith("store") else 2), ended.err
    assert str(named[0]) in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert closed.requests() == asked
    assert {path: path.read_bytes() for path in before} == before
    for path in named:
        path.chmod(0o755)
    assert closed.runs(job)["cached"] == asked


def test_a_file_system_that_is_read_only_is_said_before_anything_is_sent(
    tmp_path: Path, warm: Warm, endpoint: FakeEndpoint
) -> None:
    """Whoever runs it: the super-user meets this one as it is."""
    place = tmp_path / "disk"
    case = Case(warm=warm, endpoint=endpoint, folder=tmp_path, disk=place)
    case.corpus(20)
    with mounted(place, size="16m"):
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        for changes, code in (
            ({"sink": str(place / "out")}, 2),
            ({"store": f"sqlite:///{place / 'store.db'}"}, 1),
        ):
            ended = warm.run("run", case.job(**changes), "--quiet")
            assert ended.code == code, ended.err
            assert str(place) in ended.err
            assert len(ended.err.strip().splitlines()) == 1
        assert case.requests() == 0
        subprocess.run(["mount", "-o", "remount,rw", str(place)], check=True)
        case.runs(case.job(sink=str(place / "out")))
        assert len(rows_of(place / "out")) == 20
