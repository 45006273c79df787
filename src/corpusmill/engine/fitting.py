"""What a run knows of its endpoint's context before it asks: learned from the usage in its store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.rows.fit import Fit, learn_fit
from corpusmill.rows.tokens import Counted

if TYPE_CHECKING:
    from corpusmill.endpoints import Endpoint
    from corpusmill.store.protocol import Store

SAMPLES = 2_000
"""The newest answers of a model that are looked at."""


def fit_of(store: Store | None, endpoint: Endpoint) -> Fit | None:
    """Learn how long a request may be, without a store from nothing; None where the context's size is not known."""
    context = endpoint.capabilities.context_tokens
    if context is None:
        return None
    samples = () if store is None else store.usage_samples(model=endpoint.model, limit=SAMPLES)
    return learn_fit(
        context,
        [Counted(one.script, one.characters, one.prompt_tokens, one.completion_tokens) for one in samples],
    )
