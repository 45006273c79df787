"""Asset checks over a finished output: shares of rows, counted from its columns.

They are counted from the output itself and not from the run's report, so that they say the same of an output that was
there already. A rule says how large a share may be; which rows a share is taken of is part of each check's name here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg

from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyarrow import dataset as pads

    from corpusmill.job import Job
    from corpusmill.prompts.prompt import Prompt

DESCRIPTIONS: Mapping[str, str] = {
    "failed_rows": "Few rows that were asked have failed or got an answer that is no valid one.",
    "truncated_rows": "Few answers were cut at their ceiling.",
    "blank_outputs": "Few completed rows have an output without any text.",
    "untranslated_copies": "Few translations, or lines of them, are copies of the text.",
    "structure_kept": "Few translations have other paragraphs, lines or placeholders than the text.",
    "schema": "The output has the columns and types that its prompts promise.",
}

_STRUCTURE = frozenset({"paragraphs", "lines", "placeholder", "tag", "entity"})
"""What notes about the shape of a translation begin with, up to the first `_`."""

_OF_TRANSLATIONS = ("untranslated_copies", "structure_kept")
_BATCH_ROWS = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a check allows: the share of rows (`most`, 0 to 1) that may be of the kind that it counts.

    A blocking check that fails keeps the assets downstream from running, when its severity is ERROR.
    """

    most: float = 0.0
    blocking: bool = False
    severity: Literal["WARN", "ERROR"] = "ERROR"

    def __post_init__(self) -> None:
        """Refuse a share outside 0 to 1."""
        if not 0 <= self.most <= 1:
            raise UsageError(f"a check's most is {self.most}; it is a share, from 0 to 1")


RULES: Mapping[str, Rule] = {
    "failed_rows": Rule(most=0.05),
    "truncated_rows": Rule(most=0.01, severity="WARN"),
    "blank_outputs": Rule(severity="WARN"),
    "untranslated_copies": Rule(most=0.02, severity="WARN"),
    "structure_kept": Rule(most=0.05, severity="WARN"),
    "schema": Rule(),
}


def rules_of(wanted: Mapping[str, Rule | bool], prompts: Sequence[Prompt] | None) -> dict[str, Rule]:
    """Give the rules of an asset: the usual ones, changed by `wanted`, where False leaves a check out.

    Checks that are for translations only are left out where no prompt is one; `prompts` of None are not known yet.
    """
    unknown = set(wanted) - set(RULES)
    if unknown:
        raise UsageError(f"no check is called {', '.join(sorted(unknown))}; known are {', '.join(RULES)}")
    rules = {}
    translates = prompts is None or any(_is_translation(prompt) for prompt in prompts)
    for name, usual in RULES.items():
        chosen = wanted.get(name, usual)
        if chosen is False or (name in _OF_TRANSLATIONS and not translates):
            continue
        rules[name] = usual if isinstance(chosen, bool) else chosen
    return rules


def _is_translation(prompt: Prompt) -> bool:
    from corpusmill.lineage.columns import kind_of

    return kind_of(prompt) == "translate"


@dataclass(slots=True)
class Tally:
    """What the rows of one prompt's columns are, counted; `copied` to `blank` are completed ones."""

    into: str
    translation: bool
    rows: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    copied: int = 0
    restructured: int = 0
    blank: int = 0

    @property
    def asked(self) -> int:
        """Rows that had something to ask about."""
        return self.rows - self.statuses["skipped"]

    def counted(self, check: str) -> tuple[int, int]:
        """Give the rows that a check is about, and those among them that it counts."""
        done = self.statuses["completed"]
        match check:
            case "failed_rows":
                return self.asked, self.statuses["failed"] + self.statuses["invalid"]
            case "truncated_rows":
                return self.asked, self.statuses["truncated"]
            case "blank_outputs":
                return done, self.blank
            case "untranslated_copies":
                return done if self.translation else 0, self.copied
            case _:
                return done if self.translation else 0, self.restructured


