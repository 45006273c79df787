"""The figures of a measurement in words: what is printed after it, and what the README states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Line = tuple[str, str, str]
"""What was measured, the figure with its unit, and what it should be ("" where nothing is promised).

An aim that the figure misses says so.
"""


def lines(name: str, figures: Mapping[str, Any]) -> list[Line]:
    """Give the lines of one measurement."""
    return _LINES[name](figures)


def _aim(words: str, *, met: bool) -> str:
    return words if met else f"{words} (missed)"


def _at_least(value: float, bound: float, unit: str = "") -> str:
    return _aim(f"at least {bound:,g}{unit}", met=value >= bound)


def _at_most(value: float, bound: float, unit: str = "") -> str:
    return _aim(f"at most {bound:,g}{unit}", met=value <= bound)


def _under(value: float, bound: float, unit: str) -> str:
    return _aim(f"under {bound:,g}{unit}", met=value < bound)


def _none(value: int) -> str:
    return _aim("0", met=value == 0)


def _live(found: Mapping[str, Any]) -> list[Line]:
    return [
        (
            f"live, {found['rows']:,} rows, {found['in_flight']} in flight",
            f"{found['rows_per_second']:,.0f} rows/s",
            _at_least(found["rows_per_second"], 5_000),
        ),
        ("processor time, all threads", f"{found['cpu_us_per_row']:,.0f} µs/row", ""),
        (
            "live, beside AsyncOpenAI and gather",
            f"{found['times_sdk']:.1f} times",
            _at_least(found["times_sdk"], 10),
        ),
        ("AsyncOpenAI and gather, no store", f"{found['sdk_rows_per_second']:,.0f} rows/s", ""),
        ("AsyncOpenAI, processor time", f"{found['sdk_cpu_us_per_row']:,.0f} µs/row", ""),
        (
            "beside the bare transport",
            f"{found['share_of_bare']:.0%}",
            _at_least(found["share_of_bare"] * 100, 50, " %"),
        ),
        ("the bare transport", f"{found['bare_requests_per_second']:,.0f} requests/s", ""),
    ]


def _replay(found: Mapping[str, Any]) -> list[Line]:
    return [
        (
            f"again from the store, {found['rows']:,} rows",
            f"{found['rows_per_second']:,.0f} rows/s",
            _at_least(found["rows_per_second"], 150_000),
        ),
        ("processor time, all threads", f"{found['cpu_us_per_row']:.1f} µs/row", ""),
    ]


def _skip(found: Mapping[str, Any]) -> list[Line]:
    return [
        (
            f"skipped run of {found['rows']:,} rows",
            f"{found['seconds']:.2f} s",
            _under(found["seconds"], 1, " s"),
        ),
        ("with the start of Python and all imports", f"{found['process_seconds']:.2f} s", ""),
    ]


def _latency(found: Mapping[str, Any]) -> list[Line]:
    plain, straggling = found["plain"], found["with_stragglers"]
    return [
        (
            f"{found['in_flight']:,} in flight, lognormal of mean {found['mean']:g} s, sigma {found['sigma']:g}",
            f"{plain['share']:.1%} of Little's law",
            _at_least(plain["share"] * 100, 97, " %"),
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
            _aim("97 % to 103 %", met=0.97 <= found["others_unchanged"] <= 1.03),
        ),
    ]


def _memory(found: Mapping[str, Any]) -> list[Line]:
    peaks = zip(found["rows"], found["live"], found["bytes"], strict=True)
    return [
        *(
            (
                f"peak memory at {rows:,} rows, {live:,} of them asked",
                f"{size / 1e6:.0f} MB",
                _under(size / 1e6, 400, " MB"),
            )
            for rows, live, size in peaks
        ),
        (
            "peak memory at ten times the rows, at most, over that at the rows",
            f"{found['ratio']:.2f}",
            _at_most(found["ratio"], 1.1),
        ),
        ("after the imports", f"{found['imported_bytes'] / 1e6:.0f} MB", ""),
    ]


def _descriptors(found: Mapping[str, Any]) -> list[Line]:
    return [
        (f"descriptors in the first half of {found['calls']:,} calls", f"{found['first_half']}", ""),
        (
            "descriptors in the second half",
            f"{found['second_half']}",
            _aim("no more", met=found["second_half"] <= found["first_half"]),
        ),
        ("descriptors left open", f"{found['left_open']}", _none(found["left_open"])),
    ]


def _importing(found: Mapping[str, Any]) -> list[Line]:
    return [
        (
            "import corpusmill",
            f"{found['package_seconds'] * 1e3:.1f} ms",
            _under(found["package_seconds"] * 1e3, 200, " ms"),
        ),
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
    for kind, again in (("first run", False), ("run from the cache", True)):
        others = {
            name: figures
            for name, figures in done.items()
            if name.endswith(", again") == again
            and not name.startswith(("corpusmill", "the bare"))
            and figures.get("times")
        }
        if others:
            best = min(others, key=lambda name: others[name]["times"])
            times = others[best]["times"]
            aim = "" if again else _at_least(times, 10, " times")
            made.append((f"{kind}, beside the best of them ({best})", f"{times:.1f} times", aim))
    bare = done.get("the bare transport", {}).get("times")
    if bare:
        made.append(("first run, beside the bare transport", f"{bare:.0%}", _at_least(bare * 100, 50, " %")))
    return made


def _goodput(found: Mapping[str, Any]) -> list[Line]:
    made: list[Line] = []
    for server, clients in found["servers"].items():
        for client, figures in clients.items():
            who = "" if client == "ours" else f", {client}"
            if "error" in figures:
                made.append((f"{server}{who}", figures["error"], ""))
                continue
            lost = f", {figures['given_up']:,} rows given up" if figures.get("given_up") else ""
            aim = _at_least(figures["share"] * 100, 97, " %")
            if "queue" not in server:
                aim += f", {_at_most(figures['refused'] * 100, 1, ' % refused')}"
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
                _at_least(figures["share"] * 100, 95, " %"),
            ),
            (
                f"of their attempts refused, {name}",
                f"{figures['refused']:.2%}",
                _at_most(figures["refused"] * 100, 2, " %"),
            ),
            (
                f"of {figures['computed']:,} answers paid twice, {name}",
                f"{figures['paid_twice']}",
                _none(figures["paid_twice"]),
            ),
        ]
    return made


def _store_size(found: Mapping[str, Any]) -> list[Line]:
    puts, gets = found["puts_per_second"], found["gets_per_second"]
    return [
        (f"entries put into a store of {found['entries']:,}, at its start", f"{puts[0]:,.0f}/s", ""),
        ("at its end", f"{puts[1]:,.0f}/s", ""),
        ("in the slowest twentieth", f"{min(found['puts_by_stretch']):,.0f}/s", ""),
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
    for kind in ("long", "short"):
        if kind not in found:
            continue
        figures = found[kind]
        if kind == "long":
            rows = f"{figures['rows']:,} rows of 200 KB"
            names = [f"peak memory in the first half of {rows}", "in the second half"]
        else:
            names = [f"peak memory at {rows:,} short rows" for rows in figures["rows"]]
        made += [
            (name, f"{size / 1e6:.0f} MB", "") for name, size in zip(names, figures["bytes"], strict=True)
        ]
        ratio = figures["ratio"]
        made.append(("the second over the first", f"{ratio:.2f}", _at_most(ratio, 1.1)))
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
