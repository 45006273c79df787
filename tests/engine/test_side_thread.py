"""A thread that does one thing after the other."""

from __future__ import annotations

import asyncio
import threading

import pytest

from corpusmill.engine.side_thread import SideThread


def test_what_it_is_given_is_done_in_order_before_it_closes() -> None:
    """Each with its own result or error; afterwards it takes nothing."""
    done: list[int] = []
    thread = SideThread("beside")
    futures = [thread.submit(done.append, number) for number in range(50)]
    failing = thread.submit(int, "none")
    asyncio.run(thread.close())
    assert done == list(range(50))
    assert [future.result(0) for future in futures] == [None] * 50
    assert isinstance(failing.exception(0), ValueError)
    with pytest.raises(RuntimeError, match="closed"):
        thread.submit(done.append, 50)


def test_what_has_not_begun_can_be_cancelled() -> None:
    """What is being done is waited for all the same."""
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> str:
        begun.set()
        go_on.wait(20)
        return "held"

    thread = SideThread("beside")
    holding, waiting = thread.submit(hold), thread.submit(str)
    assert begun.wait(20)
    waiting.add_done_callback(lambda _: go_on.set())
    asyncio.run(thread.close(cancel=True))
    assert waiting.cancelled()
    assert holding.result(0) == "held"


def test_a_thread_that_does_not_come_back_is_left_to_itself(caplog: pytest.LogCaptureFixture) -> None:
    """It keeps nothing alive, and does no harm when it comes back after the loop has gone."""
    go_on = threading.Event()
    thread = SideThread("beside")
    held = thread.submit(go_on.wait, 20)
    asyncio.run(thread.close(cancel=True, patience=0.01))
    (left,) = [one for one in threading.enumerate() if one.name == "beside"]
    assert left.daemon
    go_on.set()
    left.join(20)
    assert held.result(0) is True
    assert caplog.records == []


def test_a_thread_that_was_given_nothing_closes_at_once() -> None:
    """It was never started."""
    asyncio.run(SideThread("beside").close())
