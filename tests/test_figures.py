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


BESIDE = {
    "date": "2026-01-02 03:04 UTC",
    "commit": "0123456789ab",
    "load": 99.0,
    "rough": True,
    "command": "python -m benchmarks.peers",
    "machine": RESULTS["figures"]["live"]["machine"],
    "versions": {"peer": "1.2.3"},
    "found": {
        "corpusmill": {"rows": 20_000, "rows_per_second": 5_000.0, "cpu_us_per_row": 200.0, "times": 1.0},
        "slower": {"rows": 4_000, "rows_per_second": 500.0, "cpu_us_per_row": 1_900.0, "times": 10.0},
        "slowest": {"rows": 2_000, "rows_per_second": 50.0, "cpu_us_per_row": 19_000.0, "times": 100.0},
        "broken": {"error": "not done after 120 s"},
    },
}


def test_a_peer_that_did_not_do_the_job_is_named_with_its_error() -> None:
    """It is no bar of the plot, and neither is it left out of the table; the best of the others is what counts."""
    lines = FIGURES.lines("peers", BESIDE)
    assert ("broken", "failed: not done after 120 s", "") in lines
    assert ("first run, beside the best of them (slower)", "10.0 times", "at least 10 times") in lines
    (plot,) = FIGURES.plots_beside({"peers": BESIDE}).values()
    assert "slowest" in plot
    assert "broken" not in plot


def test_an_aim_that_was_missed_says_so() -> None:
    """Each kind of bound is held against its figure; at the bound itself it is kept."""
    found = {"share": 0.97, "refused": 0.01}
    kept, fewer, more = (
        FIGURES.lines("goodput", {"servers": {"bucket": {"ours": found | change}}})[0][2]
        for change in ({}, {"share": 0.969}, {"refused": 0.011})
    )
    assert kept == "at least 97 %, at most 1 % refused"
    assert fewer == "at least 97 % (missed), at most 1 % refused"
    assert more == "at least 97 %, at most 1 % refused (missed)"
    taken = {"first_half": 78, "second_half": 78, "left_open": 0, "calls": 20_000}
    assert [aim for _, _, aim in FIGURES.lines("descriptors", taken)] == ["", "no more", "0"]
    taken |= {"second_half": 79, "left_open": 1}
    assert [aim for _, _, aim in FIGURES.lines("descriptors", taken)] == [
        "",
        "no more (missed)",
        "0 (missed)",
    ]
    assert FIGURES.lines("skip", {"rows": 1, "seconds": 1.0, "process_seconds": 2.0})[0][2].endswith(
        "(missed)"
    )


def test_what_has_a_command_of_its_own_says_so_itself() -> None:
    """Its command, its roughness and its versions stand with it, and not in what is said of all others."""
    results = {**RESULTS, "figures": {**RESULTS["figures"], "peers": BESIDE}}
    section = FIGURES.page_section(results)
    assert "Roughly measured by `python -m benchmarks.peers`: 2026-01-02 03:04 UTC" in section
    assert "peer 1.2.3" in section
    assert "99.0" not in FIGURES.origin(results)


def test_what_was_measured_on_another_machine_says_so() -> None:
    """Its date, its machine and its load stand beside its name; the rest keep theirs."""
    other = json.loads(json.dumps(RESULTS))
    for figures in other["figures"].values():
        figures["machine"] = {**figures["machine"], "processor": "a slow one"}
    changed = other["figures"]["skip"]
    changed |= {"date": "2030-01-02 03:04 UTC", "load": 77.0}
    changed["machine"]["processor"] = "a fast one"
    said, _, of_skip = FIGURES.origin(other).partition(" But skip on 2030-01-02: ")
    assert "a slow one" in said
    assert "a fast one" not in said
    assert "77.0" not in said
    assert "a fast one" in of_skip
    assert "at most 77.0." in of_skip


def test_under_each_limit_the_share_and_what_was_refused_are_stated() -> None:
    """Of corpusmill with what it should be, of the peers with the rows that they gave up."""
    found = {
        "servers": {
            "bucket": {
                "ours": {"share": 0.98, "refused": 0.002},
                "openai": {"share": 0.99, "refused": 0.4, "given_up": 1_200},
            }
        }
    }
    ours, theirs = FIGURES.lines("goodput", found)
    assert ours == ("bucket", "98.0% of the limit, 0.2% refused", "at least 97 %, at most 1 % refused")
    assert theirs == ("bucket, openai", "99.0% of the limit, 40.0% refused, 1,200 rows given up", "")


@pytest.mark.parametrize("text", ["", "<!-- figures -->", "<!-- /figures --><!-- figures -->"])
def test_a_file_without_markers_is_refused(text: str) -> None:
    """Figures are never put where nobody has said that they belong."""
    with pytest.raises(ValueError, match="once each"):
        FIGURES.between(text, "section")
