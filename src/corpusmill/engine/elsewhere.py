"""Answers that a store holds under another identity: those of a server that has moved since."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from corpusmill.rows.render import Renderer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from corpusmill.endpoints import Endpoint
    from corpusmill.prompts.prompt import Prompt
    from corpusmill.store.protocol import Store


def line_to_write(
    store: Store, prompts: Sequence[Prompt], batch: pa.RecordBatch, endpoint: Endpoint
) -> str | None:
    """Give the line of a job file under which rows of this batch are found; None where no other identity has any.

    The rows are looked up by their keys under the identities of the store's runs, so that a few are enough. What
    another model is known to have answered does not count.
    """
    for identity in store.identities():
        if identity == endpoint.identity or _of_another_model(identity, endpoint.model):
            continue
        asked = [Renderer(prompt, identity=identity).ask(batch) for prompt in prompts]
        found = store.get_many([key for each in asked for key in each.keys if key is not None])
        if any(entry.kind == "completion" for entries in found.values() for entry in entries):
            return f"identity: {json.dumps(identity, ensure_ascii=False)}"
    return None


def _of_another_model(identity: str, model: str) -> bool:
    """Tell whether an identity that nobody stated names another model behind its URL."""
    url, _, named = identity.partition(" ")
    return "://" in url and named != model
