"""The figures that are stated are those that were measured."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def _figures() -> Any:
    spec = importlib.util.spec_from_file_location("figures", ROOT / "docs" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FIGURES = _figures()
RESULTS = json.loads(FIGURES.RESULTS.read_text("utf-8"))


@pytest.mark.parametrize("path", FIGURES.written(RESULTS), ids=lambda path: path.name)
def test_what_is_stated_is_what_was_measured(path: Path) -> None:
    """Each file with figures is what `python docs/figures.py` makes of `benchmarks/results.json`."""
    assert path.read_text("utf-8") == FIGURES.written(RESULTS)[path]


def test_every_promise_stands_in_the_readme_with_its_figure() -> None:
    """A measurement that promises something is in the table, and a changed figure changes the table."""
    section = FIGURES.readme_section(RESULTS)
    for name in FIGURES.SHOWN_IN_README:
        assert any(
            label in section and value in section
            for label, value, target in FIGURES.lines(name, RESULTS["figures"][name])
            if target
        ), name
    other = json.loads(json.dumps(RESULTS))
    other["figures"]["skip"]["seconds"] += 1
    assert FIGURES.readme_section(other) != section


@pytest.mark.parametrize("text", ["", "<!-- figures -->", "<!-- /figures --><!-- figures -->"])
def test_a_file_without_markers_is_refused(text: str) -> None:
    """Figures are never put where nobody has said that they belong."""
    with pytest.raises(ValueError, match="once each"):
        FIGURES.between(text, "section")
