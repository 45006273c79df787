"""`Translate`: a text column into another language, line by line and term by term as the text has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

from corpusmill.prompts.checks.translation import translation_notes
from corpusmill.prompts.examples import read_examples
from corpusmill.prompts.fields import (
    check_ceiling,
    check_column,
    check_text,
    is_blank,
    set_fields,
)
from corpusmill.prompts.glossary import Glossary, read_glossary
from corpusmill.prompts.judging import read_answer, refused
from corpusmill.prompts.languages import Language, language_of
from corpusmill.prompts.prompt import Judgement, Rendered
from corpusmill.prompts.worded import Worded, shared_fields
from corpusmill.prompts.wording import Layout, read_wording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from corpusmill.exchange import Completion
    from corpusmill.prompts.pairs import Pairs
    from corpusmill.prompts.sampling import Sampling

_NAMES: Final = frozenset({"text", "from", "to", "glossary", "examples", "register", "instruction"})


@dataclass(frozen=True, slots=True, init=False)
class Translate(Worded):
    """Translate a text column.

    `column` is read, `into` (string) is filled. `to` and `from_` are language codes or English names;
    without `from_` the model finds the source language out. `glossary` and `examples` are a mapping, a list
    of pairs, or a CSV, TSV or Parquet file; of the glossary a request carries the terms that its row
    contains. `register` says how formal, `instruction` anything else. `wording` is the name of a set
    (`chat`, `tildeopen`), a file, or a mapping.

    `max_tokens` is a cap: what reaches it is `truncated`, unless `escalate_to` says how far it may be
    raised. Without it a ceiling is derived from the length of the text (at least 4,096 tokens) and raised
    where it is reached. `vary_by` names a column whose value makes requests with the same text different
    ones. `returns` maps other response fields to columns. Further keyword arguments are parameters of the
    wire; temperature is 0 unless given.
    """

    column: str
    to: Language
    from_: Language | None
    glossary: Glossary | None
    examples: tuple[tuple[str, str], ...]
    register: str | None

    def __init__(
        self,
        column: str,
        into: str,
        *,
        to: str,
        from_: str | None = None,
        glossary: Pairs | Glossary | None = None,
        examples: Pairs | None = None,
        register: str | None = None,
        instruction: str | None = None,
        wording: str | Path | Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        escalate_to: int | None = None,
        returns: Mapping[str, str] | None = None,
        vary_by: str | None = None,
        **sampling: Unpack[Sampling],
    ) -> None:
        """Read glossary, examples and wording; raise `PromptError` for what can never be asked."""
        check_ceiling("translate", max_tokens, escalate_to)
        source = None if from_ is None else language_of(from_, field="translate.from")
        target = language_of(to, field="translate.to")
        terms = read_glossary(glossary, field="translate.glossary")
        pairs = read_examples(examples, field="translate.examples")
        words = read_wording(wording, task="translate", names=_NAMES, needed=frozenset({"text"}))
        register = check_text("translate", "register", register)
        instruction = check_text("translate", "instruction", instruction)
        layout = Layout(
            words,
            constants={
                "to": target.name,
                "from": source.name if source else None,
                "register": register,
                "instruction": instruction,
            },
            by_row=frozenset({"text", "glossary"} if terms else {"text"}),
            examples=pairs,
        )
        column = check_column("translate", "column", column)
        shared = shared_fields(
            "translate",
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
                "to": target,
                "from_": source,
                "glossary": terms,
                "examples": pairs,
                "register": register,
            },
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """The tags of the languages that the model must know."""
        return (self.to.tag,) if self.from_ is None else (self.from_.tag, self.to.tag)

    def content(self) -> dict[str, Any]:
        """Everything that the run key covers; a glossary by its digest."""
        return {
            "prompt": "translate",
            "column": self.column,
            "to": self.to.tag,
            "from": self.from_.tag if self.from_ else None,
            "glossary": self.glossary.digest if self.glossary else None,
            "examples": [list(pair) for pair in self.examples],
            "register": self.register,
            **self._shared_content(),
        }

    def render(self, values: Sequence[Any]) -> Rendered | None:
        """Ask for the translation of the row's text; None when it is blank."""
        text: str | None = values[0]
        if text is None or is_blank(text):
            return None
        row: dict[str, str | None] = {"text": text}
        if self.glossary is not None:
            line = self.wording.term
            terms = self.glossary.occurring(text)
            row["glossary"] = (
                "\n".join(line.fill({"source": one, "target": other}) for one, other in terms) or None
            )
        return self._filled(row, size=len(text), values=values)

    def judge(self, values: Sequence[Any], completion: Completion) -> Judgement:
        """Take the translation and note where it deviates from the text; what declines is `refused`."""
        given: str = values[0] or ""
        answer = read_answer(completion, given=given)
        if isinstance(answer, Judgement):
            return answer
        text, notes = answer
        spoken = None if self.from_ is None else frozenset((self.from_.code, self.to.code))
        declined = refused(text, given=given, languages=spoken)
        if declined is not None:
            return declined
        terms = self.glossary.occurring(given) if self.glossary is not None else ()
        found = translation_notes(
            given,
            text,
            source=self.from_.code if self.from_ else None,
            target=self.to.code,
            terms=terms,
        )
        return Judgement(status="completed", value=text, notes=notes + found)
