"""An event loop whose time passes only in its timers, so that hours of waiting take no time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Whenever nothing is ready, its clock jumps to the next timer."""

    _scheduled: list[asyncio.TimerHandle]
    _ready: Any

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def time(self) -> float:
        return self.seconds

    def _run_once(self) -> None:
        if not self._ready:
            times = [timer.when() for timer in self._scheduled if not timer.cancelled()]
            if not times:
                raise RuntimeError("nothing is ready and nothing is scheduled: everybody waits for ever")
            self.seconds = max(self.seconds, min(times))
        super()._run_once()  # type: ignore[misc]


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Return a function that runs a coroutine in virtual time, and fails where it would never end."""

    def run_in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(main)

    return run_in_virtual_time
