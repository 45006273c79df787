"""Which task a conversation sets, told from its wording, and which part of it is the text to work on.

Where the system (or developer) message sets a task, the last user message is the text, whole. Otherwise the
first paragraph of the last user message may set one, and the text is what follows it: after its blank line,
or after its colon where there is none; a label (`Text:`) before the text and delimiters around all of it
(`<text>…</text>`, triple quotation marks) are taken off. Everything that is not recognised is `ask`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from corpusmill.testing.tokens import content_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Kind = Literal["translate", "summarise", "answer", "ask"]

HEAD_CHARACTERS: Final = 400
"""So far into a message without blank lines an instruction is looked for; the rest is corpus text."""

_FLAGS: Final = re.IGNORECASE | re.MULTILINE
_IN_SYSTEM: Final[Mapping[Kind, re.Pattern[str]]] = {
    "translate": re.compile(r"\btranslat(?:e|ion|ions|or|ing)\b", _FLAGS),
    "summarise": re.compile(r"\bsummar(?:i[sz]e|i[sz]es|i[sz]ing|y|ies|i[sz]ation)\b", _FLAGS),
    "answer": re.compile(
        r"\banswer(?:s|ing)?\b.{0,60}\b(?:questions?|contexts?|passages?|documents?)\b", _FLAGS
    ),
}
# In a user message a verb counts as an instruction only as a command: the message may be corpus text.
_COMMAND: Final = r"(?:^[ \t]*|[.!?][ \t]+)(?:please[ \t]+|now[ \t]+|your task is to[ \t]+)*"
_IN_HEAD: Final[Mapping[Kind, re.Pattern[str]]] = {
    "translate": re.compile(_COMMAND + r"translate\b", _FLAGS),
    "summarise": re.compile(_COMMAND + r"(?:summari[sz]e\b|(?:write|give|make)\b.{0,40}\bsummary\b)", _FLAGS),
}
_ANSWER_COMMAND = re.compile(_COMMAND + r"answer\b.{0,60}\b(?:question|context)", _FLAGS)
_BLANK_LINE = re.compile(r"\r?\n[ \t]*\r?\n(?:[ \t]*\r?\n)*")
_COLON = re.compile(r":[ \t]*(?:\r?\n)?[ \t]*")
_WRAPPED = re.compile(
    r'\s*(?:<(?P<tag>text|source|input|document|content)>\n?(?P<tagged>.*?)\n?</(?P=tag)>|"""\n?(?P<quoted>.*?)\n?""")\s*',
    re.DOTALL | re.IGNORECASE,
)
_LABEL = re.compile(r"^(?:source text|text|source|input|document)[ \t]*:[ \t]*\n?", _FLAGS)
_SECTION = re.compile(r"\s*(?:use [^\n:]*)?\b(?:glossary|terms|examples)\b[^\n]*:", re.IGNORECASE)
_CONTEXT_TAG = re.compile(r"<(context|passage|document|text)>\n?(.*?)\n?</\1>", re.DOTALL | re.IGNORECASE)
_QUESTION_TAG = re.compile(r"<(question|query)>\n?(.*?)\n?</\1>", re.DOTALL | re.IGNORECASE)
_CONTEXT_LABEL = re.compile(r"^[ \t]*(?:context|passage|document|text)[ \t]*:[ \t]*\n?", _FLAGS)
_QUESTION_LABEL = re.compile(r"^[ \t]*(?:question|query)[ \t]*:[ \t]*", _FLAGS)
_MARKS: Final = (_QUESTION_TAG, _CONTEXT_TAG, _QUESTION_LABEL, _CONTEXT_LABEL)
_ANSWER_LABEL = re.compile(r"\n[ \t]*answer[ \t]*:\s*\Z", re.IGNORECASE)
_TERM = re.compile(
    r"[ \t]*(?:[-*•][ \t]*|\d+\.[ \t]+)?[\"'“]?(?P<source>[^\n\t=→]{1,200}?)[\"'”]?"
    r"[ \t]*(?:=>|->|=|→|\t|:(?=[ \t]))[ \t]*[\"'“]?(?P<target>[^\n]{1,200}?)[\"'”]?[ \t]*;?[ \t]*"
)
_GLOSSARY = re.compile(r"\b(?:glossary|glossaries|terms)\b[^\n]*\n", re.IGNORECASE)
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
    """Return the task that the system messages or the last user message set, and its text."""
    system = "\n".join(
        content_text(message.get("content"))
        for message in messages
        if message.get("role") in {"system", "developer"}
    )
    users = [content_text(message.get("content")) for message in messages if message.get("role") == "user"]
    message = users[-1] if users else ""
    kind = _commanded(_IN_SYSTEM, system, last=False) if system else None
    if kind in {"translate", "summarise"}:
        return Task(kind=kind, text=message, glossary=_glossary(system), sentences=_sentences(system))
    blank = _BLANK_LINE.search(message)
    head = message[: blank.start()] if blank else message[:HEAD_CHARACTERS]
    # Terms, examples and wishes come before the command that a blank line ends, and may hold commands too.
    commanded = _commanded(_IN_HEAD, head, last=blank is not None) if kind is None else None
    asked = _question_and_context(message)
    if asked is not None and (commanded is None or _answers(head, message, blank)):
        question, context = asked
        return Task(kind="answer", text=context, question=question)
    if commanded is not None:
        instruction, text = _parted(message, blank)
        glossary, sentences = _glossary(instruction), _sentences(instruction)
        return Task(kind=commanded, text=text, glossary=glossary, sentences=sentences)
    return Task(kind="ask", text=message)


def _answers(head: str, message: str, blank: re.Match[str] | None) -> bool:
    """Whether a message commands to answer, and goes on at once with the question or its context."""
    return (
        blank is not None
        and _ANSWER_COMMAND.search(head) is not None
        and any(mark.match(message, blank.end()) for mark in _MARKS)
    )


def _commanded(verbs: Mapping[Kind, re.Pattern[str]], instruction: str, *, last: bool) -> Kind | None:
    found = [(match.start(), kind) for kind, verb in verbs.items() for match in verb.finditer(instruction)]
    return (max(found) if last else min(found))[1] if found else None


def _parted(message: str, blank: re.Match[str] | None) -> tuple[str, str]:
    """Part a message that begins with an instruction into the instruction and the text."""
    end = blank or _COLON.search(message)
    if end is None:
        return message, message
    instruction, text = message[: end.end()], message[end.end() :]
    if _SECTION.match(text) and (label := _LABEL.search(text)):
        # Sections of their own (a glossary, examples) stand between the instruction and the labelled text.
        instruction, text = instruction + text[: label.start()], text[label.end() :]
    elif label := _LABEL.match(text):
        text = text[label.end() :]
    if wrapped := _WRAPPED.fullmatch(text):
        text = wrapped["tagged"] if wrapped["quoted"] is None else wrapped["quoted"]
    return instruction, text


def _question_and_context(message: str) -> tuple[str, str] | None:
    """Return the question and the context of a message that holds both, tagged or labelled, in any order."""
    folded = message.lower()
    if "question" not in folded and "query" not in folded:
        return None
    context, question = _CONTEXT_TAG.search(message), _QUESTION_TAG.search(message)
    if context and question:
        return question[2].strip(), context[2]
    question, context = _QUESTION_LABEL.search(message), _CONTEXT_LABEL.search(message)
    if question is None or context is None:
        return None
    if question.start() < context.start():
        return message[question.end() : context.start()].strip(), message[context.end() :]
    last = list(_QUESTION_LABEL.finditer(message))[-1]
    return _ANSWER_LABEL.sub("", message[last.end() :]).strip(), message[context.end() : last.start()].strip()


def _glossary(instruction: str) -> dict[str, str]:
    """Return the terms on the lines after the one that speaks of a glossary, up to one that is none."""
    terms: dict[str, str] = {}
    match = _GLOSSARY.search(instruction)
    for line in instruction[match.end() :].split("\n") if match is not None else ():
        term = _TERM.fullmatch(line.rstrip("\r"))
        if term is None:
            break
        terms[term["source"].strip()] = term["target"].strip()
    return terms


def _sentences(instruction: str) -> int:
    match = _SENTENCES.search(instruction)
    if match is None:
        return 2
    count = match["count"].lower()
    return int(count) if count.isdigit() else max(1, _NUMBERS.index(count))
