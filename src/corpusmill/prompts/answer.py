"""`Answer`: a question about a context, each of them a column or the same text for all rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Unpack

from corpusmill.errors import PromptError
from corpusmill.prompts.checks.answering import answer_notes
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
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from corpusmill.exchange import Completion

_NAMES: Final = frozenset({"question", "context", "instruction", "language"})


@dataclass(frozen=True, slots=True)
class Column:
    """A column, where a plain text would mean the same text for every row. In YAML `{column: name}`."""

    path: str


@dataclass(frozen=True, slots=True, init=False)
class Answer:
    """Answer a question from a context.

    `question` and `context` are a text, the same for every row, or a `Column` (or `{"column": name}`); at
    least one of them is a column. `into` (string) is filled. The answer is in the question's language,
    unless `language` (a code or an English name) says otherwise. Where the context does not contain the
    answer the model is told to say what it is about and that it is insufficient, which counts as an answer.
    A row whose question or context is blank is skipped. For the other arguments see `Translate`.
    """

    question: str | Column
    context: str | Column
    into: str
    instruction: str | None
    language: Language | None
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
        question: str | Column | Mapping[str, str],
        context: str | Column | Mapping[str, str],
        into: str,
        *,
        instruction: str | None = None,
        language: str | None = None,
        wording: str | Path | Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        escalate_to: int | None = None,
        returns: Mapping[str, str] | None = None,
        vary_by: str | None = None,
        **sampling: Unpack[Sampling],
    ) -> None:
        """Read the wording; raise `PromptError` for what can never be asked."""
        check_ceiling("answer", max_tokens, escalate_to)
        asked, material = _side("question", question), _side("context", context)
        columns = tuple(side.path for side in (asked, material) if isinstance(side, Column))
        if not columns:
            raise PromptError(
                "answer.question and answer.context are both fixed texts, so every row would ask the same; "
                "name a column in one of them, as {column: name}"
            )
        tongue = None if language is None else language_of(language, field="answer.language")
        words = read_wording(wording, task="answer", names=_NAMES, needed=frozenset({"question", "context"}))
        instruction = check_text("answer", "instruction", instruction)
        fixed = {
            name: side for name, side in (("question", asked), ("context", material)) if isinstance(side, str)
        }
        layout = Layout(
            words,
            constants={"instruction": instruction, "language": tongue.name if tongue else None, **fixed},
            by_row=frozenset({"question", "context"} - fixed.keys()),
        )
        reads = columns if vary_by is None else (*columns, check_column("answer", "vary_by", vary_by))
        set_fields(
            self,
            {
                "question": asked,
                "context": material,
                "into": check_into("answer", into),
                "instruction": instruction,
                "language": tongue,
                "wording": words,
                "max_tokens": max_tokens,
                "escalate_to": raised_ceiling(max_tokens, escalate_to),
                "returns": check_returns("answer", returns),
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
            "prompt": "answer",
            "question": _written(self.question),
            "context": _written(self.context),
            "into": self.into,
            "instruction": self.instruction,
            "language": self.language.tag if self.language else None,
            "wording": self.wording.table,
            "max_tokens": self._cap[0],
            "escalate_to": self._cap[1],
            "returns": dict(self.returns),
            "vary_by": self.vary_by,
            "parameters": dict(self.parameters),
        }

    def render(self, values: Sequence[Any]) -> Rendered | None:
        """Ask the row's question about the row's context; None when either is blank."""
        question, context = self._sides(values)
        if is_blank(question) or is_blank(context):
            return None
        return Rendered(
            messages=self._layout.fill({"question": question, "context": context}),
            ceiling=self.max_tokens or guard(len(question) + len(context)),
            vary=None if self.vary_by is None else values[-1] or "",
        )

    def judge(self, values: Sequence[Any], completion: Completion) -> Judgement:
        """Take the answer, also one that says why the context is insufficient; what declines is `refused`."""
        question, context = self._sides(values)
        given = f"{question}\n{context}"
        answer = read_answer(completion, given=given)
        if isinstance(answer, Judgement):
            return answer
        text, notes = answer
        declined = refused(text, given=given)
        if declined is not None:
            return declined
        found = answer_notes(question, context, text, language=self.language.code if self.language else None)
        return Judgement(status="completed", value=text, notes=notes + found)

    def _sides(self, values: Sequence[Any]) -> tuple[str, str]:
        remaining = iter(values)
        question = self.question if isinstance(self.question, str) else next(remaining) or ""
        context = self.context if isinstance(self.context, str) else next(remaining) or ""
        return question, context


def _side(field: str, value: object) -> str | Column:
    if isinstance(value, Mapping):
        if set(value) != {"column"}:
            raise PromptError(f"answer.{field} is {dict(value)!r}; it must be a text or {{column: name}}")
        return Column(check_column("answer", f"{field}.column", value["column"]))
    if isinstance(value, Column):
        return Column(check_column("answer", f"{field}.column", value.path))
    text = check_text("answer", field, value)
    if text is None:
        raise PromptError(f"answer.{field} is missing; it must be a text or {{column: name}}")
    return text


def _written(side: str | Column) -> object:
    return side if isinstance(side, str) else {"column": side.path}
