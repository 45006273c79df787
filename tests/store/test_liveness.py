from __future__ import annotations

import os
import subprocess
import sys

import pytest

from corpusmill.store.liveness import Process, created_at, is_alive, this_host, this_process

OWNER = Process(host="here", pid=42, created_at=1000.0)


@pytest.mark.parametrize(
    ("created", "alive"),
    [(1000.0, True), (1001.0, True), (5000.0, False), (None, False), (float("nan"), True)],
)
def test_a_neighbour_lives_while_its_very_process_does(
    created: float | None,
    alive: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """On one machine the process decides and the lease does not; a reused process id is another process."""
    for lease_until in (0.0, 9999.0):
        seen = is_alive(OWNER, lease_until=lease_until, host="here", now=2000.0, creation=lambda pid: created)
        assert seen is alive


def test_a_stranger_lives_while_its_lease_lasts() -> None:
    """On another machine only the lease can be seen."""

    def never(pid: int) -> float | None:
        raise AssertionError(pid)

    assert is_alive(OWNER, lease_until=2001.0, host="there", now=2000.0, creation=never)
    assert not is_alive(OWNER, lease_until=2000.0, host="there", now=2000.0, creation=never)


def test_this_process_is_alive_and_a_child_that_ended_is_not() -> None:
    """The system is asked about real processes; a dead child that nobody has waited for counts as dead."""
    me = this_process()
    assert (me.pid, me.host) == (os.getpid(), this_host())
    assert is_alive(me, lease_until=0.0, host=this_host(), now=1.0)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    created = created_at(child.pid)
    assert created is not None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert created_at(child.pid) is None
    child.communicate()
    assert created_at(child.pid) is None
