"""Outcomes become columns: their types are known before the first request, whatever the answers are."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec.structs import replace

from corpusmill.exchange import clean_value
from corpusmill.prompts.prompt import OUTPUT_CLEANED
from corpusmill.rows.judge import as_json_text, document_of, response_field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corpusmill.exchange import Completion
    from corpusmill.outcome import Outcome
    from corpusmill.prompts.prompt import Prompt

OUTCOME = (
    pa.field("status", pa.string()),
    pa.field("error", pa.string()),
    pa.field("finish_reason", pa.string()),
    pa.field("model", pa.string()),
    pa.field("request_key", pa.string()),
    pa.field("prompt_tokens", pa.int64()),
    pa.field("completion_tokens", pa.int64()),
    pa.field("notes", pa.list_(pa.string())),
)

TELEMETRY = (
    pa.field("attempts", pa.int64()),
    pa.field("seconds", pa.float64()),
    pa.field("origin", pa.string()),
    pa.field("request_id", pa.string()),
)

_INT64 = 2**63

# The seconds and rates among the usage fields of the OpenAPI document; every other number there is a count.
_FRACTIONS = ("_per_sec", "_time", "_latency", "_rate", "time_to_first_token", "_first_ten", "_graph")


def outcome_column(into: str) -> str:
    """Give the name of the column that says what became of each row."""
    return f"{into}_outcome"


def outcome_type(*, telemetry: bool) -> pa.StructType:
    """Give the type of the outcome column."""
    return pa.struct([*OUTCOME, *(TELEMETRY if telemetry else ())])


def returned_type(path: str) -> pa.DataType:
    """Give the type of a column that `returns` fills: text unless the path is known to hold numbers."""
    if path == "choices":
        return pa.list_(pa.string())
    if path == "created":
        return pa.float64()
    if path.startswith("usage."):
        name = path.rpartition(".")[2]
        if name.endswith(_FRACTIONS):
            return pa.float64()
        if name.endswith("_tokens"):
            return pa.int64()
    return pa.string()


def new_fields(prompt: Prompt, *, telemetry: bool) -> list[pa.Field[Any]]:
    """Give the fields that a prompt adds to the table, in order."""
    fields = [
        pa.field(prompt.into, prompt.value_type),
        pa.field(outcome_column(prompt.into), outcome_type(telemetry=telemetry)),
    ]
    fields.extend(pa.field(name, returned_type(path)) for path, name in prompt.returns.items())
    return fields


@dataclass(slots=True)
class Filling:
    """The cells of one prompt for one batch, filled row by row in order; `judge` has cleaned values and outcomes."""

    prompt: Prompt
    telemetry: bool
    values: list[Any] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    returned: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, outcome: Outcome, value: Any, completion: Completion | None) -> Outcome:
        """Append one row; give its outcome, with the note `output_cleaned` if a returned field had to be cleaned."""
        if self.prompt.returns:
            outcome = self._add_returned(outcome, completion)
        self.values.append(value)
        self.outcomes.append(outcome)
        return outcome

    def _add_returned(self, outcome: Outcome, completion: Completion | None) -> Outcome:
        document = {} if completion is None else document_of(completion)
        touched = False
        for path, name in self.prompt.returns.items():
            found = _fit(response_field(document, path), returned_type(path))
            cell = clean_value(found)
            touched |= cell is not found
            self.returned.setdefault(name, []).append(cell)
        if touched and OUTPUT_CLEANED not in outcome.notes:
            return replace(outcome, notes=(*outcome.notes, OUTPUT_CLEANED))
        return outcome

    def arrays(self) -> list[pa.Array[Any]]:
        """Build the columns in the order of `new_fields`."""
        arrays = [
            pa.array(self.values, self.prompt.value_type),
            outcome_array(self.outcomes, telemetry=self.telemetry),
        ]
        arrays.extend(
            pa.array(self.returned.get(name, []), returned_type(path))
            for path, name in self.prompt.returns.items()
        )
        return arrays


def outcome_array(outcomes: Sequence[Outcome], *, telemetry: bool) -> pa.StructArray:
    """Build the outcome column."""
    children: list[pa.Array[Any]] = [
        _texts([outcome.status for outcome in outcomes]),
        _texts([outcome.error for outcome in outcomes]),
        _texts([outcome.finish_reason for outcome in outcomes]),
        _texts([outcome.model for outcome in outcomes]),
        pa.array([outcome.request_key for outcome in outcomes], pa.string()),
        pa.array([outcome.prompt_tokens for outcome in outcomes], pa.int64()),
        pa.array([outcome.completion_tokens for outcome in outcomes], pa.int64()),
        _lists([outcome.notes for outcome in outcomes]),
    ]
    if telemetry:
        children += [
            pa.array([outcome.attempts for outcome in outcomes], pa.int64()),
            pa.array([outcome.seconds for outcome in outcomes], pa.float64()),
            pa.array([outcome.origin for outcome in outcomes], pa.string()),
            pa.array([outcome.request_id for outcome in outcomes], pa.string()),
        ]
    return pa.StructArray.from_arrays(children, fields=list(outcome_type(telemetry=telemetry)))


def _texts(texts: Sequence[str | None]) -> pa.Array[Any]:
    """Build a column of texts that usually are all the same, or none."""
    if texts and texts.count(texts[0]) == len(texts):
        return pa.repeat(pa.scalar(texts[0], pa.string()), len(texts))
    return pa.array(texts, pa.string())


def _lists(lists: Sequence[tuple[str, ...]]) -> pa.Array[Any]:
    """Build a column of lists that usually are all empty."""
    if lists.count(()) == len(lists):
        offsets = pa.repeat(pa.scalar(0, pa.int32()), len(lists) + 1)
        return pa.ListArray.from_arrays(offsets, pa.array([], pa.string()))
    return pa.array(lists, pa.list_(pa.string()))


def _fit(value: Any, wanted: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_list(wanted):
        return value
    if pa.types.is_string(wanted):
        return as_json_text(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if pa.types.is_floating(wanted):
        return float(value) if abs(value) <= sys.float_info.max else None
    return int(value) if -_INT64 <= value < _INT64 else None
