"""A run whose endpoint is a transform job: its store is filled first, then it asks nobody, or a real-time endpoint.

For any other endpoint nothing happens here.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from corpusmill.endpoints.sagemaker import SageMakerTransform
from corpusmill.engine.engine import Progress
from corpusmill.engine.fitting import fit_of
from corpusmill.errors import JobsAtWorkError, TooManyFailuresError, UsageError
from corpusmill.rows.render import Renderer
from corpusmill.transform.beside import held_beside
from corpusmill.transform.collecting import Collector
from corpusmill.transform.filling import Filler
from corpusmill.transform.planning import FAILED, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from corpusmill.endpoints import Endpoint
    from corpusmill.outcome import Status
    from corpusmill.prompts.prompt import Prompt
    from corpusmill.store.protocol import Store
    from corpusmill.transform.filling import TransformProgress
    from corpusmill.transform.planning import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Who the run asks: an endpoint, and the rows that it does not ask because no job can answer them.

    `finish` is to be called when the output is committed.
    """

    endpoint: Endpoint
    refused: Callable[[bytes], Refusal | None] | None
    finish: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """What filling needs of a run: its rows, its store, and how it is seen and stopped."""

    chunks: Callable[[], Iterable[Any]]
    prompts: Sequence[Prompt]
    store: Store
    run_key: str | None
    refresh: bool = False
    statuses: frozenset[Status] | None = None
    replay: bool = False
    price: Callable[[int, int], float] | None = None
    progress: Callable[[Progress], None] | None = None
    on_start: Callable[[Any], None] | None = None


@contextlib.contextmanager
def open_filler(endpoint: SageMakerTransform, run: Filling) -> Iterator[Filler]:
    """Join the store for a filler, and leave it in the end."""
    if run.run_key is None:
        raise UsageError("transform jobs need a source that can be read twice: files, a table or a dataset")
    store = run.store
    member = store.join(run.run_key, label=endpoint.identity)
    try:
        rows = Rows(
            chunks=run.chunks,
            renderers=[
                Renderer(prompt, identity=endpoint.identity, check=endpoint.check) for prompt in run.prompts
            ],
            store=store,
            fit=fit_of(store, endpoint),
            not_before=member.first_started_at if run.refresh else None,
            refresh=run.statuses,
        )
        filler = Filler(
            endpoint,
            rows,
            member,
            collector=lambda aws: Collector(endpoint, aws, store, member, price=run.price),
            progress=None if run.progress is None else _shown(run.progress),
        )
        with contextlib.closing(filler):
            yield filler
    finally:
        store.leave(member.owner)


@contextlib.contextmanager
def filled_by_jobs(endpoint: Endpoint, run: Filling) -> Iterator[Asking]:
    """Fill the store by transform jobs, if that is what the endpoint is, and say whom to ask then."""
    if not isinstance(endpoint, SageMakerTransform) or run.replay:
        refused_beside = None if run.replay else held_beside(endpoint)
        yield Asking(endpoint=endpoint, refused=refused_beside, finish=_nothing)
        return
    with open_filler(endpoint, run) as filler:
        if run.on_start is not None:
            run.on_start(filler)
        if endpoint.wait:
            filler.fill()
        elif at_work := filler.advance():
            raise JobsAtWorkError(
                f"transform jobs are at work: {', '.join(at_work)}; when they have ended, the same call goes on",
                jobs=tuple(at_work),
            )
        known, rest = filler.filled.refused, endpoint.real_time

        def refused(key: bytes) -> Refusal | None:
            return known.get(key) or (FAILED, "no transform job has answered this row; run again to send it")

        try:
            yield Asking(
                endpoint=endpoint if rest is None else rest,
                refused=refused if rest is None else None,
                finish=filler.finish,
            )
        except TooManyFailuresError:
            # The rows that failed are to be asked again by the next run, so that nothing is held against them.
            filler.finish()
            raise


def check_streamable(endpoint: Endpoint) -> None:
    """Raise `UsageError` for an endpoint that cannot answer a stream of rows as they come."""
    if isinstance(endpoint, SageMakerTransform):
        raise UsageError(
            "a transform job needs all rows before it answers the first: run the whole job, or give a SageMaker "
            "endpoint for previews and streams"
        )


def check_shardable(endpoint: Endpoint) -> None:
    """Raise `UsageError` for an endpoint that cannot be asked shard by shard."""
    if isinstance(endpoint, SageMakerTransform):
        raise UsageError(
            "transform jobs take all rows of a run and cut them by themselves (shard_rows of sagemaker_transform): run "
            "the whole job, in Airflow by TransformJobOperator, or give a SageMaker endpoint to ask shards in real time"
        )


def _nothing() -> None:
    return


def _shown(show: Callable[[Progress], None]) -> Callable[[TransformProgress], None]:
    """Show the filling in the way in which a run is shown."""

    def told(progress: TransformProgress) -> None:
        phase = progress.phase
        if progress.state:
            minutes, seconds = divmod(int(progress.state_seconds), 60)
            phase = f"{progress.name} {progress.state} for {minutes} min {seconds:02} s"
        if progress.name:
            phase = f"{phase}, {progress.shards_done} of {progress.shards} shards"
        show(
            Progress(
                phase=phase,
                rows=progress.rows_done,
                total=progress.rows or None,
                seconds=progress.seconds,
                live=progress.rows_done,
                hits=0,
                tokens=progress.tokens,
                in_flight=0,
                concurrency=0,
                backing_off=0,
                rate_limited=0,
                waiting=None,
            )
        )

    return told
