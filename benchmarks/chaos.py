"""Let an endpoint do all the wrong there is, over many rows, and compare each row and each attempt with the promise.

    python benchmarks/chaos.py --rows 20000 --seed 4

Every kind of fault that ends no run meets 30 % of the attempts, once with whole answers and once with streamed ones;
then the endpoint restarts five times in mid-run, the line to it swallows everything for two minutes, and its name
stops resolving. What has to hold each time: no row is lost or swapped, each has its own answer or its own error; the
endpoint sees as many attempts at each row as the policy predicts; what was paid twice is at most what the report says.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.proof import chaos
from tests.proof.valve import Valve

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpusmill.report import RunReport
    from corpusmill.testing.stats import Stats

    Outage = Callable[..., tuple[RunReport, Stats, int]]

RESTARTS = 5


def main() -> None:
    """Do all of it, or what is named, and say what was seen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000, help="of each run")
    parser.add_argument("--seed", type=int, default=4, help="of faults and latencies")
    parser.add_argument("--silence", type=float, default=120.0, help="seconds for which the line is cut off")
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    options = parser.parse_args()
    # An endpoint on this machine is not asked through a proxy, whatever its name.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = f"localhost,127.0.0.1,{chaos.NAME}"
    case = chaos.Chaos(rows=options.rows, seed=options.seed, concurrency=64)
    fates = case.fates()
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            report, stats, torn = RUNS[name](case, Path(folder), options.silence)
            chaos.check_rows(case, report, Path(folder, "out"), fates)
            chaos.check_attempts(case, report, stats, fates, torn=torn)
        print(f"{name}:")
        for label, value in chaos.numbers(report, stats, fates):
            print(f"  {label:40}{value}", flush=True)


def _faults(
    case: chaos.Chaos, folder: Path, _silence: float, *, stream: bool = False
) -> tuple[RunReport, Stats, int]:
    with case.endpoint() as endpoint:
        report = chaos.run(case, endpoint, folder, stream=stream)
        return report, endpoint.stats(), 0


def _streamed(case: chaos.Chaos, folder: Path, silence: float) -> tuple[RunReport, Stats, int]:
    return _faults(case, folder, silence, stream=True)


def _restarts(case: chaos.Chaos, folder: Path, _silence: float) -> tuple[RunReport, Stats, int]:
    at = [case.rows * number // (RESTARTS + 1) for number in range(1, RESTARTS + 1)]
    return _after(chaos.through_restarts(case, folder, at=at, stream=True), case, outages=RESTARTS)


def _cut_off(case: chaos.Chaos, folder: Path, silence: float) -> tuple[RunReport, Stats, int]:
    began: list[float] = []

    def long_enough(_values: dict[str, Any]) -> bool:
        began.append(time.monotonic())
        return began[-1] - began[0] >= silence

    found = chaos.through_silence(case, Valve(), folder, at=[case.rows // 4], mended=long_enough)
    return _after(found, case, outages=1)


def _names(case: chaos.Chaos, folder: Path, _silence: float) -> tuple[RunReport, Stats, int]:
    names, real = chaos.Names(), socket.getaddrinfo
    socket.getaddrinfo = names
    try:
        return _after(chaos.through_lost_names(case, names, folder, at=[case.rows // 4]), case, outages=1)
    finally:
        socket.getaddrinfo = real


def _after(
    found: tuple[RunReport, Stats, int], case: chaos.Chaos, *, outages: int
) -> tuple[RunReport, Stats, int]:
    """Check that all outages were; give how many requests they may have torn at most."""
    report, stats, seen = found
    assert seen == outages, f"{seen} outages of {outages}"
    return report, stats, outages * case.concurrency


RUNS: dict[str, Callable[[chaos.Chaos, Path, float], tuple[RunReport, Stats, int]]] = {
    "faults": _faults,
    "faults-streamed": _streamed,
    "restarts": _restarts,
    "cut-off": _cut_off,
    "names": _names,
}


if __name__ == "__main__":
    main()
