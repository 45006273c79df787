"""Job files: YAML 1.2 to the objects of the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corpusmill.job.job import Job, job_of, job_schema, load_job, parse_job

__all__ = ["Job", "job_of", "job_schema", "load_job", "parse_job"]


def __getattr__(name: str) -> object:
    # The models of a job file are light; what a job is made into brings Arrow with it.
    if name in __all__:
        from corpusmill.job import job

        return getattr(job, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
