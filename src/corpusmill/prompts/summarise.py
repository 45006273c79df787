"""`Summarise`: a text column in fewer words, in the text's own language unless told otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Unpack

from corpusmill.errors import PromptError
from corpusmill.prompts.checks.summary import summary_notes
from corpusmill.prompts.fields import (
    check_ceiling,
    check_column,
    check_into,
    check_returns,
    check_text,
    guard,
    is_blank,
    raised_ceiling,
    set_fields,
)
from corpusmill.prompts.judging import read_answer, refused
from corpusmill.prompts.languages import Language, language_of
from corpusmill.prompts.prompt import Input, Judgement, Rendered
from corpusmill.prompts.sampling import Sampling, wire_parameters
from corpusmill.prompts.wording import Layout, Wording, read_wording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from corpusmill.exchange import Completion

_NAMES: Final = frozenset({"text", "instruction", "language", "length"})


@dataclass(frozen=True, slots=True, init=False)
class Summarise:
    """Summarise a text column.

    `column` is read, `into` (string) is filled. `length` is a text such as `three sentences`, or a number
    of words that the summary may have at most. `language` is a code or an English name; without it the
    summary is in the language of the text. `instruction` says what to look at. For the other arguments see
    `Translate`.
    """

    column: str
    into: str
    instruction: str | None
    language: Language | None
    length: str | None
    wording: Wording
    max_tokens: int | None
    escalate_to: int | None
    returns: Mapping[str, str]
    vary_by: str | None
    parameters: Mapping[str, Any]
    inputs: tuple[Input, ...]
    _cap: tuple[int | None, int | None] = field(repr=False)
    _layout: Layout = field(repr=False, compare=False)

    def __init__(
        self,
        column: str,
        into: str,
        *,
        instruction: str | None = None,
        language: str | None = None,
        length: str | int | None = None,
        wording: str | Path | Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        escalate_to: int | None = None,
        returns: Mapping[str, str] | None = None,
        vary_by: str | None = None,
        **sampling: Unpack[Sampling],
    ) -> None:
        """Read the wording; raise `PromptError` for what can never be asked."""
        check_ceiling("summarise", max_tokens, escalate_to)
        tongue = None if language is None else language_of(language, field="summarise.language")
        words = read_wording(wording, task="summarise", names=_NAMES, needed=frozenset({"text"}))
        instruction = check_text("summarise", "instruction", instruction)
        extent = _length(length)
        layout = Layout(
            words,
            constants={
                "instruction": instruction,
                "language": tongue.name if tongue else None,
                "length": extent,
            },
            by_row=frozenset({"text"}),
        )
        column = check_column("summarise", "column", column)
        reads = (column,) if vary_by is None else (column, check_column("summarise", "vary_by", vary_by))
        set_fields(
            self,
            {
                "column": column,
                "into": check_into("summarise", into),
                "instruction": instruction,
                "language": tongue,
                "length": extent,
                "wording": words,
                "max_tokens": max_tokens,
                "escalate_to": raised_ceiling(max_tokens, escalate_to),
                "returns": check_returns("summarise", returns),
                "vary_by": vary_by,
                "parameters": wire_parameters({"temperature": 0, **sampling}),
                "inputs": tuple(Input(path=path) for path in reads),
                "_cap": (max_tokens, escalate_to),
                "_layout": layout,
            },
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """The tags of the languages that the model must know, as far as they are stated."""
        return () if self.language is None else (self.language.tag,)

    @property
    def media(self) -> frozenset[str]:
        """None: messages are text."""
        return frozenset()

    @property
    def tools_column(self) -> None:
        """None: rows bring no tools."""
        return

    @property
    def value_type(self) -> pa.DataType:
        """Text."""
        import pyarrow as pa

        return pa.string()

    def content(self) -> dict[str, Any]:
        """Everything that the run key covers."""
        return {
            "prompt": "summarise",
            "column": self.column,
            "into": self.into,
            "instruction": self.instruction,
            "language": self.language.tag if self.language else None,
            "length": self.length,
            "wording": self.wording.table,
            "max_tokens": self._cap[0],
            "escalate_to": self._cap[1],
            "returns": dict(self.returns),
            "vary_by": self.vary_by,
            "parameters": dict(self.parameters),
        }

    def render(self, values: Sequence[Any]) -> Rendered | None:
        """Ask for a summary of the row's text; None when it is blank."""
        text: str | None = values[0]
        if text is None or is_blank(text):
            return None
        return Rendered(
            messages=self._layout.fill({"text": text}),
            ceiling=self.max_tokens or guard(len(text)),
            vary=None if self.vary_by is None else values[1] or "",
        )

    def judge(self, values: Sequence[Any], completion: Completion) -> Judgement:
        """Take the summary; what it should not have is noted, a refusal is `refused`, nothing is `failed`."""
        given: str = values[0] or ""
        answer = read_answer(completion, given=given)
        if isinstance(answer, Judgement):
            return answer
        text, notes = answer
        declined = refused(text, given=given)
        if declined is not None:
            return declined
        found = summary_notes(given, text, language=self.language.code if self.language else None)
        return Judgement(status="completed", value=text, notes=notes + found)


def _length(length: object) -> str | None:
    if isinstance(length, int) and not isinstance(length, bool):
        if length < 1:
            raise PromptError(f"summarise.length is {length}; a number of words is at least 1")
        return f"at most {length} words"
    return check_text("summarise", "length", length)
