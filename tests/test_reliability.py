"""What the page about reliability names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reliability.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"(?:tests|benchmarks|\.ci)/[\w./]*\w", PAGE)))


def test_the_page_names_tests_and_commands() -> None:
    """Otherwise the next test would look at nothing."""
    assert len(NAMED) > 20


@pytest.mark.parametrize("name", NAMED)
def test_each_test_and_command_that_the_page_names_is_there(name: str) -> None:
    """A promise whose test was renamed would be a promise without a test."""
    assert (ROOT / name).is_file()


def test_each_long_command_of_the_proofs_is_on_the_page() -> None:
    """Whoever adds one says there what it came to."""
    commands = [
        path.name for path in (ROOT / "benchmarks").glob("*.py") if "tests." in path.read_text("utf-8")
    ]
    assert len(commands) >= 5
    assert all(f"benchmarks/{name}" in PAGE for name in commands)
