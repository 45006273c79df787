"""Kills, and what has to hold after them: the same bytes, and no stored answer asked again.

A `Case` is a corpus, a job and a fake endpoint whose books are compared with the store's. `tests/proof/test_kills.py`
runs a few dozen kills, `benchmarks/kills.py` as many as it is told to.
"""

from __future__ import annotations

import json
import pydoc_data.topics
import random
import re
import signal
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import corpusmill
from corpusmill.testing import request_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.proof.warm import Ended, Warm

    from corpusmill.testing import FakeEndpoint
TEMPLATE = "Name the topic of: {text}"
SOURCE = Path(corpusmill.__file__).parent


OF_OTHER_ENDS = ("transform", "shards.py")
"""Parts of the package in which a plain run never is; the tests of each kill at its own points."""


def points_in_source() -> set[str]:
    """Name every point at which a run lets itself be killed."""
    paths = (path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in OF_OTHER_ENDS)
    return {
        name for path in paths for name in re.findall(r"\breach\(\"([^\"]+)\"\)", path.read_text("utf-8"))
    }


def paragraphs() -> Iterator[str]:
    """Give the paragraphs of Python's help topics."""
    for topic in pydoc_data.topics.topics.values():
        yield from (text for text in topic.split("\n\n") if text.strip())


@dataclass(kw_only=True)
class Corpus:
    """A folder of Parquet files: real paragraphs, with repeated and blank ones among them."""

    folder: Path
    rows_per_file: int = 40
    files: int = 4

    def write(self) -> None:
        """Write all files."""
        self.folder.mkdir()
        texts = list(dict.fromkeys(paragraphs()))[: self.rows_per_file * (self.files + 1)]
        for number in range(self.files + 1):
            rows: list[str | None] = list(
                texts[number * self.rows_per_file : (number + 1) * self.rows_per_file]
            )
            rows[3], rows[5], rows[7] = None, " \n", texts[number]
            start = number * self.rows_per_file
            table = pa.table({"id": range(start, start + len(rows)), "text": rows})
            last = number == self.files
            pq.write_table(table, self._extra("" if last else number))
        self._extra("").rename(self.folder.parent / "extra.parquet")

    def _extra(self, number: object) -> Path:
        return self.folder / f"{number}.parquet"

    @property
    def extra(self) -> bool:
        """Whether the one file more is there."""
        return self._extra(9).exists()

    def switch(self) -> bool:
        """Add one file more, or take it away again; tell whether it is there now."""
        here, there = self._extra(9), self.folder.parent / "extra.parquet"
        if here.exists():
            here.rename(there)
            return False
        # Written anew, so that its time is new: a source that was there before is a changed one all the same.
        pq.write_table(pq.read_table(there), here)
        there.unlink()
        return True


