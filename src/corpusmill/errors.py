"""The exceptions that leave corpusmill.

A bad answer is data (see `outcome.py`); what stands here is a run that cannot go on. Each message names the
thing, its value, and what to do next. `exit_code` is what the command line ends with. `may_pass` says whether the
very same call may work another time, by which orchestrators try again or do not.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from corpusmill.report import RunReport


class CorpusmillError(Exception):
    """The root of every error raised on purpose by this package."""

    exit_code: ClassVar[int] = 1
    may_pass: ClassVar[bool] = True


class UsageError(CorpusmillError):
    """What was asked for cannot be done as written; nothing was sent and nothing was spent.

    `place` are the keys that lead to what is wrong in a job, such as `("prompts", 1)`; it is empty where none do.
    """

    exit_code: ClassVar[int] = 2
    may_pass: ClassVar[bool] = False
    place: tuple[str | int, ...] = ()


@contextlib.contextmanager
def placed(*place: str | int) -> Iterator[None]:
    """Note in a `UsageError` where in a job it belongs, unless that is known more closely."""
    try:
        yield
    except UsageError as error:
        error.place = error.place or place
        raise


class JobError(UsageError):
    """A job file is wrong: the message names the file, the line, the key, and the nearest right key."""


class PromptError(UsageError):
    """A prompt does not fit the table or the endpoint: an unknown column, a clash of names, a wrong parameter."""


class SourceError(UsageError):
    """The source cannot be read as asked: missing, unreadable, of an unsupported type."""


class SourceUnreachableError(SourceError):
    """The source could not be read this time: a network, an object store, a disk. Another time it may be."""

    exit_code: ClassVar[int] = 1
    may_pass: ClassVar[bool] = True


class SourceChangedError(CorpusmillError):
    """A file of the source changed while the run was reading it, or since its shard was planned."""


class ShardChangedError(SourceChangedError):
    """The source or the job is no longer what the shards were planned for: they have to be planned again."""

    may_pass: ClassVar[bool] = False


class SinkError(UsageError):
    """The sink cannot be written as asked: not empty, of another job, not writable, held by another run."""


class SinkHeldError(SinkError):
    """Another run holds the sink: the same call works once that one has ended."""

    exit_code: ClassVar[int] = 3
    may_pass: ClassVar[bool] = True


class StoreError(CorpusmillError):
    """The store cannot be used: unreadable, truncated, of a newer format, on a network file system, disk full."""


class StoreMissError(CorpusmillError):
    """The mode is `replay` and a request has no stored answer."""

    may_pass: ClassVar[bool] = False


class MissingExtraError(UsageError):
    """An optional dependency is not installed; the message names the extra to install."""


class RunEndedError(CorpusmillError):
    """A run that stopped before its end. Everything paid for is in the store, and running again resumes.

    `report` holds what had been done by then; it is None when the run ended before its first row. `report_address` says
    where it was written down as JSON, an absolute path or a URL; it is None where there is no report or no sink, and
    where it could not be written.
    """

    report: RunReport | None = None
    report_address: str | None = None


class EndpointError(RunEndedError):
    """The endpoint refuses the whole run: a wrong key, an unknown or withdrawn model, a wrong URL."""

    may_pass: ClassVar[bool] = False


class AuthenticationError(EndpointError):
    """The key is missing, wrong, or not allowed (HTTP 401 or 403)."""


class ModelUnavailableError(EndpointError):
    """The model is unknown to the endpoint or has been withdrawn (HTTP 404 or 410, `model_not_found`)."""


class BrokenEndpointError(EndpointError):
    """The first answers, or many in a row, all failed in one and the same way: the endpoint is not what we think."""


class EndpointDownError(RunEndedError):
    """The endpoint did not answer for longer than the patience allows."""


class ComeBackLaterError(RunEndedError):
    """A quota is used up, or a transform job is still stopping: the same call makes sense again later.

    `resets_at` says when (UTC), None when it is not known.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, *, resets_at: datetime | None = None) -> None:
        """Keep the moment of the reset beside the message."""
        super().__init__(message)
        self.resets_at = resets_at


class BudgetUsedUpError(RunEndedError):
    """The budget of the run does not allow another request."""

    exit_code: ClassVar[int] = 4
    may_pass: ClassVar[bool] = False


class InterruptedRunError(RunEndedError):
    """The run was told to stop; it drained what was in flight and kept it."""

    exit_code: ClassVar[int] = 130


class JobStoppedError(InterruptedRunError):
    """Somebody has stopped a transform job of the run; running again starts another one."""


class JobsAtWorkError(RunEndedError):
    """Transform jobs hold rows of the run and it does not wait for them: when they have ended, running again goes on.

    `jobs` are their names.
    """

    def __init__(self, message: str, *, jobs: tuple[str, ...] = ()) -> None:
        """Keep the names beside the message."""
        super().__init__(message)
        self.jobs = jobs


class TooManyFailuresError(RunEndedError):
    """More rows failed than `max_failed` allows: nothing was committed, the failures lie beside the sink."""


class CountsError(CorpusmillError):
    """The counts of a run do not add up to its rows. This is a defect of corpusmill; please report it."""

    may_pass: ClassVar[bool] = False
