"""Write the figures of `benchmarks/results.json` into the README and `docs/performance.md`, and draw the plots.

    python docs/figures.py [--check]

What stands between the markers `<!-- figures -->` and `<!-- /figures -->` of the two files is replaced. With `--check`
nothing is written, and a difference is an error.
"""

from __future__ import annotations

import argparse
import json
import sys
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.summary import lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.json"
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "performance.md"
PLOTS = ROOT / "docs" / "plots"

BEGIN, END = "<!-- figures -->", "<!-- /figures -->"

SHOWN_IN_README = ("live", "replay", "skip", "latency", "memory", "descriptors", "importing")

NAMES = {"ours": "corpusmill"}

BAR, GAP, LABEL, WIDTH = 22, 10, 290, 800
"""Sizes of a plot, in pixels: a bar's height, the space below it, the room for names, the whole width."""


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file would change")
    options = parser.parse_args()
    changed = {
        path: text
        for path, text in written(json.loads(RESULTS.read_text("utf-8"))).items()
        if not path.exists() or path.read_text("utf-8") != text
    }
    if options.check:
        if changed:
            sys.exit(f"out of date: {', '.join(str(path.relative_to(ROOT)) for path in changed)}")
        return
    for path, text in changed.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")


def written(results: Mapping[str, Any]) -> dict[Path, str]:
    """Give the text of every file that follows from the results, by its path."""
    figures = results["figures"]
    files = {
        README: between(README.read_text("utf-8"), readme_section(results)),
        PAGE: between(PAGE.read_text("utf-8"), page_section(results)),
    }
    if "live" in figures:
        live = figures["live"]
        bars = [
            ("corpusmill, Parquet to Parquet", live["rows_per_second"]),
            ("AsyncOpenAI and gather", live["sdk_rows_per_second"]),
            ("the bare transport", live["bare_requests_per_second"]),
        ]
        files[PLOTS / "live.svg"] = plot("Rows a second, live", bars, unit="")
    files |= plots_beside(figures)
    if "memory" in figures:
        memory = figures["memory"]
        bars = [
            (f"{rows:,} rows, {live:,} asked", size / 1e6)
            for rows, live, size in zip(memory["rows"], memory["live"], memory["bytes"], strict=True)
        ]
        bars.insert(0, ("after the imports", memory["imported_bytes"] / 1e6))
        files[PLOTS / "memory.svg"] = plot("Peak memory", bars, unit=" MB")
    return files


def plots_beside(figures: Mapping[str, Any]) -> dict[Path, str]:
    """Draw what stands beside the alternatives, where it was measured."""
    files = {}
    if "peers" in figures:
        found = figures["peers"]["found"]
        bars = [
            (name, each["rows_per_second"])
            for name, each in found.items()
            if "error" not in each and "bare" not in name
        ]
        files[PLOTS / "peers.svg"] = plot("Rows a second, Parquet to Parquet", bars, unit="")
    if "goodput" in figures:
        servers = figures["goodput"]["servers"]
        bars = [
            (f"{server}, {NAMES.get(client, client)}", each["share"] * 100)
            for server, clients in servers.items()
            for client, each in clients.items()
            if "error" not in each
        ]
        files[PLOTS / "goodput.svg"] = plot("Share of a limit that nobody has stated", bars, unit=" %")
    return files


def between(text: str, section: str) -> str:
    """Put a section between the markers of a text.

    Raises:
        ValueError: The text has not each marker once, in order.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in tail or END in tail:
        raise ValueError(f"the text must have {BEGIN} and {END}, once each")
    return f"{head}{BEGIN}\n{section}{END}{tail}"


def readme_section(results: Mapping[str, Any]) -> str:
    """Give the lines that promise something, and where they were measured."""
    rows = [
        (label, value, target)
        for name in SHOWN_IN_README
        if name in results["figures"]
        for label, value, target in lines(name, results["figures"][name])
        if target
    ]
    return f"{table(rows)}\n{origin(results)}\n"


def page_section(results: Mapping[str, Any]) -> str:
    """Give all lines, by measurement, with date, commit and load of each."""
    parts = []
    for name, figures in results["figures"].items():
        taken = f"{figures['date']}, commit {figures['commit']}, load {figures['load']} before"
        if "command" in figures:
            rough = "Roughly measured" if figures["rough"] else "Measured"
            taken = f"{rough} by `{figures['command']}`: {taken}, {machine_of(figures)}"
        parts.append(f"### {name}\n\n{table(lines(name, figures))}\n{taken}\n")
    return "\n".join([*parts, origin(results), ""])


def table(rows: Sequence[tuple[str, str, str]]) -> str:
    """Give a Markdown table of what was measured, the figure, and what it should be."""
    head = ["| measured | figure | to be |", "|---|---|---|"]
    return "\n".join([*head, *(f"| {label} | {value} | {target} |" for label, value, target in rows), ""])


def origin(results: Mapping[str, Any]) -> str:
    """Say in a paragraph on what machine and with which versions it was measured; what was on another one is named."""
    together: dict[str, dict[str, Any]] = {}
    for name, figures in results["figures"].items():
        # What has a command of its own says so itself.
        if "command" not in figures:
            together.setdefault(machine_of(figures), {})[name] = figures
    most, *others = sorted(together.items(), key=lambda each: -len(each[1]))
    rough = any(figures["rough"] for names in together.values() for figures in names.values())
    how = "Roughly measured, by `python -m benchmarks.run --quick`," if rough else "Measured by `make bench`"
    said = f"{how} {_taken(*most)}"
    for machine, names in others:
        said += f" But {' and '.join(names)} {_taken(machine, names)}"
    return said


def _taken(machine: str, names: Mapping[str, Any]) -> str:
    dates = sorted({figures["date"].partition(" ")[0] for figures in names.values()})
    load = max(figures["load"] for figures in names.values())
    return (
        f"on {' and '.join(dates)}: {machine}. The machine's load before each of these measurements was "
        f"at most {load:.1f}."
    )


def machine_of(measured: Mapping[str, Any]) -> str:
    """Name the machine and the versions of what was measured."""
    machine = measured["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in measured["versions"].items())
    return (
        f"{machine['cores']} cores of {machine['processor']}, {machine['memory_bytes'] / 2**30:.0f} GiB, "
        f"{machine['system']}; {versions}"
    )


def plot(title: str, bars: Sequence[tuple[str, float]], *, unit: str) -> str:
    """Draw horizontal bars as SVG; colours follow the text, so that it can be read on any ground."""
    most = max(value for _, value in bars)
    height = 34 + len(bars) * (BAR + GAP)
    shapes = [f'<text x="0" y="16" font-weight="bold">{escape(title)}</text>']
    for position, (name, value) in enumerate(bars):
        top = 30 + position * (BAR + GAP)
        long = (WIDTH - LABEL - 90) * value / most
        middle = top + BAR * 0.7
        shapes += [
            f'<text x="0" y="{middle:.0f}">{escape(name)}</text>',
            f'<rect x="{LABEL}" y="{top}" width="{long:.1f}" height="{BAR}" fill="#4c78a8"/>',
            f'<text x="{LABEL + long + 6:.1f}" y="{middle:.0f}">{value:,.0f}{unit}</text>',
        ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13" fill="#808080">\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    main()
