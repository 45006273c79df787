"""`enrich_job`: a `Job` through `enrich`, for whoever runs jobs: the command line, Airflow, Dagster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.allocator import spare_memory
from corpusmill.run import enrich

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpusmill.engine.engine import Engine, Progress
    from corpusmill.job import Job
    from corpusmill.report import RunReport
    from corpusmill.tables import SourceLike


def enrich_job(
    job: Job,
    *,
    source: SourceLike | None = None,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
    on_start: Callable[[Engine], None] | None = None,
) -> RunReport:
    """Run a job; `source` takes the place of the job's own. For the rest, and for what is raised, see `enrich`.

    The whole process is set to spare memory (`corpusmill.allocator`).
    """
    spare_memory()
    return enrich(
        job.source if source is None else source,
        job.sink,
        *job.prompts,
        endpoint=job.endpoint,
        store=job.store,
        mode=job.mode,
        refresh=job.refresh,
        limits=job.limits,
        retry=job.retry,
        failures=job.failures,
        budget=job.budget,
        prices=job.prices,
        telemetry=job.telemetry,
        overwrite=overwrite,
        progress=progress,
        on_start=on_start,
        written_job=job.written,
    )
