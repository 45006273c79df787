"""An answer becomes an outcome and a value. Pure: the same completion gives the same in every run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from corpusmill.exchange import (
    Completion,
    NotACompletionError,
    choices_of,
    clean_text,
    clean_value,
    content_text,
    ending_of,
    message_of,
)
from corpusmill.outcome import WORST_LAST, Origin, Outcome
from corpusmill.prompts.fields import is_blank
from corpusmill.prompts.judging import SHOWN
from corpusmill.prompts.prompt import OUTPUT_CLEANED, Judgement
from corpusmill.rows.prompt_cut import PROMPT_CUT
from corpusmill.rows.render import CLEANED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from corpusmill.exchange import Ending
    from corpusmill.prompts.prompt import Prompt


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What came of asking: a completion, or the reason why there is none. The rest is telemetry.

    `kind` names the sort of failure in one word, for the counts of the report.
    """

    completion: Completion | None = None
    error: str | None = None
    kind: str | None = None
    origin: Origin = "live"
    attempts: int = 0
    seconds: float | None = None
    request_id: str | None = None
    notes: tuple[str, ...] = ()


def judge(
    prompt: Prompt,
    values: Sequence[Any],
    answer: Answer,
    key: bytes,
    *,
    cleaned: bool,
    cut: bool,
) -> tuple[Outcome, Any]:
    """Give the outcome of a row that was asked, and the value of its column (None when there is none).

    `cleaned` says that the row's own text had to be cleaned, `cut` that the server has read only a part of the prompt.
    All text in the outcome and the value is such as any file can hold.
    """
    completion = answer.completion
    if completion is None:
        judgement = Judgement(status="failed", error=answer.error)
    else:
        judgement = judge_completion(prompt, values, completion)
    notes = answer.notes + judgement.notes
    if cleaned:
        notes = (CLEANED, *notes)
    if cut:
        notes = (*notes, PROMPT_CUT)
    value = judgement.value
    if completion is None or value is not completion.content:
        value = clean_value(value)
    if (
        value is not judgement.value or (completion is not None and completion.cleaned)
    ) and OUTPUT_CLEANED not in notes:
        notes = (*notes, OUTPUT_CLEANED)
    outcome = Outcome(
        status=judgement.status,
        error=None if judgement.error is None else clean_text(judgement.error),
        finish_reason=completion.finish_reason if completion else None,
        model=completion.model if completion else None,
        request_key=key.hex(),
        prompt_tokens=completion.prompt_tokens if completion else None,
        completion_tokens=completion.completion_tokens if completion else None,
        notes=clean_value(notes) if notes else notes,
        attempts=answer.attempts,
        seconds=answer.seconds,
        origin=answer.origin,
        request_id=None if answer.request_id is None else clean_text(answer.request_id),
    )
    return outcome, value


def judge_completion(prompt: Prompt, values: Sequence[Any], completion: Completion) -> Judgement:
    """Say what a completion is worth: first how it ended, then what the prompt finds in it."""
    if completion.choices > 1:
        return _judge_choices(prompt, values, completion)
    content = completion.content
    ending = ending_of(completion.finish_reason)
    if ending != "itself":
        return _fitting(prompt, _unfinished(ending, completion.finish_reason, content))
    if content is None or is_blank(content):
        message = _first_message(completion)
        return _fitting(prompt, _without_text(message, content, reasoning=completion.reasoning))
    return prompt.judge(values, completion)


def _fitting(prompt: Prompt, judgement: Judgement) -> Judgement:
    """Keep text that no prompt has read out of a column of another type; the error shows it instead."""
    text = judgement.value
    if text is None or pa.types.is_string(prompt.value_type):
        return judgement
    error = judgement.error if judgement.error is None else f"{judgement.error}: {text[:SHOWN]}"
    return Judgement(status=judgement.status, error=error, notes=judgement.notes)


def is_empty(completion: Completion) -> bool:
    """Tell whether the one choice of an answer ended by itself and says nothing at all, not even that it refuses."""
    if completion.choices > 1 or ending_of(completion.finish_reason) != "itself":
        return False
    if not is_blank(completion.content):
        return False
    return _without_text(_first_message(completion), None, reasoning=False).status == "failed"


