"""The page as a whole: it is told in one order, from the verdict to the job, and may load and run nothing."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from corpusmill.page import sections
from corpusmill.page.markup import Markup, tag
from corpusmill.page.numbers import span
from corpusmill.report import RunReport

if TYPE_CHECKING:
    from collections.abc import Mapping

_BLANK = RunReport(
    rows=0,
    outcomes={},
    live=0,
    cached=0,
    deduplicated=0,
    skipped=0,
    unanswered=0,
    attempts=0,
    possibly_paid_twice=0,
    prompt_tokens=0,
    completion_tokens=0,
    cost=None,
    seconds=0.0,
    output=None,
    skipped_run=False,
)


def render(report: RunReport | Mapping[str, Any]) -> str:
    """Give the page of a report, or of what `report.json` holds; fields that are missing there count as empty.

    `ended`, which no report has that was committed, tells why a run committed nothing.

    The page is UTF-8, needs no network and holds no script. Its policy allows its own style sheet and nothing
    else, so that even markup which got through would load, run and send nothing.
    """
    given = report.as_dict() if isinstance(report, RunReport) else dict(report)
    values = {**_BLANK.as_dict(), **given}
    style = style_sheet()
    title = f"corpusmill: {values['output'] or 'report'}"
    body = tag(
        "main",
        _head(values),
        sections.tiles(values),
        sections.warnings(values),
        sections.outcomes(values),
        sections.over_time(values),
        sections.problems(values),
        sections.failures(values["failures"], total=_erring(values)),
        sections.sampled(values["samples"]),
        sections.slowest(values["slowest"]),
        sections.job(values),
        tag("footer", "Written by corpusmill. This page loads nothing and sends nothing."),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy(style)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="robots", content="noindex"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", style),
    )
    return "<!doctype html>\n" + tag("html", head, tag("body", body), lang="en") + "\n"


@cache
def style_sheet() -> Markup:
    """Give the style sheet, which is part of the package."""
    return Markup(resources.files("corpusmill.page").joinpath("style.css").read_text("utf-8"))


def policy(style: str) -> str:
    """Give the content security policy: this one style sheet, by its hash, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _erring(report: dict[str, Any]) -> int:
    """Count the rows that have an error, whatever their outcome is called."""
    return sum(sum(prompt["errors"].values()) for prompt in report["prompts"])


def _head(report: dict[str, Any]) -> Markup:
    unusable = _erring(report)
    if report.get("ended"):
        verdict, mood = "ended early, nothing committed", "bad"
    elif report["skipped_run"]:
        verdict, mood = "nothing to do", "calm"
    elif unusable:
        verdict, mood = f"done, {unusable:,} without a usable answer", "bad"
    else:
        verdict, mood = "done", "good"
    who = [" by ", tag("b", report["model"])] if report["model"] else []
    where = [" Output: ", tag("b", report["output"]), "."] if report["output"] else []
    columns = ", ".join(prompt["into"] for prompt in report["prompts"])
    what = [" into ", tag("b", columns)] if columns else []
    return tag(
        "div",
        tag("div", "corpusmill run report", tag("span", verdict, class_=f"pill {mood}"), class_="brand"),
        tag("h1", f"{report['rows']:,} rows in {span(report['seconds'])}"),
        tag("p", "Answered", who, what, ".", where, class_="lead"),
    )
