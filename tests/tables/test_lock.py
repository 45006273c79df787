from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from corpusmill.errors import SinkError, SinkHeldError
from corpusmill.tables import open_sink
from corpusmill.tables.layout import Layout, layout_of
from corpusmill.tables.lock import LEASE, locked

if TYPE_CHECKING:
    from pathlib import Path

HOLD = """
import sys
from corpusmill.tables import open_sink
with open_sink(sys.argv[1]).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_a_second_run_is_refused_and_told_who_holds_the_sink(tmp_path: Path, name: str) -> None:
    """In the same process too; afterwards the sink is free, and nothing is left of the lock."""
    with open_sink(tmp_path / name).lock():
        with pytest.raises(
            SinkHeldError, match=rf"{name} is being written by process {os.getpid()} on "
        ) as held:
            open_sink(tmp_path / name).lock().__enter__()
        assert held.value.exit_code == 3  # the same command works later, which is no wrong usage
        with open_sink(tmp_path / f"other-{name}").lock():
            pass
    with open_sink(tmp_path / name).lock():
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("order", [1, -1])
def test_a_run_from_within_the_sink_and_one_from_elsewhere_exclude_each_other(
    tmp_path: Path, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the one the folder cannot be renamed, to the other it can."""
    (tmp_path / "out").mkdir()
    first, second = [tmp_path / "out", tmp_path][::order]
    monkeypatch.chdir(first)
    with open_sink(tmp_path / "out").lock():
        monkeypatch.chdir(second)
        with pytest.raises(SinkHeldError):
            open_sink(tmp_path / "out").lock().__enter__()
    with open_sink(tmp_path / "out").lock():
        pass


@pytest.mark.parametrize("where", ["local", "s3"])
def test_a_lock_dies_with_its_process(tmp_path: Path, bucket: str, where: str) -> None:
    """While the other process lives the sink is held, and when it was killed the sink is free at once."""
    sink = str(tmp_path / "out") if where == "local" else f"{bucket}/out"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, sink], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == "held\n"
    try:
        with pytest.raises(SinkHeldError, match=f"is being written by process {holder.pid} on "):
            open_sink(sink).lock().__enter__()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
    with open_sink(sink).lock():
        pass


@pytest.fixture
def remote(bucket: str) -> Layout:
    """A sink in an object store."""
    return layout_of(f"{bucket}/out", None)


def put_note(layout: Layout, token: str, **changed: Any) -> None:
    """The note of a writer on another machine."""
    note = {
        "token": token,
        "host": "elsewhere",
        "pid": 1,
        "space": "",
        "expires": 1_000.0 + LEASE,
        "held": True,
    }
    (layout.sidecars / "locks" / f"{token}.json").write_bytes(json.dumps({**note, **changed}).encode())


def notes(layout: Layout) -> list[str]:
    """The tokens of all notes that lie there."""
    return [info.base_name[:-5] for info in (layout.sidecars / "locks").children() if info.is_file]


def never(seconds: float) -> None:
    """The sleep of a test that must not wait."""
    raise AssertionError(seconds)


def test_a_note_that_holds_refuses_others_until_it_expires(remote: Layout) -> None:
    """On another machine nothing else tells whether the writer lives. The loser leaves no note."""
    put_note(remote, "f" * 12)
    with pytest.raises(SinkError, match="by process 1 on elsewhere"):
        locked(remote, clock=lambda: 1_000.0 + LEASE, sleep=never).__enter__()
    assert notes(remote) == ["f" * 12]
    with locked(remote, clock=lambda: 1_000.1 + LEASE, sleep=never):
        (token,) = notes(remote)
        assert token != "f" * 12
    assert notes(remote) == []


def test_of_two_that_want_the_sink_the_smaller_token_waits_for_the_larger_to_give_way(remote: Layout) -> None:
    """Two that list at the same moment do not both get it."""
    put_note(remote, "0" * 12, held=False)
    with pytest.raises(SinkError, match="elsewhere"):
        locked(remote, clock=lambda: 1_000.0, sleep=never).__enter__()
    (remote.sidecars / "locks" / f"{'0' * 12}.json").delete()
    put_note(remote, "g" * 12, held=False)

    def give_way(seconds: float) -> None:
        assert seconds > 0
        (remote.sidecars / "locks" / f"{'g' * 12}.json").delete()

    with locked(remote, clock=lambda: 1_000.0, sleep=give_way):
        assert len(notes(remote)) == 1


def test_one_that_had_listed_before_us_gets_the_sink(remote: Layout) -> None:
    """Its note turns into one that holds while we look again; and one that only ever wants stops us too."""
    put_note(remote, "g" * 12, held=False)
    with pytest.raises(SinkError, match="elsewhere"):
        locked(remote, clock=lambda: 1_000.0, sleep=lambda _: put_note(remote, "g" * 12)).__enter__()
    put_note(remote, "g" * 12, held=False)
    with pytest.raises(SinkError, match="elsewhere"):
        locked(remote, clock=lambda: 1_000.0, sleep=lambda _: None).__enter__()
    assert notes(remote) == ["g" * 12]
