"""The figures of a measurement in words: what is printed after it, and what the README states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Line = tuple[str, str, str]
"""What was measured, the figure with its unit, and what it should be ("" where nothing is promised)."""


def lines(name: str, figures: Mapping[str, Any]) -> list[Line]:
    """Give the lines of one measurement."""
    return _LINES[name](figures)


def _live(found: Mapping[str, Any]) -> list[Line]:
    return [
        (
            f"live, {found['rows']:,} rows, {found['in_flight']} in flight",
            f"{found['rows_per_second']:,.0f} rows/s",
            "at least 3,000",
        ),
        ("processor time, all threads", f"{found['cpu_us_per_row']:,.0f} µs/row", ""),
        ("live, beside AsyncOpenAI and gather", f"{found['times_sdk']:.1f} times", "at least 6"),
        ("AsyncOpenAI and gather, no store", f"{found['sdk_rows_per_second']:,.0f} rows/s", ""),
        ("AsyncOpenAI, processor time", f"{found['sdk_cpu_us_per_row']:,.0f} µs/row", ""),
        ("beside the bare transport", f"{found['share_of_bare']:.0%}", ""),
        ("the bare transport", f"{found['bare_requests_per_second']:,.0f} requests/s", ""),
    ]


def _replay(found: Mapping[str, Any]) -> list[Line]:
    return [
        (
            f"again from the store, {found['rows']:,} rows",
            f"{found['rows_per_second']:,.0f} rows/s",
            "at least 100,000",
        ),
        ("processor time, all threads", f"{found['cpu_us_per_row']:.1f} µs/row", ""),
    ]


def _skip(found: Mapping[str, Any]) -> list[Line]:
    return [
        (f"skipped run of {found['rows']:,} rows", f"{found['seconds']:.2f} s", "under 1 s"),
        ("with the start of Python and all imports", f"{found['process_seconds']:.2f} s", ""),
    ]


def _latency(found: Mapping[str, Any]) -> list[Line]:
    plain, straggling = found["plain"], found["with_stragglers"]
    return [
        (
            f"{found['in_flight']:,} in flight, lognormal of mean {found['mean']:g} s, sigma {found['sigma']:g}",
            f"{plain['share']:.1%} of Little's law",
            "at least 95 %",
        ),
        ("answers", f"{plain['others_per_second']:,.0f} rows/s", ""),
        (
            f"with {found['stragglers']:.0%} stragglers of {found['straggler_seconds']} s",
            f"{straggling['share']:.1%} of Little's law",
            "",
        ),
        ("answers that are no stragglers", f"{straggling['others_per_second']:,.0f} rows/s", ""),
        (
            "their rate by the place that stragglers leave, against without",
            f"{found['others_unchanged']:.1%}",
            "97 % to 103 %",
        ),
    ]


def _memory(found: Mapping[str, Any]) -> list[Line]:
    peaks = zip(found["rows"], found["live"], found["bytes"], strict=True)
    return [
        *(
            (
                f"peak memory at {rows:,} rows, {live:,} of them asked",
                f"{size / 1e6:.0f} MB",
                "under 400 MB",
            )
            for rows, live, size in peaks
        ),
        (
            "peak memory at ten times the rows, at most, over that at the rows",
            f"{found['ratio']:.2f}",
            "at most 1.1",
        ),
        ("after the imports", f"{found['imported_bytes'] / 1e6:.0f} MB", ""),
    ]


def _descriptors(found: Mapping[str, Any]) -> list[Line]:
    return [
        (f"descriptors in the first half of {found['calls']:,} calls", f"{found['first_half']}", ""),
        ("descriptors in the second half", f"{found['second_half']}", "no more"),
        ("descriptors left open", f"{found['left_open']}", "0"),
    ]


def _importing(found: Mapping[str, Any]) -> list[Line]:
    return [
        ("import corpusmill", f"{found['package_seconds'] * 1e3:.1f} ms", "under 200 ms"),
        ("with all that a run needs", f"{found['run_seconds']:.2f} s", ""),
    ]


def _signing(found: Mapping[str, Any]) -> list[Line]:
    return [
        (f"signing a request of {size:,} bytes for SageMaker, processor time", f"{cost:,.0f} µs", "")
        for size, cost in zip(found["body_bytes"], found["cpu_us_per_request"], strict=True)
    ]


def _peers(found: Mapping[str, Any]) -> list[Line]:
    made: list[Line] = []
    done = found["found"]
    for name, figures in done.items():
        if "error" in figures:
            made.append((name, f"failed: {figures['error']}", ""))
            continue
        # The bare transport asks nothing but one request, over and over.
        rows = "" if "bare" in name else f", {figures['rows']:,} rows"
        made.append(
            (
                f"{name}{rows}",
                f"{figures['rows_per_second']:,.0f} rows/s, {figures['cpu_us_per_row']:,.0f} µs/row of processor time",
                "",
            )
        )
    for kind, again, aim in (("first run", False, "at least 10 times"), ("run from the cache", True, "")):
        others = {
            name: figures
            for name, figures in done.items()
            if name.endswith(", again") == again
            and not name.startswith(("corpusmill", "the bare"))
            and figures.get("times")
        }
        if others:
            best = min(others, key=lambda name: others[name]["times"])
            made.append(
                (f"{kind}, beside the best of them ({best})", f"{others[best]['times']:.1f} times", aim)
            )
    bare = done.get("the bare transport", {}).get("times")
    if bare:
        made.append(("first run, beside the bare transport", f"{bare:.0%}", "at least 50 %"))
    return made


def _goodput(found: Mapping[str, Any]) -> list[Line]:
    made: list[Line] = []
    for server, clients in found["servers"].items():
        for client, figures in clients.items():
            who = "" if client == "ours" else f", {client}"
            if "error" in figures:
                made.append((f"{server}{who}", figures["error"], ""))
                continue
            refuses = "queue" not in server
            lost = f", {figures['given_up']:,} rows given up" if figures.get("given_up") else ""
            aim = "at least 97 %, at most 1 % refused" if refuses else "at least 97 %"
            made.append(
                (
                    f"{server}{who}",
                    f"{figures['share']:.1%} of the limit, {figures['refused']:.1%} refused{lost}",
                    aim if client == "ours" else "",
                )
            )
    return made


def _fleet(found: Mapping[str, Any]) -> list[Line]:
    made: list[Line] = []
    for kind, figures in found["stores"].items():
        name = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}[kind]
        made += [
            (
                f"{found['processes']} processes, one store in {name}",
                f"{figures['share']:.1%} of the limit",
                "at least 95 %",
            ),
            (f"of their attempts refused, {name}", f"{figures['refused']:.2%}", "at most 2 %"),
            (
                f"of {figures['computed']:,} answers paid twice, {name}",
                f"{figures['paid_twice']}",
                "0",
            ),
        ]
    return made


def _store_size(found: Mapping[str, Any]) -> list[Line]:
    puts, gets = found["puts_per_second"], found["gets_per_second"]
    return [
        (f"entries put into a store of {found['entries']:,}, at its start", f"{puts[0]:,.0f}/s", ""),
        ("at its end", f"{puts[1]:,.0f}/s", ""),
        ("entries read from it, at its start", f"{gets[0]:,.0f}/s", ""),
        ("at its end", f"{gets[1]:,.0f}/s", ""),
        (
            "on disk",
            f"{found['bytes'] / 1e9:.2f} GB, {found['bytes'] / found['entries']:,.0f} bytes each",
            "",
        ),
    ]


def _memory_at_size(found: Mapping[str, Any]) -> list[Line]:
    made: list[Line] = []
    for kind, name in (("long", "rows of 200 KB"), ("short", "short rows")):
        if kind in found:
            figures = found[kind]
            made += [
                (f"peak memory at {rows:,} {name}", f"{size / 1e6:.0f} MB", "")
                for rows, size in zip(figures["rows"], figures["bytes"], strict=True)
            ]
            made.append(("the second over the first", f"{figures['ratio']:.2f}", "at most 1.1"))
    return made


_LINES = {
    "memory_at_size": _memory_at_size,
    "store_size": _store_size,
    "fleet": _fleet,
    "peers": _peers,
    "goodput": _goodput,
    "live": _live,
    "replay": _replay,
    "skip": _skip,
    "latency": _latency,
    "memory": _memory,
    "descriptors": _descriptors,
    "importing": _importing,
    "signing": _signing,
}
