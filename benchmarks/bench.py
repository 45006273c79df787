"""What the measurements share: a folder to work in, the corpora that lie there, and a run of ours."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.child import call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import corpusmill
    from corpusmill.engine.engine import Engine, Progress
    from corpusmill.report import RunReport

TEMPLATE = "Name the topic of: {text}"
MODEL = "canned"
NOWHERE = "http://127.0.0.1:9/v1"
"""The endpoint of runs that must find everything in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where to work, and how much: `quick` gives rough figures from little work."""

    folder: Path
    quick: bool = False

    def size(self, usual: int, quick: int) -> int:
        """Choose how much to do."""
        return quick if self.quick else usual

    def texts(self) -> Path:
        """Give the file of real texts, made at its first use."""
        path = self.folder / "texts.parquet"
        if not path.exists():
            call("benchmarks.corpus:write", path=str(path))
        return path

    def corpus(self, *, rows: int, distinct: int | None = None) -> Path:
        """Give a file of so many rows, of which `distinct` (None: all) differ; made at its first use."""
        distinct = rows if distinct is None else distinct
        path = self.folder / f"corpus-{rows}-{distinct}.parquet"
        if not path.exists():
            call(
                "benchmarks.corpus:grow",
                texts=str(self.texts()),
                path=str(path),
                rows=rows,
                distinct=distinct,
            )
        return path

    def place(self, name: str) -> Path:
        """Give an empty folder."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path


def prompt() -> corpusmill.Ask:
    """Give the prompt of all measurements."""
    import corpusmill

    return corpusmill.Ask(TEMPLATE, into="topic")


def endpoint(base_url: str) -> corpusmill.OpenAICompatible:
    """Give the endpoint; its identity does not depend on the port, so that a store can be used again."""
    import corpusmill

    return corpusmill.OpenAICompatible(base_url, MODEL, identity="benchmark", api_key="sk-canned")


def run(
    *,
    corpus: str,
    sink: str,
    store: str,
    base_url: str = NOWHERE,
    concurrency: int = 64,
    mode: str = "read-write",
    rows_per_part: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_start: Callable[[Engine], None] | None = None,
) -> RunReport:
    """Run from Parquet to Parquet as a user does, with the defaults but for what is given."""
    import corpusmill

    target: Any = (
        sink if rows_per_part is None else corpusmill.SinkSpec(path=sink, rows_per_part=rows_per_part)
    )
    return corpusmill.enrich(
        corpus,
        target,
        prompt(),
        endpoint=endpoint(base_url),
        store=f"sqlite:///{store}",
        mode=mode,
        limits=corpusmill.Limits(concurrency=concurrency),
        progress=progress,
        on_start=on_start,
    )


def run_job(
    *,
    corpus: str,
    sink: str,
    store: str,
    base_url: str,
    progress: Callable[[Progress], None] | None = None,
) -> RunReport:
    """Run the same as a job, as the command line, Airflow and Dagster do."""
    from corpusmill.enrich_job import enrich_job
    from corpusmill.job import job_of

    job = {
        "source": corpus,
        "sink": sink,
        "prompts": [{"ask": {"template": TEMPLATE, "into": "topic"}}],
        "endpoint": {
            "openai_compatible": {
                "base_url": base_url,
                "model": MODEL,
                "identity": "benchmark",
                "api_key": "sk-canned",
            }
        },
        "store": f"sqlite:///{store}",
    }
    return enrich_job(job_of(job), progress=progress)