@dataclass(kw_only=True)
class Case:
    """A job over a corpus that is run, killed and run again."""

    warm: Warm
    endpoint: FakeEndpoint
    corpus: Corpus
    folder: Path
    concurrency: int = 8
    calm: dict[tuple[str, bool], dict[str, bytes]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    settled: dict[str, int] = field(default_factory=dict)
    hit: list[str] = field(default_factory=list)
    kills: int = 0
    paid_again: int = 0
    stated: int = 0

    def job(self, sink: str, store: str, **changes: Any) -> str:
        """Write a job file, and give its path."""
        path = self.folder / f"{sink.replace('.', '-')}-{store}.json"
        job = {
            "source": str(self.corpus.folder),
            "sink": {"path": str(self.folder / sink), "rows_per_part": 30},
            "prompts": [{"ask": {"template": TEMPLATE, "into": "topic"}}],
            "endpoint": {"openai_compatible": {"base_url": self.endpoint.base_url, "model": "any"}},
            "store": f"sqlite:///{self.folder / store}.db",
            "limits": {"concurrency": self.concurrency},
            **changes,
        }
        path.write_text(json.dumps(job), "utf-8")
        return str(path)

    def learn(self, kind: str, *, extra: bool) -> None:
        """Run without a kill, into another place and store: what the killed runs have to come to."""
        sink = "calm.parquet" if kind == "file" else "calm"
        job = self.job(sink, "calm")
        ended = self.warm.run("run", job, "--quiet", "--overwrite")
        assert ended.code == 0, ended.err
        self.calm[kind, extra] = parts(self.folder / sink)
        for row in corpusmill.read(self.folder / sink).to_table().to_pylist():
            key = row["topic_outcome"]["request_key"]
            if key is not None:
                messages = [{"role": "user", "content": TEMPLATE.replace("{text}", row["text"])}]
                self.digests[key] = request_digest({"model": "any", "messages": messages})

    def kill_at(self, job: str, point: str, **options: Any) -> None:
        """Run until the process kills itself at a point, which its log has to show."""
        log = self.folder / "points.log"
        log.unlink(missing_ok=True)
        environment = {"CORPUSMILL_KILL_AT": point, "CORPUSMILL_KILL_LOG": str(log)}
        ended = self.warm.run("run", job, "--quiet", environment=environment, **options)
        assert ended.code == -signal.SIGKILL, f"{point} was not reached: {ended.code} {ended.err}"
        self.hit += log.read_text("utf-8").splitlines()
        self.kills += 1
        self.note_stored(job)

    def kill_by_requests(self, job: str, number: int) -> Ended:
        """Run, and kill the process when so many requests have come in; it may end before that."""
        child = self.warm.start("run", job, "--json", "--quiet")
        seen = 0

        def script(_request: Mapping[str, Any], _attempt: int) -> None:
            nonlocal seen
            seen += 1
            if seen == number:
                child.signal(signal.SIGKILL)

        self.endpoint.script(script)
        ended = child.wait()
        self.endpoint.script(None)
        if ended.code == -signal.SIGKILL:
            self.kills += 1
        self.note_stored(job)
        return ended

    def go_on(self, job: str, **options: Any) -> dict[str, Any]:
        """Run to the end, and give the report; no answer that was stored before may be asked again."""
        ended = self.warm.run("run", job, "--json", "--quiet", **options)
        assert ended.code == 0, ended.err
        self.note_stored(job)
        return ended.report

    def note_stored(self, job: str) -> None:
        """Compare the books: whatever the store held before was not computed again."""
        details = self.endpoint.stats().details
        assert details is not None
        for key, computed in self.settled.items():
            assert details[self.digests[key]].computed == computed, f"{key} was stored and asked again"
        store = json.loads(Path(job).read_text("utf-8"))["store"].removeprefix("sqlite:///")
        for key in stored_keys(Path(store)):
            self.settled.setdefault(key, details[self.digests[key]].computed)

    def check_payments(self, report: Mapping[str, Any], *, kills: int) -> None:
        """Compare what was paid twice with what the report says, and that with the promise."""
        again = self.endpoint.stats(details=False).computed_again
        assert again <= report["possibly_paid_twice"] <= kills * self.concurrency
        self.paid_again += again
        self.stated += report["possibly_paid_twice"]

    def check_output(self, sink: str, *, extra: bool) -> None:
        """The bytes are those of a run that was not killed."""
        kind = "file" if sink.endswith(".parquet") else "folder"
        assert parts(self.folder / sink) == self.calm[kind, extra]

    def check_cleaned(self, job: str, sink: str, **options: Any) -> None:
        """The next run that writes removes what the killed ones left."""
        extra = self.corpus.switch()
        assert not self.go_on(job, **options)["skipped_run"]
        self.check_output(sink, extra=extra)
        names = {path.name for path in self.folder.iterdir()}
        assert not [name for name in names if name.startswith(f".{sink}.corpusmill")]
        inside = self.folder / (f"_{sink}.corpusmill" if sink.endswith(".parquet") else f"{sink}/_corpusmill")
        assert {path.name for path in inside.iterdir()} <= {"manifest.json", "report.json", "report.html"}

    def check_readers(self, sink: str) -> None:
        """Whoever reads in the middle of a replacement finds one whole dataset, the old one or the new one."""
        table = corpusmill.read(self.folder / sink).to_table()
        assert table["topic"].null_count == 2 * (len(table) // self.corpus.rows_per_file)
        assert len(table) in {
            self.corpus.rows_per_file * self.corpus.files,
            self.corpus.rows_per_file * (self.corpus.files + 1),
        }


def parts(sink: Path) -> dict[str, bytes]:
    """Give the bytes of a dataset by the names of its files."""
    if sink.is_file():
        return {"": sink.read_bytes()}
    return {path.name: path.read_bytes() for path in sorted(sink.glob("*.parquet"))}


def stored_keys(store: Path) -> list[str]:
    """List the request keys that have an answer in the store, hexadecimal."""
    if not store.exists():
        return []
    connection = sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)
    try:
        return [row[0] for row in connection.execute("SELECT lower(hex(key)) FROM completions")]
    except sqlite3.OperationalError:
        return []  # killed before the tables were made
    finally:
        connection.close()


def kill_while_asking(case: Case) -> None:
    """Kill one run at every point before its commit, then in it; each time the same command goes on."""
    job = case.job("out", "asked")
    for point in (
        "rendering:1",
        "claiming:1",
        "sending:7",
        "store.commit:2",
        "store.committed:2",
        "stored:9",
        "part:1",
        "sink.part:2",
        "before commit:1",
        "sink.staged:1",
        "sink.manifest:1",
    ):
        case.kill_at(job, point)
        assert not (case.folder / "out").exists(), point
    case.kill_at(job, "sink.renamed:1")
    report = case.go_on(job)
    assert report["skipped_run"]
    case.check_output("out", extra=False)
    case.check_payments(report, kills=case.kills)


def kill_while_replacing(case: Case) -> None:
    """Kill at each step by which a folder takes another's place, with and without an exchange of names."""
    job = case.job("out", "asked")
    without_exchange = {"patches": {"sys.platform": "other"}}
    for point, options in (
        ("sink.manifest:1", {}),
        ("sink.exchanged:1", {}),
        ("sink.old-removed:1", {}),
        ("committed:1", {}),
        ("sink.aside:1", without_exchange),
        ("sink.renamed:1", without_exchange),
    ):
        extra = case.corpus.switch()
        case.kill_at(job, point, **options)
        if point != "sink.aside:1":
            case.check_readers("out")
        case.go_on(job)
        case.check_output("out", extra=extra)
    case.check_cleaned(job, "out")


def kill_while_replacing_a_file(case: Case) -> None:
    """Kill at each step by which one file takes another's place."""
    job = case.job("out.parquet", "asked")
    case.go_on(job)
    for point in ("sink.staged:1", "sink.renamed:1", "sink.manifest:1", "sink.old-removed:1"):
        extra = case.corpus.switch()
        case.kill_at(job, point)
        case.check_readers("out.parquet")
        case.go_on(job)
        case.check_output("out.parquet", extra=extra)
    case.check_cleaned(job, "out.parquet")


def kill_while_copying(case: Case) -> None:
    """Kill at each step of a commit into a folder that cannot be renamed: the one in which the run works."""
    folder = case.folder / "fixed"
    folder.mkdir()
    job = case.job("fixed", "asked")
    for point in ("sink.staged:1", "sink.moved:1", "sink.manifest:1", "sink.old-removed:1"):
        extra = case.corpus.switch()
        case.kill_at(job, point, folder=folder)
        case.go_on(job, folder=folder)
        case.check_readers("fixed")
        case.check_output("fixed", extra=extra)
    case.check_cleaned(job, "fixed", folder=folder)


def kill_at_every_point(case: Case) -> None:
    """Learn what calm runs come to, then kill while asking, and in each kind of commit."""
    case.learn("folder", extra=False)
    case.learn("file", extra=False)
    case.endpoint.reset()
    kill_while_asking(case)
    case.corpus.switch()
    case.learn("folder", extra=True)
    case.learn("file", extra=True)
    case.corpus.switch()
    kill_while_replacing(case)
    kill_while_replacing_a_file(case)
    kill_while_copying(case)
    if case.corpus.extra:
        case.corpus.switch()


def kill_at_random(case: Case, *, kills: int, seed: int) -> int:
    """Kill after random numbers of requests, over fresh stores, until there were so many kills; count the runs."""
    chance = random.Random(seed)
    rounds = 0
    while case.kills < kills:
        rounds += 1
        case.settled.clear()
        case.endpoint.reset()
        before = case.kills
        sink, store = f"random{rounds}", f"random{rounds}"
        job = case.job(sink, store)
        while case.kills < kills:
            ended = case.kill_by_requests(job, chance.randint(1, 60))
            if ended.code == 0:
                break
            assert ended.code == -signal.SIGKILL, ended.err
        report = case.go_on(job)
        case.check_payments(report, kills=case.kills - before)
        case.check_output(sink, extra=False)
    return rounds
