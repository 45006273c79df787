"""pytest fixtures: `fake_endpoint`, and `fake_endpoint_factory` for one with options.

pytest loads this module in every project that has corpusmill installed, so it imports nothing but pytest.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from corpusmill.testing import FakeEndpoint


@pytest.fixture
def fake_endpoint_factory() -> Iterator[Callable[..., FakeEndpoint]]:
    """Return a function that takes the options of `FakeEndpoint` and returns one, running."""
    from corpusmill.testing import FakeEndpoint

    with ExitStack() as running:

        def start(**options: Any) -> FakeEndpoint:
            return running.enter_context(FakeEndpoint(**options))

        yield start


@pytest.fixture
def fake_endpoint(fake_endpoint_factory: Callable[..., FakeEndpoint]) -> FakeEndpoint:
    """Return a running endpoint without latency, limits or faults."""
    return fake_endpoint_factory()
