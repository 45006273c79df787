"""Messages made from a row: templates by role, media parts from binary columns, or a column of whole message lists.

All that is parsed is records, so that a prompt can be pickled and copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from corpusmill.errors import PromptError
from corpusmill.exchange import ROLES
from corpusmill.prompts.fields import is_blank
from corpusmill.prompts.media import media_part
from corpusmill.prompts.prompt import Input, InputKind, Plain, Rendered, Unaskable
from corpusmill.prompts.template import parse_template

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from corpusmill.exchange import Message

MEDIA = ("image", "audio", "video")

_SHOWN = 200
"""Characters of a wrong value that a reason shows."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a row is asked, parsed once: the columns it takes, and how their values become messages.

    `templates` are the messages to fill; None where the first column holds whole lists of them. `plain` is the same
    again for what is simple. `tools_at` is the place of the column of tools among `inputs`.
    """

    inputs: tuple[Input, ...]
    templates: tuple[_MessageTemplate, ...] | None
    media: frozenset[str] = frozenset()
    plain: Plain | None = None
    tools_at: int | None = None

    def render(
        self, values: Sequence[Any], *, ceiling: int | None, vary: str | None
    ) -> Rendered | Unaskable | None:
        """Make the request of a row; None when the row has nothing to say."""
        if self.templates is None:
            messages = _messages_of(values[0], self.inputs[0].path)
        elif self._is_blank(values):
            return None
        else:
            try:
                messages = [template(values) for template in self.templates]
            except _CannotBuildError as error:
                return Unaskable(reason=str(error))
        if messages is None:
            return None
        if isinstance(messages, str):
            return Unaskable(reason=messages)
        parameters = None
        if self.tools_at is not None and values[self.tools_at] is not None:
            tools = _json_value(values[self.tools_at])
            if not isinstance(tools, list):
                path = self.inputs[self.tools_at].path
                return Unaskable(reason=f"the column {path!r} holds no list of tools")
            parameters = {"tools": tools}
        return Rendered(messages=messages, ceiling=ceiling, vary=vary, parameters=parameters)

    def _is_blank(self, values: Sequence[Any]) -> bool:
        for position, (wanted, value) in enumerate(zip(self.inputs, values, strict=False)):
            if position == self.tools_at:
                continue
            if not is_blank(value) if wanted.kind == "text" else value:
                return False
        return True


def conversation_column(reference: Mapping[str, Any], what: str) -> str:
    """Read `{"column": name}`; raise `PromptError` for any other mapping."""
    if set(reference) != {"column"} or not isinstance(reference["column"], str):
        raise PromptError(f"{what} as a mapping must be {{column: name}}, a text; it is {dict(reference)!r}")
    return str(reference["column"])


def conversation_of(
    messages: Sequence[Mapping[str, Any]] | Mapping[str, Any], *, tools_column: str | None = None
) -> Conversation:
    """Parse `messages` of an ask prompt."""
    if isinstance(messages, dict):
        path = conversation_column(messages, "messages")
        conversation = Conversation((Input(path=path, kind="json"),), None)
    else:
        conversation = _from_templates(list(messages))  # type: ignore[arg-type]
    if tools_column is None:
        return conversation
    inputs = (*conversation.inputs, Input(path=tools_column, kind="json"))
    return replace(conversation, inputs=inputs, tools_at=len(inputs) - 1, plain=None)


def _messages_of(cell: object, path: str) -> list[Message] | str | None:
    """Read a cell of whole messages; a text says why it holds none, None that it is blank."""
    found = _json_value(cell)
    if not found:
        return None
    if not isinstance(found, list):
        return f"the column {path!r} holds no list of messages"
    messages: list[Message] = []
    for position, message in enumerate(found):
        role = message.get("role") if isinstance(message, dict) else message
        if not isinstance(message, dict) or not isinstance(role, str) or role not in ROLES:
            return (
                f"message {position} in {path!r} has the role {repr(role)[:_SHOWN]}; "
                f"known are {', '.join(sorted(ROLES))}"
            )
        messages.append({name: value for name, value in message.items() if value is not None})
    return messages


def _json_value(value: object) -> object:
    if isinstance(value, str):
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            return None if is_blank(value) else value
    return value


class _Slots:
    """The columns that the templates name, each once, in order of first use."""

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.media: set[str] = set()

    def at(self, path: str, kind: InputKind) -> int:
        wanted = Input(path=path, kind=kind, scalars=kind == "text")
        if wanted not in self.inputs:
            self.inputs.append(wanted)
        return self.inputs.index(wanted)


def _from_templates(written: list[Mapping[str, Any]]) -> Conversation:
    if not written:
        raise PromptError("messages is empty; at least one message is needed")
    slots = _Slots()
    templates = tuple(_message_template(message, position, slots) for position, message in enumerate(written))
    inputs = tuple(slots.inputs)
    return Conversation(
        inputs, templates, media=frozenset(slots.media), plain=_plain(written) if len(inputs) == 1 else None
    )


def _plain(written: list[Mapping[str, Any]]) -> Plain | None:
    *first, last = written
    usual = all(
        set(message) == {"role", "content"} and isinstance(message["content"], str) for message in written
    )
    if not usual:
        return None
    *before_it, template = (parse_template(message["content"]) for message in written)
    if any(fixed.paths for fixed in before_it) or len(template.paths) != 1:
        return None
    fixed = tuple(
        {"role": message["role"], "content": parsed.literals[0]}
        for message, parsed in zip(first, before_it, strict=True)
    )
    before, after = template.literals
    return Plain(fixed, last["role"], before, after)


class _CannotBuildError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _MessageTemplate:
    role: str
    fields: tuple[tuple[str, Callable[[Sequence[Any]], Any]], ...]

    def __call__(self, values: Sequence[Any]) -> Message:
        made: dict[str, Any] = {"role": self.role}
        for name, build in self.fields:
            value = build(values)
            if value is not None:
                made[name] = value
        return made


@dataclass(frozen=True, slots=True)
class _Text:
    literals: tuple[str, ...]
    indexes: tuple[int, ...]

    def __call__(self, values: Sequence[Any]) -> str:
        pieces = [self.literals[0]]
        for index, literal in zip(self.indexes, self.literals[1:], strict=True):
            pieces.append(values[index] or "")
            pieces.append(literal)
        return "".join(pieces)


@dataclass(frozen=True, slots=True)
class _TextPart:
    text: _Text

    def __call__(self, values: Sequence[Any]) -> dict[str, Any]:
        return {"type": "text", "text": self.text(values)}


@dataclass(frozen=True, slots=True)
class _MediaPart:
    kind: str
    path: str
    index: int

    def __call__(self, values: Sequence[Any]) -> Any:
        data = values[self.index]
        if not data:
            return None
        made = media_part(self.kind, bytes(data))
        if isinstance(made, str):
            raise _CannotBuildError(f"the column {self.path!r} holds {made}")
        return made


@dataclass(frozen=True, slots=True)
class _Parts:
    parts: tuple[Callable[[Sequence[Any]], Any], ...]

    def __call__(self, values: Sequence[Any]) -> list[Any] | None:
        made = [part(values) for part in self.parts]
        return [part for part in made if part is not None] or None


@dataclass(frozen=True, slots=True)
class _Cell:
    index: int

    def __call__(self, values: Sequence[Any]) -> Any:
        return _json_value(values[self.index])


@dataclass(frozen=True, slots=True)
class _Fixed:
    value: Any

    def __call__(self, values: Sequence[Any]) -> Any:
        del values
        return self.value


def _message_template(message: Mapping[str, Any], position: int, slots: _Slots) -> _MessageTemplate:
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise PromptError(f"messages[{position}].role is {role!r}; known are {', '.join(sorted(ROLES))}")
    fields = tuple(
        (name, _value_template(value, f"messages[{position}].{name}", slots))
        for name, value in message.items()
        if name != "role" and value is not None
    )
    return _MessageTemplate(role, fields)


def _value_template(value: object, where: str, slots: _Slots) -> Callable[[Sequence[Any]], Any]:
    if isinstance(value, str):
        return _text(value, slots)
    if isinstance(value, list | tuple):
        return _Parts(
            tuple(_part_template(part, f"{where}[{index}]", slots) for index, part in enumerate(value))
        )
    if isinstance(value, dict) and set(value) == {"column"}:
        return _Cell(slots.at(str(value["column"]), "json"))
    return _Fixed(value)


def _text(text: str, slots: _Slots) -> _Text:
    template = parse_template(text)
    return _Text(template.literals, tuple(slots.at(path, "text") for path in template.paths))


def _part_template(part: object, where: str, slots: _Slots) -> Callable[[Sequence[Any]], Any]:
    if isinstance(part, str):
        part = {"text": part}
    if not isinstance(part, dict):
        raise PromptError(f"{where} is {part!r}; a part is text, or one of {', '.join(MEDIA)} from a column")
    for kind in MEDIA:
        if kind in part:
            reference = part[kind]
            if not isinstance(reference, dict):
                raise PromptError(f"{where}.{kind} must be {{column: name}}; it is {reference!r}")
            path = conversation_column(reference, f"{where}.{kind}")
            slots.media.add(kind)
            return _MediaPart(kind, path, slots.at(path, "binary"))
    if isinstance(part.get("text"), str):
        return _TextPart(_text(part["text"], slots))
    return _Fixed(part)
