"""The answers: deterministic, different for different rows, and computable by a test without any server.

A translation is pseudo-localised, a summary is the leading sentences, an answer quotes the sentence of the
context that shares most words with the question or says that there is none, JSON fits the schema that was
asked for, and anything else is echoed with a digest of its messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from corpusmill.testing.digests import messages_digest
from corpusmill.testing.instances import fit
from corpusmill.testing.pseudo import pseudo_localise
from corpusmill.testing.tasks import Task, recognise
from corpusmill.testing.tokens import count_tokens, cut_tokens

ECHO_WORDS: Final = 8
_SENTENCE_END = re.compile(r"(?<=[.!?…。！？])[\"'”»)]*\s+|\n[ \t]*\n\s*")
_WORD = re.compile(r"\w{3,}")
_REASONING_TOKENS: Final = {"low": 8, "medium": 16, "high": 32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One choice; `completion_tokens` counts reasoning (`reasoning_tokens` of it), content and arguments."""

    content: str | None
    finish_reason: str
    completion_tokens: int
    reasoning: str | None = None
    reasoning_tokens: int = 0
    tool_calls: tuple[dict[str, Any], ...] = ()


def expected_answer(
    messages: Sequence[Mapping[str, Any]], response_format: Mapping[str, Any] | None = None
) -> str:
    """Return the content that a request with these messages gets when no ceiling, stop or fault cuts it.

    `response_format` is the request's field of that name, where it has one.
    """
    if response_format is not None:
        return _json_content(messages, response_format)
    task = recognise(messages)
    if task.kind == "translate":
        return pseudo_localise(task.text, task.glossary)
    if task.kind == "summarise":
        return _summary(task)
    if task.kind == "answer":
        return _quotation(task)
    words = task.text.split(maxsplit=ECHO_WORDS)[:ECHO_WORDS]
    return f"echo {messages_digest(messages)[:16]}: {' '.join(words)}"


def answer(request: Mapping[str, Any], *, choice: int, room: int) -> Answer:
    """Return one choice of the answer to a valid request, cut at `room` tokens."""
    messages: list[dict[str, Any]] = request["messages"]
    call = _tool_call(request, messages)
    if call is not None:
        tokens = count_tokens(call["function"]["arguments"]) + 1
        if tokens <= room:
            return Answer(
                content=None, finish_reason="tool_calls", completion_tokens=tokens, tool_calls=(call,)
            )
    content = expected_answer(messages, request.get("response_format")) if call is None else ""
    if choice and request.get("response_format") is None:
        content = f"{content} (choice {choice})"
    content = _stopped(content, request.get("stop"))
    reasoning = _reasoning(request)
    reasoning_tokens = 0
    if reasoning is not None:
        reasoning = cut_tokens(reasoning, room)
        reasoning_tokens = count_tokens(reasoning)
    left = room - reasoning_tokens
    whole = count_tokens(content)
    if whole <= left and call is None:
        return Answer(
            content=content,
            finish_reason="stop",
            completion_tokens=reasoning_tokens + whole,
            reasoning=reasoning,
            reasoning_tokens=reasoning_tokens,
        )
    return Answer(
        content=cut_tokens(content, left) or None if reasoning is not None else cut_tokens(content, left),
        finish_reason="length",
        completion_tokens=room,
        reasoning=reasoning,
        reasoning_tokens=reasoning_tokens,
    )


def sentences_of(text: str) -> list[str]:
    """Return the sentences of `text`, blank ones left out; paragraphs end sentences."""
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]


def _summary(task: Task) -> str:
    return " ".join(" ".join(sentence.split()) for sentence in sentences_of(task.text)[: task.sentences])


def _quotation(task: Task) -> str:
    asked = {word.casefold() for word in _WORD.findall(task.question)}
    sentences = sentences_of(task.text)
    shared = [len(asked & {word.casefold() for word in _WORD.findall(sentence)}) for sentence in sentences]
    best = max(shared, default=0)
    if best > 0:
        return " ".join(sentences[shared.index(best)].split())
    about = " ".join(task.text.split()[:ECHO_WORDS]) or "nothing"
    return f"The document is about: {about}. The context is insufficient to answer the question."


def _json_content(messages: Sequence[Mapping[str, Any]], response_format: Mapping[str, Any]) -> str:
    text = recognise(messages).text
    if response_format.get("type") == "json_schema":
        wanted = response_format.get("json_schema") or {}
        return msgspec.json.encode(fit(wanted.get("schema") or {"type": "object"}, text)).decode()
    digest = messages_digest(messages)[:16]
    return msgspec.json.encode({"echo": digest, "text": " ".join(text.split()[:ECHO_WORDS])}).decode()


def _tool_call(request: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return a call of the tool that the request insists on; under `auto` and `none` there is none."""
    choice = request.get("tool_choice")
    tools: Sequence[Mapping[str, Any]] = request.get("tools") or ()
    if not tools or choice in (None, "auto", "none"):
        return None
    functions = [tool["function"] for tool in tools]
    name = choice["function"]["name"] if isinstance(choice, Mapping) else functions[0]["name"]
    function = next(function for function in functions if function["name"] == name)
    schema = function.get("parameters") or {"type": "object"}
    arguments = fit({"type": "object", **schema}, recognise(messages).text)
    return {
        "id": f"call_{messages_digest(messages)[:16]}",
        "type": "function",
        "function": {"name": name, "arguments": msgspec.json.encode(arguments).decode()},
    }


def _stopped(content: str, stop: object) -> str:
    for sequence in [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []:
        if sequence:
            content = content.split(sequence, 1)[0]
    return content


def _reasoning(request: Mapping[str, Any]) -> str | None:
    effort = request.get("reasoning_effort")
    if effort is None and (request.get("chat_template_kwargs") or {}).get("enable_thinking") is True:
        effort = "medium"
    if effort is None:
        return None
    return cut_tokens("Considering what is asked. " * 8, _REASONING_TOKENS[effort])
