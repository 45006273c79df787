"""What the proofs share: a process that forks children, and a fake endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.proof.warm import Warm

from corpusmill.testing import FakeEndpoint

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """A process that has everything imported, and forks a child for each command line."""
    with Warm() as warm:
        yield warm


@pytest.fixture
def endpoint() -> Iterator[FakeEndpoint]:
    """A fake endpoint without faults."""
    with FakeEndpoint() as endpoint:
        yield endpoint
