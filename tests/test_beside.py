"""What is measured beside the alternatives is worked out rightly from what was seen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import goodput
from benchmarks.limited_server import manner_of
from benchmarks.peers import __main__ as peers
from benchmarks.peers import environment

BUCKET = {"requests_per_minute": 600, "burst": 10}


def test_the_cold_start_counts_for_nothing_and_refusals_for_no_share() -> None:
    """Ten a second may come: eight do, and two are refused; what came before the steady time is left out."""
    cold = [(second / 100, second / 100, True, 0) for second in range(500)]
    steady = [(10 + n / 10, 10.5 + n / 10, n % 5 == 0, 0 if n % 5 == 0 else 100) for n in range(100)]
    found = goodput.shares(0.0, [*cold, *steady], BUCKET, cold=10.0, steady=10.0)
    assert found == {"share": pytest.approx(0.8), "refused": pytest.approx(0.2), "attempts": 100}


def test_tokens_count_when_they_are_answered() -> None:
    """That is when the server takes them: half of what it allows."""
    attempts = [(n / 10, n / 10 + 5.0, False, 50) for n in range(300)]
    manner = {"tokens_per_minute": 60_000}
    found = goodput.shares(0.0, attempts, manner, cold=10.0, steady=10.0)
    assert found["share"] == pytest.approx(0.5)


def test_whole_windows_are_measured_since_the_server_s_start() -> None:
    """Each window is used up at its start, so that a minute which begins in the middle would tell anything."""
    manner = {"requests_per_minute": 10, "minute_seconds": 10, "window": "fixed"}
    attempts = [(103.0 + 10 * window + n / 100, 0.0, False, 1) for window in range(6) for n in range(10)]
    found = goodput.shares(100.0, attempts, manner, cold=13.0, steady=20.0)
    assert found["share"] == pytest.approx(1.0)


def test_a_manner_is_read_from_one_flat_object() -> None:
    """What is no manner is a limit; what is neither is an error."""
    manner = manner_of({"requests_per_minute": 60, "headers": True, "mean": 2.0})
    assert manner.headers
    assert manner.mean == 2.0
    assert manner.limits is not None
    assert manner.limits.requests_per_minute == 60
    assert manner_of({"per_second": 5.0}).limits is None
    with pytest.raises(TypeError):
        manner_of({"requests_per_hour": 1})


def test_ratios_are_taken_within_each_round() -> None:
    """A round in which the machine was slow for all does not count as a slow round of one."""
    rounds: list[dict[str, dict[str, Any] | str]] = [
        {
            peers.OURS: {"rows": 1_000, "seconds": slow, "cpu": 0.1},
            "other": {"rows": 100, "seconds": slow, "cpu": 0.1},
            "broken": "not done after 120 s",
        }
        for slow in (1.0, 5.0, 2.0)
    ]
    assert peers.over_rounds("other", rounds)["times"] == pytest.approx(10.0)
    assert peers.over_rounds("other", rounds)["rows_per_second"] == pytest.approx(50.0)
    assert peers.over_rounds("broken", rounds) == {"error": "not done after 120 s"}


@pytest.mark.parametrize(("peer", "_", "__"), peers.PEERS.values(), ids=list(peers.PEERS))
def test_each_peer_is_pinned(peer: str, _: int, __: bool) -> None:  # noqa: FBT001 - what a peer's entry holds
    """Its own version and that of the SDK under it can be named, and every line names one version."""
    versions = environment.versions_of(peer)
    assert "openai" in versions
    assert all(version[0].isdigit() for version in versions.values())
    lines = (environment.REQUIREMENTS / f"{peer}.txt").read_text("utf-8").splitlines()
    assert all("==" in line for line in lines if not line.startswith("#"))


def test_what_two_peers_have_in_different_versions_is_named_twice() -> None:
    """Nobody's version is hidden behind another's."""
    found = environment.versions_of_all(["openai", "daft"])
    assert found["openai"] == environment.versions_of("openai")["openai"]
    assert found["openai under daft"] == environment.versions_of("daft")["openai"]
    assert found["openai"] != found["openai under daft"]
