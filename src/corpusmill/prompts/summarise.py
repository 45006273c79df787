"""`Summarise`: a text column in fewer words, in the text's own language unless told otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

from corpusmill.errors import PromptError
from corpusmill.prompts.checks.summary import summary_notes
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
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from corpusmill.exchange import Completion
    from corpusmill.prompts.sampling import Sampling

_NAMES: Final = frozenset({"text", "instruction", "language", "length"})


@dataclass(frozen=True, slots=True, init=False)
class Summarise(Worded):
    """Summarise a text column.

    `column` is read, `into` (string) is filled. `length` is a text such as `three sentences`, or a number
    of words that the summary may have at most. `language` is a code or an English name; without it the
    summary is in the language of the text. `instruction` says what to look at. For the other arguments see
    `Translate`.
    """

    column: str
    language: Language | None
    length: str | None

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
        shared = shared_fields(
            "summarise",
            into=into,
            reads=(column,),
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
                "column": column,
                "language": tongue,
                "length": extent,
            },
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """The tags of the languages that the model must know, as far as they are stated."""
        return () if self.language is None else (self.language.tag,)

    def content(self) -> dict[str, Any]:
        """Everything that the run key covers."""
        return {
            "prompt": "summarise",
            "column": self.column,
            "language": self.language.tag if self.language else None,
            "length": self.length,
            **self._shared_content(),
        }

    def render(self, values: Sequence[Any]) -> Rendered | None:
        """Ask for a summary of the row's text; None when it is blank."""
        text: str | None = values[0]
        if text is None or is_blank(text):
            return None
        return self._filled({"text": text}, size=len(text), values=values)

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
