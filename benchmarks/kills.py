"""Kill a run a hundred times, and compare its output and its payments with the promise each time.

    python benchmarks/kills.py --kills 100 --seed 7

First one run dies at every named point of the package, then runs die at random moments. Each is started again with the
same command until it is done. What has to hold: the bytes of the output are those of a run that was not killed; no
answer that was stored is asked again; what was paid twice is at most what the report says, and that at most the
concurrency for each kill.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.proof import harness
from tests.proof.warm import Warm

from corpusmill.testing import FakeEndpoint, Latency


def main() -> None:
    """Kill, and say what was seen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100, help="how many in all")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the random moments")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Warm() as warm,
        FakeEndpoint(latency=Latency(mean=0.003, sigma=0.8)) as endpoint,
    ):
        corpus = harness.Corpus(folder=Path(folder, "corpus"))
        corpus.write()
        case = harness.Case(warm=warm, endpoint=endpoint, corpus=corpus, folder=Path(folder))
        harness.kill_at_every_point(case)
        missed = harness.points_in_source() - set(case.hit)
        at_points = case.kills
        runs = harness.kill_at_random(case, kills=options.kills, seed=options.seed)
        twice, stated = case.paid_again, case.stated
    for point, count in sorted(Counter(case.hit).items()):
        print(f"{count:6} killed at {point}")
    print(f"{case.kills - at_points:6} killed at random moments of {runs} runs (seed {options.seed})")
    print(f"{twice:6} answers computed again, {stated} stated as possibly paid twice, all outputs equal")
    if missed:
        sys.exit(f"never reached: {', '.join(sorted(missed))}")


if __name__ == "__main__":
    main()
