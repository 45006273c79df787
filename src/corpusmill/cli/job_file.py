"""The job file that a command is given, and where in it the fault lies that shows only beside the source."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from corpusmill.errors import UsageError
from corpusmill.job import load_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from corpusmill.job import Job


@contextlib.contextmanager
def job_of_file(path: str) -> Iterator[Job]:
    """Read a job file; a `UsageError` about a place in it then names file and line, as those of its form do."""
    job = load_job(path)
    try:
        yield job
    except UsageError as error:
        line = job.places.line(error.place)
        if line is not None:
            error.args = (f"{path}:{line}: {error}",)
        raise
