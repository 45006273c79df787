"""Which task a conversation sets, told from its wording, and which part of it is the text to work on.

The instruction stands in the system (or developer) message, or at the head of the last user message. The text
is, in this order of preference: what stands between delimiters (`<text>…</text>`, triple quotation marks),
what follows a label such as `Text:`, what follows the first blank line after the instruction, what follows
the instruction's colon; and the whole message where the instruction is elsewhere. Everything that is not
recognised is `ask`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from corpusmill.testing.tokens import content_text

Kind = Literal["translate", "summarise", "answer", "ask"]

HEAD_CHARACTERS: Final = 400
"""So far into a message an instruction is looked for; what comes later is corpus text."""

_VERBS: Final[Mapping[Kind, re.Pattern[str]]] = {
    "translate": re.compile(r"\btranslat(?:e|ion|ions|or|ing)\b", re.IGNORECASE),
    "summarise": re.compile(r"\bsummar(?:i[sz]e|i[sz]es|i[sz]ing|y|ies|i[sz]ation)\b", re.IGNORECASE),
    "answer": re.compile(
        r"\banswer(?:s|ing)?\b.{0,60}\b(?:questions?|contexts?|passages?|documents?)\b"
        r"|\b(?:questions?|contexts?)\b.{0,80}\banswer\b",
        re.IGNORECASE | re.DOTALL,
    ),
}
_TAGGED = re.compile(
    r"<(text|source|input|document|content|source_text)>\n?(.*?)\n?</\1>", re.DOTALL | re.IGNORECASE
)
_QUOTED = re.compile(r'"""\n?(.*?)\n?"""', re.DOTALL)
_LABEL = re.compile(
    r"^(?:source text|text|source|input|document)[ \t]*:[ \t]*\n?", re.IGNORECASE | re.MULTILINE
)
_BLANK_LINE = re.compile(r"\n[ \t]*\r?\n(?:[ \t]*\r?\n)*")
_COLON = re.compile(r":[ \t]*(?:\r?\n)?[ \t]*")
_CONTEXT = re.compile(r"<(context|passage|document|text)>\n?(.*?)\n?</\1>", re.DOTALL | re.IGNORECASE)
_QUESTION = re.compile(r"<(question|query)>\n?(.*?)\n?</\1>", re.DOTALL | re.IGNORECASE)
_SECTION = re.compile(
    r"^[ \t]*(?P<label>context|passage|document|text|question|query|answer)[ \t]*:[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
_TERM = re.compile(
    r"^[ \t]*(?:[-*•][ \t]*|\d+\.[ \t]+)?[\"'“]?(?P<source>[^\n\t=>→]{1,200}?)[\"'”]?"
    r"[ \t]*(?:=>|->|=|→|\t|:)[ \t]*[\"'“]?(?P<target>[^\n]{1,200}?)[\"'”]?[ \t]*;?[ \t]*$",
    re.MULTILINE,
)
_GLOSSARY = re.compile(r"\bglossar(?:y|ies)\b|\bterminolog(?:y|ies)\b|\bterms\b", re.IGNORECASE)
_SENTENCES = re.compile(
    r"\b(?P<count>one|two|three|four|five|six|seven|eight|nine|ten|a single|\d{1,2})[ \t-]{1,3}sentences?\b",
    re.IGNORECASE,
)
_NUMBERS: Final = ("a single", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is asked. `glossary` maps source terms to target terms; `sentences` is the length of a summary."""

    kind: Kind
    text: str
    question: str = ""
    glossary: Mapping[str, str] = field(default_factory=dict)
    sentences: int = 2


def recognise(messages: Sequence[Mapping[str, Any]]) -> Task:
    """Return the task that the last user message sets, with what the system messages say about it."""
    system = "\n".join(
        content_text(m.get("content")) for m in messages if m.get("role") in {"system", "developer"}
    )
    users = [content_text(message.get("content")) for message in messages if message.get("role") == "user"]
    message = users[-1] if users else ""
    head = _BLANK_LINE.split(message[:HEAD_CHARACTERS], maxsplit=1)[0]
    asked = _question_and_context(message)
    in_system, in_head = _first_kind(system), _first_kind(head)
    kind = in_system or in_head
    if asked is not None and kind in {None, "answer"}:
        question, context = asked
        return Task(kind="answer", text=context, question=question)
    if kind is None or kind == "answer":
        return Task(kind="ask", text=message)
    text, before = _text(message, instructed=in_head == kind)
    return Task(
        kind=kind,
        text=text,
        glossary=_glossary(f"{system}\n{before}"),
        sentences=_sentences(f"{system}\n{before}"),
    )


def _first_kind(instruction: str) -> Kind | None:
    found = [(match.start(), kind) for kind, verb in _VERBS.items() if (match := verb.search(instruction))]
    return min(found)[1] if found else None


def _text(message: str, *, instructed: bool) -> tuple[str, str]:
    """Return the text to work on and what stands before it."""
    for delimited in (_TAGGED, _QUOTED):
        found = list(delimited.finditer(message))
        if found and (instructed or found[0].start() == 0):
            return found[-1].group(found[-1].re.groups), message[: found[-1].start()]
    if not instructed:
        return message, ""
    for separator in (_LABEL, _BLANK_LINE, _COLON):
        match = separator.search(message)
        if match:
            return message[match.end() :], message[: match.start()]
    return message, ""


def _question_and_context(message: str) -> tuple[str, str] | None:
    context, question = _CONTEXT.search(message), _QUESTION.search(message)
    if context and question:
        return question.group(2).strip(), context.group(2)
    sections: dict[str, str] = {}
    marks = list(_SECTION.finditer(message))
    ends = [mark.start() for mark in marks[1:]] + [len(message)]
    for mark, end in zip(marks, ends, strict=False):
        sections.setdefault(mark["label"].lower(), message[mark.end() : end].strip())
    asked = sections.get("question") or sections.get("query")
    if not asked and question:
        asked = question.group(2).strip()
    passage = next(
        (sections[label] for label in ("context", "passage", "document", "text") if label in sections), None
    )
    if passage is None and context:
        passage = context.group(2)
    return (asked, passage) if asked and passage is not None else None


def _glossary(instruction: str) -> dict[str, str]:
    match = _GLOSSARY.search(instruction)
    if match is None:
        return {}
    return {
        term["source"].strip(): term["target"].strip() for term in _TERM.finditer(instruction, match.end())
    }


def _sentences(instruction: str) -> int:
    match = _SENTENCES.search(instruction)
    if match is None:
        return 2
    count = match["count"].lower()
    return int(count) if count.isdigit() else max(1, _NUMBERS.index(count))
