"""Chunks of a streamed answer, merged into the answer: pure functions over parsed JSON.

Unknown fields are kept: of texts in a delta the pieces are joined, of anything else the latest that is not
null holds.
"""

from __future__ import annotations

from typing import Any

_NAMES = frozenset({"role", "channel", "type", "id", "object", "name"})
"""Texts of a delta that name something: the latest holds. All others are pieces, to be joined."""


def merge_top(answer: dict[str, Any], chunk: dict[str, Any]) -> None:
    """Merge the fields beside `choices`; usage that comes in several chunks is put together."""
    for name, value in chunk.items():
        if name == "choices" or value is None:
            if name != "choices":
                answer.setdefault(name, None)
            continue
        known = answer.get(name)
        if name == "usage" and isinstance(value, dict) and isinstance(known, dict):
            answer[name] = {**known, **{key: item for key, item in value.items() if item is not None}}
        else:
            answer[name] = value


def merge_choices(choices: dict[int, dict[str, Any]], found: object) -> None:
    """Merge the choices of one chunk into those known so far, by their index."""
    if not isinstance(found, list):
        return
    for position, choice in enumerate(found):
        if not isinstance(choice, dict):
            continue
        index = choice.get("index")
        if isinstance(index, bool) or not isinstance(index, int):
            index = position
        known = choices.get(index)
        if known is None:
            known = choices[index] = {"index": index, "message": {}, "finish_reason": None}
        _merge_choice(known, choice)


def _merge_choice(known: dict[str, Any], choice: dict[str, Any]) -> None:
    for name, value in choice.items():
        if name == "index":
            continue
        if name in {"delta", "message"}:
            if isinstance(value, dict):
                _merge_delta(known["message"], value)
        elif name == "logprobs":
            known[name] = _joined(known.get(name), value)
        elif value is not None or name not in known:
            known[name] = value


def _merge_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        known = message.get(name)
        if value is None:
            message.setdefault(name, None)
        elif name == "tool_calls" and isinstance(value, list):
            calls = message[name] = known if isinstance(known, list) else []
            for call in value:
                if isinstance(call, dict):
                    _merge_call(calls, call)
        elif isinstance(value, str) and isinstance(known, str) and name not in _NAMES:
            message[name] = known + value
        elif isinstance(value, list) and isinstance(known, list):
            known.extend(value)
        elif isinstance(value, dict) and isinstance(known, dict):
            _merge_delta(known, value)
        else:
            message[name] = value


def _merge_call(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    call = _call_of(calls, piece)
    if call is None:
        call = {}
        calls.append(call)
    for name, value in piece.items():
        known = call.get(name)
        if name == "function" and isinstance(value, dict):
            function = call.setdefault(name, {})
            for key, item in value.items():
                if key == "arguments" and isinstance(item, str) and isinstance(function.get(key), str):
                    function[key] += item
                elif item is not None and (item != "" or key not in function):
                    function[key] = item
        elif value is not None and (value != "" or known is None):
            call[name] = value


def _call_of(calls: list[dict[str, Any]], piece: dict[str, Any]) -> dict[str, Any] | None:
    """Find the call that a piece belongs to.

    Some servers give every call the index 0 and tell them apart by id; some give no index and no id after
    the first piece.
    """
    name = piece.get("id")
    index = piece.get("index")
    if index is None:
        if name:
            return next((call for call in calls if call.get("id") == name), None)
        return calls[-1] if calls else None
    for call in reversed(calls):
        if call.get("index") == index:
            return None if name and call.get("id") not in {None, "", name} else call
    return None


def _joined(known: Any, value: Any) -> Any:
    """Join logprobs, which come as an object of lists or (as one page shows them) as a list."""
    if value is None:
        return known
    if isinstance(known, list) and isinstance(value, list):
        return known + value
    if isinstance(known, dict) and isinstance(value, dict):
        return {name: _joined(known.get(name), value.get(name)) for name in {**known, **value}}
    return value
