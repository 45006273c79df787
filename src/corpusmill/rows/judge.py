"""An answer becomes an outcome and a value. Pure: the same completion gives the same in every run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from corpusmill.exchange import Completion, content_text
from corpusmill.outcome import WORST_LAST, Origin, Outcome, Status
from corpusmill.prompts.prompt import Judgement
from corpusmill.rows.render import CLEANED
from corpusmill.rows.text import clean_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corpusmill.prompts.prompt import Prompt

ENDED = frozenset({"stop", "tool_calls", "function_call", "eos", "end_turn", "stop_sequence"})
CUT = frozenset({"length", "max_tokens", "model_length"})
FILTERED = frozenset({"content_filter"})


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
    prompt: Prompt, values: Sequence[Any], answer: Answer, key: bytes, *, cleaned: bool
) -> tuple[Outcome, Any]:
    """Give the outcome of a row that was asked, and the value of its column (None when there is none)."""
    completion = answer.completion
    if completion is None:
        judgement = Judgement(status="failed", error=answer.error)
    else:
        judgement = judge_completion(prompt, values, completion)
    notes = answer.notes + judgement.notes
    if cleaned:
        notes = (CLEANED, *notes)
    value = judgement.value
    if type(value) is str and not (value.isascii() and "\0" not in value):
        value = clean_text(value)
        if value != judgement.value:
            notes = (*notes, "output_cleaned")
    outcome = Outcome(
        status=judgement.status,
        error=judgement.error,
        finish_reason=completion.finish_reason if completion else None,
        model=completion.model if completion else None,
        request_key=key.hex(),
        prompt_tokens=completion.prompt_tokens if completion else None,
        completion_tokens=completion.completion_tokens if completion else None,
        notes=notes,
        attempts=answer.attempts,
        seconds=answer.seconds,
        origin=answer.origin,
        request_id=answer.request_id,
    )
    return outcome, value


def judge_completion(prompt: Prompt, values: Sequence[Any], completion: Completion) -> Judgement:
    """Say what a completion is worth: first how it ended, then what the prompt finds in it."""
    if completion.choices > 1:
        return _judge_choices(prompt, values, completion)
    reason = completion.finish_reason
    content = completion.content
    if reason in ENDED:
        if content is None or not content or content.isspace():
            if reason != "stop" or _calls_tools(completion):
                return Judgement(status="completed", value=content)
            return Judgement(status="failed", error=_empty(completion))
        return prompt.judge(values, completion)
    return _unfinished(reason, content)


def _judge_choices(prompt: Prompt, values: Sequence[Any], completion: Completion) -> Judgement:
    first = (
        prompt.judge(values, completion)
        if completion.content
        else Judgement(status="failed", error="empty answer")
    )
    worst = first
    for choice in completion.document()["choices"]:
        reason = choice.get("finish_reason")
        content = content_text((choice.get("message") or {}).get("content"))
        if reason not in ENDED:
            found = _unfinished(reason, content)
        elif not content and reason == "stop":
            found = Judgement(status="failed", error=f"empty answer in choice {choice.get('index')}")
        else:
            continue
        if WORST_LAST.index(found.status) > WORST_LAST.index(worst.status):
            worst = found
    if worst is first:
        return first
    return Judgement(status=worst.status, value=first.value, error=worst.error, notes=first.notes)


def _unfinished(reason: str | None, content: str | None) -> Judgement:
    if reason in CUT:
        return Judgement(status="truncated", value=content or None, error="cut at the ceiling of tokens")
    if reason in FILTERED:
        return Judgement(
            status="filtered", value=content or None, error="stopped by the endpoint's content filter"
        )
    if reason is None:
        return Judgement(status="invalid", error="the answer has no finish_reason, so it may be incomplete")
    return Judgement(
        status="invalid", error=f"finish_reason {reason!r} is not known, so the answer may be incomplete"
    )


def _calls_tools(completion: Completion) -> bool:
    message = (completion.document().get("choices") or [{}])[0].get("message") or {}
    return bool(message.get("tool_calls") or message.get("function_call"))


def _empty(completion: Completion) -> str:
    if completion.reasoning:
        return "empty answer: the model only reasoned; allow it more tokens or less reasoning"
    return "empty answer to a text that is not blank"


def worst(statuses: Sequence[Status]) -> Status:
    """Give the worst of several statuses."""
    return max(statuses, key=WORST_LAST.index)


def next_ceiling(
    completion: Completion, *, ceiling: int | None, highest: int | None, context: int | None, raised: int
) -> int | None:
    """Say under which ceiling a cut answer is asked again; None when no ceiling would cure it.

    The ceiling goes up fourfold, to at most `highest`, and to what the context leaves beside the prompt. It does not
    go up when the context itself was full, or after a first raise when the answer only repeats itself.
    """
    if completion.finish_reason not in CUT or ceiling is None or highest is None or ceiling >= highest:
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


def response_field(completion: Completion, path: str) -> Any:
    """Look up a field of a completion by the path that `returns` names; None where it is absent."""
    document = completion.document()
    choices = [choice for choice in document.get("choices") or [] if isinstance(choice, dict)]
    if path == "choices":
        ordered = sorted(choices, key=lambda choice: choice.get("index") or 0)
        return [content_text((choice.get("message") or {}).get("content")) for choice in ordered]
    first = min(choices, key=lambda choice: choice.get("index") or 0, default={})
    message = first.get("message") or {}
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
    if value is None:
        return None
    return clean_text(value if isinstance(value, str) else msgspec.json.encode(value).decode())
