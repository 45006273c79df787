"""Put any table that Arrow can hold through a whole run, and look at the output or the error.

    python benchmarks/bad_data.py --examples 2000

Hypothesis draws tables of odd types, names, chunks and bytes, and prompts over them, in every form in which rows may
come; then there are cells of 50 MB and a thousand columns. What has to hold: either each row comes out as it was, with
its own answer beside it, or a clear error is raised before anything is sent.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))

from typing import TYPE_CHECKING

from tests.proof import bad_data

if TYPE_CHECKING:
    import corpusmill


def main() -> None:
    """Try, and say what was seen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--examples", type=int, default=2_000, help="how many tables are drawn")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the draws")
    parser.add_argument("--megabytes", type=int, default=50, help="of the large cells")
    options = parser.parse_args()
    began, ends = time.monotonic(), Counter[str]()

    @seed(options.seed)
    @settings(
        max_examples=options.examples,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(
        table=bad_data.sources(),
        prompt=st.just(bad_data.ASK) | bad_data.prompts(),
        form=st.sampled_from(bad_data.FORMS),
        sink=st.sampled_from(["out", "out.parquet"]),
    )
    def try_all(table: pa.Table, prompt: corpusmill.Ask, form: str, sink: str) -> None:
        came = bad_data.try_one(table, prompt, form, sink=sink)
        if came is None:
            ends["a form that cannot hold the table"] += 1
        else:
            ends[
                "right output" if came.error is None else f"{type(came.error).__name__} before any request"
            ] += 1

    try_all()
    for end, count in ends.most_common():
        print(f"{count:8} {end}")
    print(
        f"{sum(ends.values()):8} tables (seed {options.seed}), {time.monotonic() - began:.0f} s", flush=True
    )
    for form in bad_data.FORMS:
        for name, table in (
            ("a thousand columns", bad_data.wide(1_000, 1_000)),
            (
                f"cells of {options.megabytes} MB",
                pa.table({"text": list(bad_data.large(options.megabytes, 3))}),
            ),
        ):
            came = bad_data.try_one(table, bad_data.ASK, form)
            assert came is not None
            assert came.error is None, came.error
            print(f"{form}: {name} went through, {len(came.asked)} requests", flush=True)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
