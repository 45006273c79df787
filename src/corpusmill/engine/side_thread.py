"""A thread beside the event loop that does what it is given, one thing after the other.

The interpreter waits at its end for the executors of the standard library, however long that takes. What a thread of
ours waits for may never come: a source that is silent, or somebody who has stopped taking the output without a word.
So these threads keep no process alive.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class SideThread:
    """One thread, which starts with the first thing that it is given. It is given things by one thread at a time."""

    def __init__(self, name: str) -> None:
        """Name the thread; nothing is started yet."""
        self._name = name
        self._given: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._ended: Future[None] = Future()
        # What is running cannot be cancelled by whoever gives up waiting for it.
        self._ended.set_running_or_notify_cancel()

    def submit(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> Future[T]:
        """Have a function called; raise `RuntimeError` once the thread is closed."""
        if self._closed:
            raise RuntimeError(f"the thread {self._name} is closed")
        future: Future[T] = Future()
        self._given.put((future, partial(function, *arguments, **options)))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        return future

    async def close(self, *, cancel: bool = False, patience: float | None = None) -> None:
        """Wait until all is done; with `cancel` for no more than what is being done, for at most `patience` seconds.

        A thread that is not done by then is left to itself.
        """
        self._closed = True
        while cancel:
            try:
                given = self._given.get_nowait()
            except Empty:
                break
            if given is not None:
                given[0].cancel()
        if self._thread is None:
            return
        self._given.put(None)
        try:
            async with asyncio.timeout(patience):
                await asyncio.wrap_future(self._ended)
        except TimeoutError:
            return
        self._thread.join()

    def _work(self) -> None:
        while (given := self._given.get()) is not None:
            _do(*given)
            del given  # or else what came of it would live until there is something else to do
        self._ended.set_result(None)


def _do(future: Future[Any], function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - for whoever looks at the future
        future.set_exception(error)
        del future  # or else the error would hold this frame, and the frame the error
    else:
        future.set_result(result)