def _judge_choices(prompt: Prompt, values: Sequence[Any], completion: Completion) -> Judgement:
    first: Judgement | None = None
    worst: Judgement | None = None
    for place, choice in enumerate(choices_of(document_of(completion))):
        found = _judge_choice(choice, place)
        if place == 0:
            # Only the first fills the column, so that only it is looked into.
            first = prompt.judge(values, completion) if found is None else _fitting(prompt, found)
            worst = first
        elif found is not None and worst is not None and _badness(found) > _badness(worst):
            worst = found
    if first is None or worst is None:
        return Judgement(status="invalid", error="the choices of the answer cannot be read")
    if worst is first:
        return first
    return Judgement(status=worst.status, value=first.value, error=worst.error, notes=first.notes)


def _judge_choice(choice: Mapping[str, Any], place: int) -> Judgement | None:
    """Judge one of several choices by its ending; None for one that ended by itself and has text."""
    message = message_of(choice)
    text = content_text(message.get("content"))
    content = None if text is None else clean_text(text)
    ending = ending_of(choice.get("finish_reason"))
    if ending != "itself":
        return _unfinished(ending, choice.get("finish_reason"), content)
    if not is_blank(content):
        return None
    found = _without_text(message, content, reasoning=bool(message.get("reasoning")))
    if found.status == "failed" and place:
        return Judgement(status="failed", error=f"{found.error} (choice {place})")
    return found


def _badness(judgement: Judgement) -> int:
    return WORST_LAST.index(judgement.status)


def _unfinished(ending: Ending, reason: object, content: str | None) -> Judgement:
    if ending == "cut":
        return Judgement(status="truncated", value=content or None, error="cut at the ceiling of tokens")
    if ending == "filtered":
        return Judgement(
            status="filtered", value=content or None, error="stopped by the endpoint's content filter"
        )
    if reason is None:
        return Judgement(status="invalid", error="the answer has no finish_reason, so it may be incomplete")
    return Judgement(
        status="invalid",
        error=f"finish_reason {repr(reason)[:200]} is not known, so the answer may be incomplete",
    )


def _without_text(message: Mapping[str, Any], content: str | None, *, reasoning: bool) -> Judgement:
    """Judge an answer that ended by itself without any text: it called tools, or it refused, or it is empty."""
    if message.get("tool_calls") or message.get("function_call"):
        return Judgement(status="completed", value=content)
    refusal = message.get("refusal")
    if isinstance(refusal, str) and not is_blank(refusal):
        return Judgement(status="refused", error=f"the model refused: {refusal.strip()[:SHOWN]}")
    if reasoning:
        return Judgement(
            status="failed",
            error="empty answer: the model only reasoned; allow it more tokens or less reasoning",
        )
    return Judgement(status="failed", error="empty answer to a text that is not blank")


def document_of(completion: Completion) -> dict[str, Any]:
    """Parse the whole answer; empty where it is nested more deeply than this parser goes, though its text was read."""
    try:
        return completion.document()
    except NotACompletionError:
        return {}


def _first_message(completion: Completion) -> dict[str, Any]:
    choices = choices_of(document_of(completion))
    return message_of(choices[0]) if choices else {}


def next_ceiling(
    completion: Completion, *, ceiling: int | None, highest: int | None, context: int | None, raised: int
) -> int | None:
    """Say under which ceiling a cut answer is asked again; None when no ceiling would cure it.

    The ceiling goes up fourfold, to at most `highest`, and to what the context leaves beside the prompt. It does not
    go up when the context itself was full, or after a first raise when the answer only repeats itself.
    """
    if (
        ending_of(completion.finish_reason) != "cut"
        or ceiling is None
        or highest is None
        or ceiling >= highest
    ):
        return None
    following = min(ceiling * 4, highest)
    used = completion.prompt_tokens
    if context is not None and used is not None:
        if completion.completion_tokens is not None and used + completion.completion_tokens >= context:
            return None
        following = min(following, context - used)
    if following <= ceiling:
        return None
    if raised >= 1 and repeats(completion.content or ""):
        return None
    return following


def repeats(text: str, *, tail: int = 600, period: int = 120) -> bool:
    """Tell whether the end of a text is one short piece over and over, blanks included."""
    end = text[-tail:]
    if len(end) < tail:
        return False
    return any(end[length:] == end[:-length] for length in range(1, period + 1))


def response_field(document: Mapping[str, Any], path: str) -> Any:
    """Look up a field of an answer by the path that `returns` names; None where it is absent."""
    choices = choices_of(document)
    if path == "choices":
        return [content_text(message_of(choice).get("content")) for choice in choices]
    first = choices[0] if choices else {}
    message = message_of(first)
    if path in message:
        return message[path]
    if path in first:
        return first[path]
    found: Any = document
    for step in path.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(step)
    return found


def as_json_text(value: object) -> str | None:
    """Give a field as text: a string as it is, anything else as JSON, None as None."""
    if value is None or isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return None
