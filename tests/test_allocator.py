"""A process that runs a job gets all its memory where it can be given back, also what Arrow takes for itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ELSEWHERE = """
import pyarrow as pa, pyarrow.parquet as pq

file = pa.BufferOutputStream()
pq.write_table(pa.table({"text": ["x" * 1_000 + str(n) for n in range(2_000)]}), file)
pq.ParquetFile(pa.BufferReader(file.getvalue())).read(use_threads=False)
others = [name for name in pa.supported_memory_backends() if name != "system"]
print(pa.default_memory_pool().backend_name, max(getattr(pa, f"{name}_memory_pool")().max_memory() for name in others))
"""
"""Writes and reads a file, and prints Python's pool and how much Arrow has ever taken from any but the system's."""


def after(statements: str, **environment: str) -> tuple[str, int]:
    """Which pool is Python's, and what Arrow took from other allocators, in a fresh Python after some statements."""
    kept = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    child = subprocess.run(
        [sys.executable, "-c", statements + ELSEWHERE],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    pool, taken = child.stdout.split()[-2:]
    return pool, int(taken)


@pytest.mark.parametrize(
    "statements",
    [
        "from corpusmill.allocator import spare_memory; spare_memory(); spare_memory()",
        "from corpusmill.cli import main; main(['schema'])",
    ],
    ids=["by-itself", "command-line"],
)
def test_all_of_arrow_gets_its_memory_from_the_system(statements: str) -> None:
    """Where Arrow is not loaded before, nothing comes from an allocator that keeps what it was given."""
    assert after(statements) == ("system", 0)


def test_what_python_makes_comes_from_the_system_where_arrow_was_loaded_before() -> None:
    """Arrow looks into the environment once; its own buffers come from elsewhere then, and Python's do not."""
    pool, taken = after("import pyarrow; from corpusmill.allocator import spare_memory; spare_memory()")
    assert pool == "system"
    assert taken > 0


def test_what_the_environment_says_goes_before() -> None:
    """Whoever has chosen an allocator keeps it."""
    spare = "from corpusmill.allocator import spare_memory; spare_memory()"
    pool, taken = after(spare, ARROW_DEFAULT_MEMORY_POOL="mimalloc")
    assert pool == "mimalloc"
    assert taken > 0
