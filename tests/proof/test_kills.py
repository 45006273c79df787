"""Killed anywhere, started again: the same bytes, and no stored answer bought twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.proof import harness

from corpusmill.testing import FakeEndpoint, Latency

if TYPE_CHECKING:
    from pathlib import Path

    from tests.proof.warm import Warm


def case_in(folder: Path, warm: Warm, endpoint: FakeEndpoint) -> harness.Case:
    """Write the corpus, and learn what runs without a kill come to."""
    corpus = harness.Corpus(folder=folder / "corpus")
    corpus.write()
    return harness.Case(warm=warm, endpoint=endpoint, corpus=corpus, folder=folder)


def test_a_run_killed_at_every_point_comes_to_the_same_bytes_and_asks_no_stored_answer_again(
    tmp_path: Path, warm: Warm
) -> None:
    """One run after the other dies at each named point; a log shows that all points were reached."""
    with FakeEndpoint(latency=Latency(mean=0.003, sigma=0.8)) as endpoint:
        case = case_in(tmp_path, warm, endpoint)
        harness.kill_at_every_point(case)
    assert set(case.hit) == harness.points_in_source()


def test_a_run_killed_at_random_moments_comes_to_the_same_bytes(tmp_path: Path, warm: Warm) -> None:
    """The kill comes from outside, when some random number of requests has come in."""
    with FakeEndpoint(latency=Latency(mean=0.003, sigma=0.8)) as endpoint:
        case = case_in(tmp_path, warm, endpoint)
        case.learn("folder", extra=False)
        harness.kill_at_random(case, kills=8, seed=1)
    assert case.kills == 8
