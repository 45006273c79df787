"""Charts as inline SVG, coloured by the page's style sheet and nothing else. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from corpusmill.page.markup import Markup, tag
from corpusmill.page.numbers import share, span, ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

WIDTH, HEIGHT = 440, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 12, 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A series over time: seconds since the start, and values. `kind` is its class in the style sheet."""

    name: str
    kind: str
    points: Sequence[tuple[float, float]]
    filled: bool = False


def lines(series: Sequence[Line], *, title: str, label: Callable[[float], str]) -> Markup:
    """Draw series over time, from 0 up to the highest value; `label` writes a value beside the axis."""
    latest = max((point[0] for line in series for point in line.points), default=0.0) or 1.0
    highest = max((point[1] for line in series for point in line.points), default=0.0)
    scale = ticks(highest)
    up = _upwards(scale)

    def across(seconds: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * seconds / latest, 1)

    drawn: list[Markup] = []
    for line in series:
        points = [(across(seconds), up(value)) for seconds, value in line.points]
        if line.filled and points:
            around = [(points[0][0], up(0)), *points, (points[-1][0], up(0))]
            drawn.append(tag("path", class_=f"area {line.kind}", d=f"M{_path(around)}Z"))
        drawn.append(tag("polyline", class_=f"line {line.kind}", points=_path(points)))
    return tag(
        "svg",
        _grid(scale, up, label),
        [
            tag(
                "text",
                span(latest * part) if part else "0",
                x=across(latest * part),
                y=HEIGHT - 6,
                class_=anchor,
            )
            for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
        ],
        drawn,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=title,
    )


def histogram(bins: Sequence[int], labels: Sequence[str], *, title: str) -> Markup:
    """Draw counts as columns; `labels[i]` is the upper bound of bin i."""
    scale = ticks(max(bins, default=0))
    up = _upwards(scale)
    width = (WIDTH - LEFT - RIGHT) / max(len(bins), 1)
    columns = [
        tag(
            "g",
            tag("title", f"{number:,} answers up to {label}"),
            tag(
                "rect",
                class_="column",
                x=round(LEFT + position * width + 0.5, 1),
                y=up(number),
                width=round(max(width - 1, 0.5), 1),
                height=round(HEIGHT - BOTTOM - up(number), 1),
            ),
        )
        for position, (number, label) in enumerate(zip(bins, labels, strict=True))
        if number
    ]
    every = -(-len(labels) // 6)
    marks = [
        tag("text", label, x=round(LEFT + (position + 1) * width, 1), y=HEIGHT - 6, class_="middle")
        for position, label in enumerate(labels[:-1])
        if position % every == every - 1
    ]
    return tag(
        "svg",
        _grid(scale, up, lambda value: f"{value:,.0f}" if value.is_integer() else ""),
        columns,
        marks,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=title,
    )


def stack(parts: Mapping[str, int], *, title: str) -> Markup:
    """Draw shares of a whole as one bar; the names are the classes of the style sheet."""
    whole = sum(parts.values())
    drawn: list[Markup] = []
    start = 0.0
    for name, number in parts.items():
        width = 1_000 * number / whole if whole else 0.0
        if number:
            drawn.append(
                tag(
                    "g",
                    tag("title", f"{name}: {number:,} ({share(number, whole)})"),
                    # What is there is seen, however little it is.
                    tag(
                        "rect",
                        class_=f"fill-{name}",
                        x=round(start, 2),
                        y=0,
                        width=max(round(width, 2), 3),
                        height=10,
                    ),
                )
            )
        start += width
    return tag(
        "svg",
        drawn,
        class_="stack",
        viewBox="0 0 1000 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=title,
    )


def _upwards(scale: Sequence[float]) -> Callable[[float], float]:
    """Give what places a value on a scale that begins at 0, as a distance from the upper edge."""
    return lambda value: round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / scale[-1], 1)


def _grid(
    scale: Sequence[float], up: Callable[[float], float], label: Callable[[float], str]
) -> list[Markup]:
    return [
        tag(
            "g",
            tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=up(value), y2=up(value)),
            tag("text", label(value), x=LEFT - 6, y=up(value) + 4, class_="end"),
        )
        for value in scale
    ]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)
