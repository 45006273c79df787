"""The sections of the page, each from the values of a report. Pure; a section with nothing to say is None."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from corpusmill.outcome import STATUSES
from corpusmill.page.charts import Line, histogram, lines, stack
from corpusmill.page.markup import Markup, tag
from corpusmill.page.numbers import count, money, quantile, rate, share, span
from corpusmill.report import LATENCY_BOUNDS, STATED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Values = dict[str, Any]

ORIGINS = {
    "live": "asked and paid for in this run",
    "cached": "from the store, free",
    "deduplicated": "same as another row, free",
    "skipped": "blank, not asked",
    "unanswered": "without an answer",
}

MEANINGS = {
    "completed": "answered",
    "truncated": "cut at the ceiling of tokens",
    "refused": "the model declined",
    "filtered": "stopped by a content filter",
    "invalid": "does not fit what was asked",
    "failed": "no answer",
    "skipped": "blank, not asked",
}

EXCERPT = 160
"""Characters of a text in a table."""

SLICES = 60
"""Points of a rate over time: more would show the size of chunks and not the speed."""


def section(title: str, *children: Markup | None) -> Markup | None:
    """Give a section, unless all that it would hold is missing."""
    found = [child for child in children if child is not None]
    return tag("section", tag("h2", title), found) if found else None


def tiles(report: Values) -> Markup:
    """Give the few numbers that everybody looks for."""
    rows, seconds = report["rows"], report["seconds"]
    tokens = report["prompt_tokens"], report["completion_tokens"]
    prices = _prices(report)
    shown = [
        ("Rows a second", rate(rows / seconds) if seconds else "–", None),
        ("Asked", count(report["live"]), f"{count(report['attempts'])} attempts"),
        (
            "Not asked again",
            count(report["cached"] + report["deduplicated"]),
            "from the store or another row",
        ),
        ("Without an answer", count(report["unanswered"]), f"{count(report['skipped'])} more were blank"),
        ("Tokens", count(sum(tokens)), f"{count(tokens[0])} in, {count(tokens[1])} out"),
        ("Cost", money(report["cost"]), prices),
        (
            "Tried again",
            count(sum(report["retries"].values())),
            f"{count(report['rate_limited'])} for a limit (429)",
        ),
        ("Paid twice, at most", count(report["possibly_paid_twice"]), "over kills and retries"),
    ]
    return tag(
        "dl",
        [
            tag("div", tag("dt", name), tag("dd", value, tag("small", more) if more else None), class_="tile")
            for name, value, more in shown
        ],
        class_="tiles",
    )


def _prices(report: Values) -> str | None:
    """Say why there is no cost, or that it goes by the prices of a list, which an invoice may not."""
    if report["cost"] is None:
        return "no price is known; the job may state prices"
    return f"by {report['prices']}" if report["prices"] not in (None, STATED) else None


def outcomes(report: Values) -> Markup | None:
    """Show what became of the rows of each prompt, and where their answers came from."""
    cards = []
    for prompt in report["prompts"] or [report]:
        name = prompt.get("into")
        found: dict[str, int] = {status: prompt["outcomes"].get(status, 0) for status in STATUSES}
        cards.append(
            tag(
                "div",
                tag("h3", tag("span", name, class_="mono"), ": what became of the rows") if name else None,
                _share_bar(found, MEANINGS, "Outcomes"),
                class_="card",
            )
        )
        origins = {origin: prompt[origin] for origin in ORIGINS}
        cards.append(
            tag(
                "div",
                tag("h3", "Where the answers came from"),
                _share_bar(origins, ORIGINS, "Origins"),
                class_="card",
            )
        )
    return section("Outcomes", tag("div", cards, class_="two"))


def _share_bar(parts: Mapping[str, int], meanings: Mapping[str, str], title: str) -> Markup:
    whole = sum(parts.values())
    told = ", ".join(f"{number:,} {name}" for name, number in parts.items() if number)
    items = [
        tag(
            "li",
            _swatch(name),
            tag("span", name, " ", tag("small", meanings[name])),
            tag("span", f"{number:,}", class_="number"),
            tag("span", share(number, whole), class_="number soft"),
        )
        for name, number in parts.items()
        if number
    ]
    return Markup(stack(parts, title=f"{title}: {told}") + tag("ul", items, class_="legend"))


def _swatch(name: str) -> Markup:
    square = tag("rect", class_=f"fill-{name}", width=10, height=10, rx=3)
    return tag("svg", square, viewBox="0 0 10 10", aria_hidden="true")


def over_time(report: Values) -> Markup | None:
    """Draw rates and what was in flight over time, and how long answers took."""
    moments = _with_end(report)
    cards: list[Markup] = []
    if len(moments) > 1 and moments[-1]["seconds"] > 0:
        cards.extend(_moving(moments, refusals=bool(report["rate_limited"])))
    bins: Sequence[int] = report["latency"]
    if any(bins):
        cards.append(_latency(bins))
    return section("Over time", tag("div", cards, class_="two")) if cards else None


def _with_end(report: Values) -> list[Values]:
    """Give the moments and the end, which comes between two of them."""
    moments: list[Values] = list(report["timeline"])
    if moments and report["seconds"] > moments[-1]["seconds"]:
        end = {name: report[name] for name in ("seconds", "rows", "live", "rate_limited")}
        moments.append({**end, "in_flight": 0})
    return moments


def _moving(moments: Sequence[Values], *, refusals: bool) -> list[Markup]:
    """Draw answers a second, what was in flight, and the rows that were finished."""
    answered = Line(name="answers, a second", kind="first", points=rates(moments, "live"), filled=True)
    finished = Line(name="rows finished", kind="first", points=_series(moments, "rows"), filled=True)
    flying = Line(name="requests in flight", kind="first", points=_series(moments, "in_flight"), filled=True)
    refused = Line(
        name="refused by a limit (429), a second", kind="second", points=rates(moments, "rate_limited")
    )
    cards = []
    if moments[-1]["live"]:
        cards = [
            _chart("Throughput", [answered]),
            _chart("In flight", [flying, refused] if refusals else [flying]),
        ]
    return [*cards, _chart("Progress", [finished])]


def _series(moments: Sequence[Values], name: str) -> list[tuple[float, float]]:
    return [(moment["seconds"], moment[name]) for moment in moments]


def rates(moments: Sequence[Values], name: str) -> list[tuple[float, float]]:
    """Turn a total over time into a rate a second, at the middle of at most `SLICES` equal slices."""
    end = moments[-1]["seconds"]
    slices = max(1, min(SLICES, len(moments) - 1))
    width = end / slices
    edges = [_total_at(moments, name, width * number) for number in range(slices + 1)]
    return [
        (width * (number + 0.5), max(0.0, (edges[number + 1] - edges[number]) / width))
        for number in range(slices)
    ]


def _total_at(moments: Sequence[Values], name: str, seconds: float) -> float:
    before = moments[0]
    for moment in moments:
        if moment["seconds"] >= seconds:
            gap = moment["seconds"] - before["seconds"]
            part = (seconds - before["seconds"]) / gap if gap > 0 else 1.0
            return float(before[name] + (moment[name] - before[name]) * min(max(part, 0.0), 1.0))
        before = moment
    return float(before[name])


def _chart(title: str, series: Sequence[Line]) -> Markup:
    drawn = lines(series, title=f"{title} over time", label=_plain)
    names = [tag("li", _swatch(line.kind), line.name) for line in series]
    return tag("div", tag("h3", title), drawn, tag("ul", names, class_="legend inline"), class_="card")


def _plain(value: float) -> str:
    return count(value) if value >= 10 or value.is_integer() else f"{value:g}"  # noqa: PLR2004


def _latency(bins: Sequence[int]) -> Markup:
    used = [position for position, number in enumerate(bins) if number]
    first, last = max(0, used[0] - 1), min(len(bins) - 1, used[-1] + 1)
    names = [_bound(LATENCY_BOUNDS[position]) for position in range(min(last + 1, len(LATENCY_BOUNDS)))]
    if last >= len(LATENCY_BOUNDS):
        names.append("longer")
    told = ", ".join(
        f"{name} within {_bound(found)}"
        for name, part in (("half", 0.5), ("90 %", 0.9), ("99 %", 0.99))
        if (found := quantile(bins, LATENCY_BOUNDS, part)) is not None
    )
    return tag(
        "div",
        tag("h3", "How long an answer took"),
        histogram(bins[first : last + 1], names[first:], title="Latency of answers"),
        tag("p", told, class_="caption") if told else None,
        class_="card",
    )


def _bound(seconds: float) -> str:
    milliseconds = seconds * 1_000
    if milliseconds < 100:  # noqa: PLR2004 - two digits say enough
        return f"{milliseconds:.2g} ms"
    return f"{round(milliseconds, -1):.0f} ms" if seconds < 1 else span(seconds)


def problems(report: Values) -> Markup | None:
    """Count what went wrong and was tried again, and what the checks found in answers."""
    cards = []
    for prompt in report["prompts"]:
        into = prompt["into"]
        cards.append(_counts(f"{into}: rows without a usable answer", "cause", prompt["errors"]))
        cards.append(_counts(f"{into}: found in answers", "note", prompt["notes"]))
    cards.append(_counts("Tried again", "cause", report["retries"]))
    found = [card for card in cards if card is not None]
    return section("Errors, retries, findings", tag("div", found, class_="two")) if found else None


def _counts(title: str, what: str, counts: Mapping[str, int]) -> Markup | None:
    if not counts:
        return None
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = [
        tag("tr", tag("td", name.replace("_", " ")), tag("td", f"{number:,}", class_="number"))
        for name, number in ordered
    ]
    table = tag("table", _head({what: False, "times": True}), tag("tbody", rows))
    return tag("div", tag("h3", title), table, class_="card")


def _head(columns: Mapping[str, bool]) -> Markup:
    """Give the head of a table: the names of its columns, and whether they hold numbers."""
    cells = [tag("th", name, class_="number" if numbers else None) for name, numbers in columns.items()]
    return tag("thead", tag("tr", cells))


def warnings(report: Values) -> Markup | None:
    """Say what a reader of the output has to know."""
    ended = report.get("ended")
    said = [
        *([f"The run ended early and committed nothing: {ended}"] if ended else []),
        *(warning for warning in report["warnings"] if warning not in (ended or "")),
        *(f"changed by Parquet: {change}" for change in report["changed_types"]),
    ]
    if not said:
        return None
    return section("To know", *(tag("div", tag("p", line), class_="card warning") for line in said))


def sampled(samples: Sequence[Values]) -> Markup | None:
    """Show rows with what went in and what came out, side by side; what several prompts read is shown once."""
    groups: dict[tuple[Any, ...], list[Values]] = {}
    for sample in samples:
        groups.setdefault((sample["row"], *sorted(sample["inputs"].items())), []).append(sample)
    return section("Samples", *(_row(group) for group in groups.values()))


def _row(samples: Sequence[Values]) -> Markup:
    # The first input shares the line of the row's number.
    number = tag("b", f"row {samples[0]['row']:,}")
    given = [
        Markup(
            tag("h4", None if position else number, tag("span", name), class_="place")
            + tag("div", value, class_="text", dir="auto")
        )
        for position, (name, value) in enumerate(samples[0]["inputs"].items())
    ]
    sides = [
        tag("div", given or tag("h4", number, class_="place"), class_="side"),
        *(tag("div", _outcome(sample), class_="side") for sample in samples),
    ]
    return tag("article", sides, class_="card sides")


def _outcome(sample: Values) -> list[Markup | None]:
    seconds, attempts = sample.get("seconds"), sample.get("attempts", 0)
    facts = [
        tag("span", sample["status"], class_=f"status is-{sample['status']}"),
        tag("span", span(seconds)) if seconds is not None else None,
        tag("span", f"{attempts:,} attempts") if attempts > 1 else None,
        *(tag("span", note.replace("_", " ")) for note in sample.get("notes", ())),
    ]
    error, output = sample.get("error"), sample.get("output")
    return [
        tag("h4", tag("b", sample["into"]), facts, class_="place"),
        tag("div", error, class_="reason", dir="auto") if error else None,
        tag("div", output, class_="text", dir="auto") if output is not None else None,
    ]


def failures(samples: Sequence[Values], *, total: int) -> Markup | None:
    """List rows that have no usable answer, with the reason and the beginning of their text."""
    if not samples:
        return None
    rows = [
        tag(
            "tr",
            tag("td", f"{sample['row']:,}", class_="number"),
            tag("td", sample["into"], class_="mono"),
            tag("td", sample["status"], class_=f"status is-{sample['status']}"),
            tag("td", tag("div", sample["error"] or "", class_="reason", dir="auto")),
            tag("td", tag("div", _beginning(sample["inputs"]), class_="excerpt", dir="auto")),
        )
        for sample in samples
    ]
    head = _head({"row": True, "column": False, "outcome": False, "reason": False, "text": False})
    more = f"{len(samples):,} of {total:,}; all of them: corpusmill failures, with the output's path"
    return section(
        "Rows without a usable answer",
        tag(
            "div",
            tag("table", head, tag("tbody", rows), class_="failed-rows"),
            tag("p", more, class_="caption") if total > len(samples) else None,
            class_="card wide",
        ),
    )


def _beginning(inputs: Mapping[str, str]) -> str:
    text = " · ".join(" ".join(value[: 2 * EXCERPT].split()) for value in inputs.values())
    return text if len(text) <= EXCERPT else text[:EXCERPT] + "…"


def slowest(samples: Sequence[Values]) -> Markup | None:
    """List the rows that took longest."""
    if not samples:
        return None
    rows = [
        tag(
            "tr",
            tag("td", f"{sample['row']:,}", class_="number"),
            tag("td", sample["into"], class_="mono"),
            tag("td", span(sample["seconds"] or 0.0), class_="number"),
            tag("td", f"{sample['attempts']:,}", class_="number"),
            tag("td", sample["status"], class_=f"status is-{sample['status']}"),
            tag("td", f"{sum(map(len, sample['inputs'].values())):,}", class_="number"),
            tag("td", f"{len(sample.get('output') or ''):,}", class_="number"),
        )
        for sample in samples
    ]
    head = _head(
        {
            "row": True,
            "column": False,
            "took": True,
            "attempts": True,
            "outcome": False,
            "characters in": True,
            "out": True,
        }
    )
    table = tag("table", head, tag("tbody", rows))
    return section("Slowest rows", tag("div", table, class_="card wide"))


def job(report: Values) -> Markup | None:
    """Show which job it was, without its secrets."""
    named = [
        ("Output", report["output"]),
        ("Model", report["model"]),
        ("Endpoint", report["endpoint"]),
        ("Run key", report["run_key"]),
    ]
    facts = [
        Markup(tag("dt", name) + tag("dd", value, class_="mono" if name == "Run key" else None))
        for name, value in named
        if value
    ]
    written = None
    if report["job"]:
        pretty = msgspec.json.format(msgspec.json.encode(report["job"]), indent=2).decode()
        written = tag("div", tag("pre", pretty), class_="card")
    return section(
        "The job", tag("div", tag("dl", facts, class_="facts"), class_="card") if facts else None, written
    )
