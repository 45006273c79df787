"""The one door from synchronous code into the asynchronous engine.

The engine runs in a thread of its own with an event loop of its own, so that it works inside a notebook or a
worker whose main thread already runs a loop, and so that nothing is created before a fork and used after it. The
caller waits in short steps: a time-out or a termination that an orchestrator raises in the calling thread gets
through within one step, ends the sending of requests, and goes on upwards as it is.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

STEP = 0.2
"""Seconds between two looks at whether the engine is done."""

GRACE = 5.0
"""Seconds that answers already on their way get to arrive and be kept, when the caller is torn away."""


class Stoppable(Protocol):
    """What the door needs of the engine."""

    def stop(self, *, grace: float | None) -> None:
        """Send nothing new; keep what arrives within `grace` seconds (None: however long), then end."""


class EngineThread:
    """A coroutine that runs in a thread with its own event loop. The thread never keeps a process alive.

    `done` is set at its end; `failure` is then what it raised.
    """

    def __init__(self, main: Callable[[], Coroutine[Any, Any, None]], stoppable: Stoppable) -> None:
        """Start at once."""
        self._main = main
        self._stoppable = stoppable
        self.failure: BaseException | None = None
        self.done = threading.Event()
        self._thread = threading.Thread(target=self._work, name="corpusmill", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, whatever it is
            self.failure = error
        finally:
            self.done.set()

    def wait(self) -> None:
        """Wait for the end, and raise what the coroutine raised."""
        try:
            while not self.done.wait(STEP):
                pass
        except BaseException:
            self.tear_away()
            raise
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def tear_away(self) -> None:
        """Stop the engine because the caller leaves; give what is in the air a few seconds to be kept."""
        self._stoppable.stop(grace=GRACE)
        self.done.wait(GRACE + 2.0)
