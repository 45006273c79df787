"""Why a row would be asked: the stored request that is nearest to it, and the fields in which the two differ."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from corpusmill.engine.elsewhere import line_to_write
from corpusmill.engine.fitting import fit_of
from corpusmill.engine.ladder import climb, stored_answer
from corpusmill.errors import SourceError
from corpusmill.rows.render import Renderer, characters
from corpusmill.rows.script import script_of_messages
from corpusmill.store import open_store
from corpusmill.tables import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from corpusmill.job import Job
    from corpusmill.prompts.prompt import Prompt, Rendered
    from corpusmill.rows.render import Asked
    from corpusmill.store import Entry, Store


def explain_row(job: Job, row: int) -> Iterator[str]:
    """Say, for each prompt of a job, whether a run would answer a row of its source from its store; a line each."""
    source = open_source(job.source)
    chunk = next(source.chunks(row), None)
    if chunk is None or chunk.batch.num_rows == 0:
        raise SourceError(f"the job has no row {row}{_rows(job, source.rows)}")
    batch = chunk.batch.slice(0, 1)
    if job.mode == "off":
        yield "the mode is off: a run asks every row, whatever the store holds"
    store = open_store(job.store, read_only=True)
    try:
        for prompt in job.prompts:
            renderer = Renderer(prompt, identity=job.endpoint.identity, check=job.endpoint.check)
            asked = renderer.ask(batch)
            key = asked.keys[0]
            if key is None:
                why = f"no request ({asked.unaskable.get(0, 'the row is blank')})"
            else:
                rendered, entries = asked.rendered(0), store.get_many([key]).get(key, [])
                why = (
                    _answered(job, asked, entries)
                    or _too_long(job, store, rendered)
                    or _missed(job, prompt, rendered, entries)
                    or _elsewhere(job, prompt, store, batch)
                    or _nearest(job, store, renderer, rendered)
                )
                why = f"{why} (request key {key.hex()})"
            yield f"{prompt.into}: {why}"
    finally:
        store.close()


def _rows(job: Job, rows: int | None) -> str:
    """Say how rows are counted: what the job leaves out of its source has no number."""
    chosen = [name for name in ("filter", "limit", "rows") if getattr(job.source, name) is not None]
    there = "" if rows is None else f"; there are {rows:,}"
    after = f", of those that source.{' and source.'.join(chosen)} leave{'s' if len(chosen) == 1 else ''}"
    return f"{there}; rows are counted from 0{after if chosen else ''}"


def _answered(job: Job, asked: Asked, entries: Sequence[Entry]) -> str | None:
    rung = stored_answer(
        entries,
        asked,
        0,
        context=job.endpoint.capabilities.context_tokens,
        not_before=math.inf if job.mode == "refresh" else None,
        refresh=job.refresh,
    )
    return None if rung.entry is None else "answered in the store"


def _too_long(job: Job, store: Store, rendered: Rendered) -> str | None:
    fit = fit_of(store, job.endpoint)
    messages = rendered.messages
    reason = None if fit is None else fit.too_long(characters(messages), script_of_messages(messages))
    return None if reason is None else f"no request, for {reason}"


def _missed(job: Job, prompt: Prompt, rendered: Rendered, entries: Sequence[Entry]) -> str | None:
    """Say why what is stored under the very key does not serve; None when nothing is."""
    if not entries:
        return None
    rung = climb(
        entries,
        ceiling=rendered.ceiling,
        highest=prompt.escalate_to,
        context=job.endpoint.capabilities.context_tokens,
    )
    if rung.entry is not None:
        which = f", and its answer is one of {', '.join(job.refresh)}" if job.refresh else ""
        return f"answered in the store, and asked again all the same: the mode is refresh{which}"
    completed = [entry for entry in entries if entry.kind == "completion"]
    if not completed:
        return f"the very request is stored, but no answer to it could be parsed ({len(entries)} tried)"
    ceilings = ", ".join(_ceiling(entry.ceiling) for entry in completed)
    if rung.raised:
        return (
            f"the very request is stored, but its answer was cut (under {ceilings}); it is asked again under "
            f"{_ceiling(rung.ceiling)}"
        )
    return (
        f"the very request is stored, but its answer was cut or asked under another ceiling ({ceilings}; now "
        f"{_ceiling(rendered.ceiling)})"
    )


def _ceiling(tokens: int | None) -> str:
    return "no ceiling" if tokens is None else f"{tokens:,} tokens"


def _elsewhere(job: Job, prompt: Prompt, store: Store, batch: pa.RecordBatch) -> str | None:
    """Say under which other identity the very request is stored; None when it is under none."""
    line = line_to_write(store, [prompt], batch, job.endpoint)
    if line is None:
        return None
    return (
        f"not stored under the identity of this endpoint, {job.endpoint.identity!r}, but under another one; if it is "
        f"the same model that answers, write under the endpoint: {line}"
    )


def _nearest(job: Job, store: Store, renderer: Renderer, rendered: Rendered) -> str:
    missing = "not stored (no answer to this very request is; one that failed leaves none)"
    nearest = store.nearest(renderer.fields(rendered))
    if nearest is None:
        return f"{missing}; nothing like it is"
    differs = ", ".join(nearest.differs)
    # Of the other identity only a digest is stored, and the name of the model that answered.
    if "identity" in nearest.differs:
        other = "" if nearest.model is None else f", and {nearest.model!r} answered the other"
        differs += f" (this one's identity is {job.endpoint.identity!r}{other})"
    return f"{missing}; the nearest stored request, {nearest.entry.key.hex()}, differs in {differs}"