def tally(dataset: pads.Dataset, prompts: Sequence[Prompt]) -> list[Tally]:
    """Count the rows of each prompt in a finished output, some thousand rows at a time."""
    from pyarrow import dataset as pads

    from corpusmill.rows.columns import outcome_column

    tallies = []
    for prompt in prompts:
        counts = Tally(prompt.into, _is_translation(prompt))
        outcome = outcome_column(prompt.into)
        columns: Any = {
            "value": pads.field(prompt.into),
            "status": pads.field(outcome, "status"),
            "notes": pads.field(outcome, "notes"),
        }
        scanner = dataset.scanner(
            columns=columns, batch_size=_BATCH_ROWS, batch_readahead=2, fragment_readahead=1
        )
        for batch in scanner.to_batches():
            _count(counts, batch)
        tallies.append(counts)
    return tallies


def _count(counts: Tally, batch: pa.RecordBatch) -> None:
    import pyarrow.compute as pc

    compute: Any = pc  # its stubs know less than it does
    counts.rows += batch.num_rows
    statuses = batch.column("status")
    for found in compute.value_counts(statuses).to_pylist():
        counts.statuses[found["values"]] += found["counts"]
    completed = compute.equal(statuses, "completed")
    for notes in compute.filter(batch.column("notes"), completed).to_pylist():
        kinds = {note.partition(" ")[0] for note in notes or ()}
        counts.copied += "untranslated" in kinds
        counts.restructured += any(kind.partition("_")[0] in _STRUCTURE for kind in kinds)
    counts.blank += compute.sum(compute.and_(completed, _is_blank(batch.column("value")))).as_py() or 0


def _is_blank(values: pa.Array[Any]) -> pa.Array[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    compute: Any = pc
    missing: pa.Array[Any] = compute.is_null(values)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        empty = compute.equal(compute.utf8_trim_whitespace(values), "")
        missing = compute.or_(missing, compute.fill_null(empty, fill_value=True))
    return missing


def judged(
    rules: Mapping[str, Rule], tallies: Sequence[Tally], differences: Sequence[str], asset_key: dg.AssetKey
) -> list[dg.AssetCheckResult]:
    """Give the result of each rule over the tallies of an output, or of several partitions of one.

    `differences` say how the output's schema differs from the one that is expected.
    """
    results = []
    for name, rule in rules.items():
        metadata: dict[str, Any] = {}
        if name == "schema":
            passed = not differences
            if differences:
                metadata["differences"] = dg.MetadataValue.json(list(differences))
        else:
            passed = True
            for into in dict.fromkeys(each.into for each in tallies):
                counted = [each.counted(name) for each in tallies if each.into == into]
                of, found = sum(pair[0] for pair in counted), sum(pair[1] for pair in counted)
                share = found / of if of else 0.0
                passed = passed and share <= rule.most
                metadata |= {f"{into}/rows": found, f"{into}/of": of, f"{into}/share": share}
            metadata["most"] = rule.most
        results.append(
            dg.AssetCheckResult(
                passed=passed,
                asset_key=asset_key,
                check_name=name,
                severity=dg.AssetCheckSeverity(rule.severity),
                description=DESCRIPTIONS[name],
                metadata=metadata,
            )
        )
    return results


def schema_differences(job: Job, source_columns: Sequence[str], found: pa.Schema) -> list[str]:
    """Say how an output's schema differs from what its source and prompts make of it; nothing when it does not."""
    from corpusmill.rows.columns import new_fields

    kept = [name for name in source_columns if job.sink.columns is None or name in job.sink.columns]
    expected = dict.fromkeys(kept)
    added = {
        field.name: field.type
        for prompt in job.prompts
        for field in new_fields(prompt, telemetry=job.telemetry)
    }
    differences = [f"{name} is missing" for name in (*expected, *added) if name not in found.names]
    differences += [
        f"{name} is not expected" for name in found.names if name not in expected and name not in added
    ]
    differences += [
        f"{name} is {found.field(name).type}, and {type_} is expected"
        for name, type_ in added.items()
        if name in found.names and found.field(name).type != type_
    ]
    return differences
