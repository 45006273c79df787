"""Why a row would be asked: the stored request that is nearest to it, and the fields in which the two differ."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from corpusmill.errors import SourceError
from corpusmill.rows.render import Renderer
from corpusmill.store import choose, open_store
from corpusmill.tables import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from corpusmill.job import Job


def explain_row(job: Job, row: int) -> Iterator[str]:
    """Say, for each prompt of a job, whether a row of its source is answered in its store; a line each."""
    source = open_source(replace(job.source))
    chunk = next(source.chunks(row), None)
    if chunk is None or chunk.batch.num_rows == 0:
        raise SourceError(f"the source has no row {row}; rows are counted from 0")
    batch = chunk.batch.slice(0, 1)
    store = open_store(job.store, read_only=True)
    try:
        for prompt in job.prompts:
            renderer = Renderer(prompt, identity=job.endpoint.identity)
            asked = renderer.ask(batch)
            key, rendered = asked.keys[0], asked.rendered[0]
            if key is None or rendered is None:
                yield f"{prompt.into}: no request ({asked.unaskable.get(0, 'the row is blank')})"
                continue
            entries = store.get_many([key]).get(key, [])
            if choose(entries, rendered.ceiling) is not None:
                yield f"{prompt.into}: answered in the store (request key {key.hex()})"
                continue
            if entries:
                ceilings = ", ".join(str(entry.ceiling) for entry in entries)
                yield (
                    f"{prompt.into}: the very request is stored, but its answer was cut or asked under another "
                    f"ceiling of tokens ({ceilings}; now {rendered.ceiling})"
                )
                continue
            nearest = store.nearest(renderer.fields(rendered))
            if nearest is None:
                yield f"{prompt.into}: not stored; nothing like it is"
                continue
            yield (
                f"{prompt.into}: not stored (request key {key.hex()}); the nearest stored request differs in "
                f"{', '.join(nearest.differs)} (its key is {nearest.entry.key.hex()})"
            )
    finally:
        store.close()
