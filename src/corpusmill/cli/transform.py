"""`corpusmill transform`: the steps of a SageMaker transform job, one by one; `run` does them all."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from corpusmill.cli.job_file import job_of_file
from corpusmill.cli.run import write_json
from corpusmill.endpoints.sagemaker import SageMakerTransform
from corpusmill.errors import ComeBackLaterError, UsageError
from corpusmill.transform.steps import cancel, collect, states, submit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from corpusmill.job import Job
    from corpusmill.transform.steps import JobState

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, nothing else.")
_JOB = click.argument("job", type=click.Path(dir_okay=False))


@click.group("transform", short_help="SageMaker transform jobs, step by step.")
def transform_group() -> None:
    """Submit, watch, take in and cancel the transform jobs of a job file.

    `corpusmill run` does all of it; a run takes up whatever these commands have begun.
    """


@transform_group.command("submit")
@_JOB
@click.option(
    "--overwrite", is_flag=True, help="The run that follows is to remove all that lies in the sink."
)
@_JSON
def submit_command(job: str, *, overwrite: bool, as_json: bool) -> None:
    """Send the rows that have no answer yet; never a second time while a job holds them, unless it was stopped."""
    found = _step(
        job,
        partial(submit, overwrite=overwrite),
        as_json=as_json,
        nothing="nothing to send: every row is answered or refused",
    )
    stopping = [state.name for state in found if state.stopped]
    if stopping:
        raise ComeBackLaterError(
            f"still stopping, so that the rows are not sent anew yet: {', '.join(stopping)}; run the same command when "
            f"`corpusmill transform status {job}` says Stopped"
        )


@transform_group.command("status")
@_JOB
@_JSON
def status_command(job: str, *, as_json: bool) -> None:
    """Say how the open jobs stand; reads and changes nothing else."""
    _step(job, states, as_json=as_json, nothing="no open transform job")


@transform_group.command("collect")
@_JOB
@_JSON
def collect_command(job: str, *, as_json: bool) -> None:
    """Take the outputs that are there into the store; `corpusmill run` then writes the sink."""
    _step(job, collect, as_json=as_json, nothing="no open transform job")


@transform_group.command("cancel")
@_JOB
@_JSON
def cancel_command(job: str, *, as_json: bool) -> None:
    """Stop the open jobs. The service stores nothing of a stopped job, so collect first what has come."""
    _step(job, cancel, as_json=as_json, nothing="no open transform job")


def _step(
    path: str, step: Callable[[Job, SageMakerTransform], Sequence[JobState]], *, as_json: bool, nothing: str
) -> Sequence[JobState]:
    with job_of_file(path) as job:
        if not isinstance(job.endpoint, SageMakerTransform):
            raise UsageError(
                f"the endpoint of {path} is no sagemaker_transform, so there are no transform jobs"
            )
        found = step(job, job.endpoint)
    if as_json:
        write_json(found)
        return found
    for state in found:
        click.echo(state.told())
    if not found:
        click.echo(nothing)
    return found
