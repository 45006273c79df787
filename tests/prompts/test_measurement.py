"""The figures that the documentation states about the checks are measured, and hold."""

from __future__ import annotations

import importlib.util
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

STATED = {
    "refused": (0.99, 0.94),
    "preamble": (0.99, 0.95),
    "explanation_added": (0.99, 0.95),
    "quotes_added": (0.99, 0.99),
    "markup_added": (0.99, 0.95),
    "special_tokens": (0.99, 0.99),
    "lines": (0.99, 0.99),
    "placeholder": (0.99, 0.99),
    "number_missing": (0.99, 0.98),
    "untranslated": (0.99, 0.99),
    "glossary_missing": (0.99, 0.95),
    "repetition": (0.99, 0.99),
    "language": (0.99, 0.95),
    "summary_language": (0.99, 0.95),
}
"""Precision and recall over all eight languages, at least."""

LEAST_IN_A_LANGUAGE = 0.75


@pytest.fixture(scope="module")
def checks() -> ModuleType:
    """The script that measures."""
    path = Path(__file__).parents[2] / "benchmarks" / "checks.py"
    spec = importlib.util.spec_from_file_location("benchmark_checks", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_figures_do_not_fall_below_what_is_stated(checks: ModuleType) -> None:
    """Each check, over all languages and in each of them."""
    totals: dict[str, list[Any]] = defaultdict(list)
    for figure in checks.measure():
        totals[figure.check].append(figure)
    assert totals.keys() == STATED.keys()
    for check, (precision, recall) in STATED.items():
        figures = totals[check]
        hits = sum(figure.hits for figure in figures)
        assert hits / (hits + sum(figure.false_alarms for figure in figures)) >= precision, check
        assert hits / (hits + sum(figure.misses for figure in figures)) >= recall, check
        assert min(figure.recall for figure in figures) >= LEAST_IN_A_LANGUAGE, check
        assert min(figure.precision for figure in figures) >= LEAST_IN_A_LANGUAGE, check


def test_there_are_enough_texts(checks: ModuleType) -> None:
    """Thirty honest answers in each of eight languages, and fifteen faulty ones for refusals."""
    honest, faulty = checks.honest_cases(), checks.faulty_cases()
    for language in checks.LANGUAGES:
        assert sum(case.language == language for case in honest) >= 30
        assert sum((case.language, case.faulty) == (language, "refused") for case in faulty) >= 15


def test_informative_refusals_are_answers(checks: ModuleType) -> None:
    """What says that a context is insufficient is recognised as that, and never taken for a refusal."""
    for seen, of, wrong in checks.insufficient_figures().values():
        assert (seen, wrong) == (of, 0)


def test_honest_answers_to_texts_that_decline_are_no_refusals(checks: ModuleType) -> None:
    """A text may be an apology, and so its translation is one."""
    assert checks.refused_lookalikes() == []


def test_the_documentation_states_what_is_measured(
    checks: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table of `docs/checks.md` is what the command prints."""
    checks.main([])
    page = (Path(__file__).parents[2] / "docs" / "checks.md").read_text("utf-8")
    assert page.partition("```text\n")[2].partition("\n```")[0] == capsys.readouterr().out.rstrip()
