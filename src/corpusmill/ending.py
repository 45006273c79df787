"""How a run ends: refused for its failures, committed with its report, cut short, or with nothing to do.

Each end is told in a report, which lies in the sink, or beside it where nothing was committed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from corpusmill.errors import CorpusmillError, RunEndedError, TooManyFailuresError
from corpusmill.page import render
from corpusmill.report import RunReport, summary
from corpusmill.tables.reports import write_failed_report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corpusmill.engine.outputs import FailureLog
    from corpusmill.policy import FailurePolicy
    from corpusmill.report import PromptReport
    from corpusmill.tables import Manifest, Sink, SinkLike, Writing
    from corpusmill.tables.layout import ReportKind

_log = logging.getLogger("corpusmill")

SAID = 200
"""Characters of what is said of a row in the error of a run."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def failed_rows(prompt: PromptReport, statuses: Sequence[str]) -> int:
    """Count the rows of a prompt that have one of these statuses."""
    return sum(prompt.outcomes.get(status, 0) for status in statuses)


def refuse_failures(report: RunReport, policy: FailurePolicy, sink: Sink | None, log: FailureLog) -> None:
    """Raise `TooManyFailuresError` when more rows failed than may; they are then listed beside the `sink`."""
    for prompt in report.prompts:
        asked = report.rows - prompt.skipped
        failed = failed_rows(prompt, policy.statuses)
        if asked and failed / asked > policy.max_failed:
            where = f" They are listed in {sink.write_failures(log.lines())}." if sink is not None else ""
            kinds = sorted(prompt.errors.items(), key=lambda item: -item[1])[:5]
            counted = ", ".join(f"{count} {kind}" for kind, count in kinds)
            cause = _cause(report, prompt.into, kinds[0][0], log) if kinds else ""
            error = TooManyFailuresError(
                f"{failed} of {asked} rows failed for {prompt.into!r} ({failed / asked:.1%}: {counted}), and "
                f"max_failed is {policy.max_failed:.1%} of them (written as the share {policy.max_failed:g}): "
                f"nothing was committed.{cause}{where} "
                "What was answered is kept; run again to ask the failed rows again, or raise max_failed"
            )
            error.report = report
            raise error


def _cause(report: RunReport, into: str, kind: str, log: FailureLog) -> str:
    """Say what is said of the first row that failed in the most frequent way, and what to do if that is known."""
    lines = map(_decode, log.lines())
    said = next((line["error"] for line in lines if (line["into"], line["kind"]) == (into, kind)), None) or ""
    first = f" Most often: {said[:SAID].rstrip(' .')}{'…' if len(said) > SAID else '.'}" if said else ""
    return "".join([first, *(f" {warning}." for warning in report.warnings)])


def commit(writing: Writing, report: RunReport, log: FailureLog, *, failed: int, identity: str) -> None:
    """Commit what was written with its report and its failures beside the manifest, by which `failed` rows failed."""
    sidecars = {f"report.{kind}": data for kind, data in _forms(report.as_dict()).items()}
    if log.rows:
        sidecars["failures.jsonl"] = log.content()
    writing.commit(
        failed=failed, manifest_extra={"report": summary(report), "identity": identity}, sidecars=sidecars
    )


def keep_report(sink: SinkLike, error: BaseException, *, shard: tuple[str, int] | None = None) -> None:
    """Write down what a run that ended early had done and what ended it, and let its error say where.

    `shard` is the run key and the number of a shard, where the report is of one. Called while an error is on its way
    up, which nothing here holds up: a report that cannot be written is a warning.
    """
    if not isinstance(error, RunEndedError) or error.report is None:
        return
    try:
        files = _forms({**error.report.as_dict(), "ended": str(error)})
        error.report_address = write_failed_report(sink, files, shard=shard)
    except CorpusmillError as trouble:
        _log.warning("there will be no report of this run: %s: %s", type(trouble).__name__, trouble)
    except Exception as trouble:  # noqa: BLE001 - whatever it is, the run has ended for another reason
        # Whose words may be those of a row, which belong in no log.
        _log.warning("there will be no report of this run: %s", type(trouble).__name__)


def _forms(values: dict[str, Any]) -> dict[ReportKind, bytes]:
    """Give the files of a report from its values: for programs, and as a page."""
    return {
        "json": msgspec.json.format(msgspec.json.encode(values), indent=1) + b"\n",
        "html": render(values).encode(),
    }


def skipped_report(manifest: Manifest | None, shown: str) -> RunReport:
    """Give the report of a run that had nothing to do, from what the run before it wrote down."""
    assert manifest is not None
    before = manifest.extra.get("report", {})
    unanswered, skipped = before.get("unanswered", 0), before.get("skipped", 0)
    total = sum(before.get("outcomes", {}).values())
    return RunReport(
        rows=manifest.rows,
        outcomes=before.get("outcomes", {}),
        live=0,
        cached=total - unanswered - skipped,
        deduplicated=0,
        skipped=skipped,
        unanswered=unanswered,
        attempts=0,
        possibly_paid_twice=before.get("possibly_paid_twice", 0),
        prompt_tokens=0,
        completion_tokens=0,
        cost=0.0,
        seconds=0.0,
        output=shown,
        skipped_run=True,
        run_key=manifest.run_key,
    )
