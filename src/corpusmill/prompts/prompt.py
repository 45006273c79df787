"""What a prompt is: content. It says which columns it reads, what it asks, and how an answer becomes a value.

A prompt is a frozen record and its methods are pure, so that the same row yields the same request in any process.
The rows themselves are handled by `corpusmill.rows`, which feeds the values of one row at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from corpusmill.exchange import Message
from corpusmill.outcome import Status

if TYPE_CHECKING:
    import pyarrow as pa

    from corpusmill.exchange import Completion

InputKind = Literal["text", "binary", "json"]

OUTPUT_CLEANED = "output_cleaned"
"""The note on a row whose answer held NUL or what is no Unicode character."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A column that a prompt reads: a dotted path, and how its values are handed over.

    `text` values are `str` or None, `binary` values are `bytes` or None, `json` values are what
    `pyarrow.Array.to_pylist` gives (lists, dictionaries, numbers), or None. With `scalars` a `text` input also takes
    numbers, booleans, dates, times and timestamps, written as `corpusmill.rows.scalars` says.
    """

    path: str
    kind: InputKind = "text"
    scalars: bool = False


class Rendered(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is asked of one row.

    `ceiling` is the most tokens that the answer may have. `vary` enters the request key and not the wire.
    `parameters` are those of the wire that this row alone sets (tools from a column); None when it sets none.
    """

    messages: Sequence[Message]
    ceiling: int | None = None
    vary: str | None = None
    parameters: Mapping[str, Any] | None = None


class Plain(NamedTuple):
    """What most jobs ask and a replay does most: messages that never change, then one with one placeholder."""

    fixed: tuple[Message, ...]
    role: str
    before: str
    after: str
    ceiling: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unaskable:
    """A row that cannot be asked: it fails with this reason, and no request is made."""

    reason: str


class Judgement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an answer is worth: the value of the column (None when there is none), the status, and findings."""

    status: Status
    value: Any = None
    error: str | None = None
    notes: tuple[str, ...] = ()


@runtime_checkable
class Prompt(Protocol):
    """What is asked of each row, and which column the answer fills."""

    @property
    def into(self) -> str:
        """The name of the column that the answer fills."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The columns that a request is made from, in the order in which `render` takes their values."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of the wire that all rows share, ceilings left out."""

    @property
    def escalate_to(self) -> int | None:
        """How far a ceiling may be raised when an answer was cut; None: not at all."""

    @property
    def returns(self) -> Mapping[str, str]:
        """Other fields of the response that become columns: path in the response to name of the column.

        `reasoning`, `tool_calls`, `logprobs` and `content` are those of choice 0, `choices` is the list of all
        contents; any other path (`usage.completion_tokens`, `system_fingerprint`) is looked up from the top.
        """

    @property
    def languages(self) -> tuple[str, ...]:
        """The tags of the languages that the model must know, as far as they are stated; empty: none is."""

    @property
    def media(self) -> frozenset[str]:
        """Which of `image`, `audio` and `video` a request may carry."""

    @property
    def tools_column(self) -> str | None:
        """The column from which each row brings its own tools; None: no row does."""

    @property
    def plain(self) -> Plain | None:
        """What `render` makes of the text of the one input, where it is as plain as that; None where it is not."""

    @property
    def value_type(self) -> pa.DataType:
        """The Arrow type of the column that the answer fills."""

    def content(self) -> Mapping[str, Any]:
        """Everything that makes this prompt what it is, as JSON: the run key covers it."""

    def render(self, values: Sequence[Any]) -> Rendered | Unaskable | None:
        """Make the request of one row from the values of `inputs`; None when the row is blank and is skipped."""

    def judge(self, values: Sequence[Any], completion: Completion) -> Judgement:
        """Say what an answer that ended by itself, and has text, is worth for this row."""
