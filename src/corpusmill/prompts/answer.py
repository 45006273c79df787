"""`Answer`: a question about a context, each of them a column or the same text for all rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

from corpusmill.errors import PromptError
from corpusmill.prompts.checks.answering import answer_notes
from corpusmill.prompts.fields import (
    check_ceiling,
    check_column,
    check_text,
    is_blank,
    set_fields,
)
from corpusmill.prompts.judging import read_answer, refused
from corpusmill.prompts.languages import Language, language_of
from corpusmill.prompts.prompt import Judgement, Rendered
from corpusmill.prompts.worded import Worded, shared_fields
from corpusmill.prompts.wording import Layout, read_wording

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from corpusmill.exchange import Completion
    from corpusmill.prompts.sampling import Sampling

_NAMES: Final = frozenset({"question", "context", "instruction", "language"})


@dataclass(frozen=True, slots=True)
class Column:
    """A column, where a plain text would mean the same text for every row. In YAML `{column: name}`."""

    path: str


@dataclass(frozen=True, slots=True, init=False)
class Answer(Worded):
    """Answer a question from a context.

    `question` and `context` are a text, the same for every row, or a `Column` (or `{"column": name}`); at
    least one of them is a column. `into` (string) is filled. The answer is in the question's language,
    unless `language` (a code or an English name) says otherwise. Where the context does not contain the
    answer the model is told to say what it is about and that it is insufficient, which counts as an answer.
    A row whose question or context is blank is skipped. For the other arguments see `Translate`.
    """

    question: str | Column
    context: str | Column
    language: Language | None

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
        shared = shared_fields(
            "answer",
            into=into,
            reads=columns,
            instruction=instruction,
            wording=words,
            layout=layout,
            max_tokens=max_tokens,
            escalate_to=escalate_to,
            returns=returns,
            vary_by=vary_by,
            sampling=sampling,
        )
        set_fields(
            self,
            {
                **shared,
                "question": asked,
                "context": material,
                "language": tongue,
            },
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """The tags of the languages that the model must know, as far as they are stated."""
        return () if self.language is None else (self.language.tag,)

    def content(self) -> dict[str, Any]:
        """Everything that the run key covers."""
        return {
            "prompt": "answer",
            "question": _written(self.question),
            "context": _written(self.context),
            "language": self.language.tag if self.language else None,
            **self._shared_content(),
        }

    def render(self, values: Sequence[Any]) -> Rendered | None:
        """Ask the row's question about the row's context; None when either is blank."""
        question, context = self._sides(values)
        if is_blank(question) or is_blank(context):
            return None
        return self._filled(
            {"question": question, "context": context}, size=len(question) + len(context), values=values
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
