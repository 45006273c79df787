"""Messages made from a row: templates by role, media parts from binary columns, or a column of whole message lists."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from corpusmill.errors import PromptError
from corpusmill.exchange import ROLES
from corpusmill.prompts.media import media_part
from corpusmill.prompts.prompt import Input, InputKind, Rendered, Unaskable
from corpusmill.prompts.template import Template, parse_template

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from corpusmill.exchange import Message

MEDIA = ("image", "audio", "video")


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a row is asked, parsed once: the columns it takes, and how their values become messages.

    `build` gives the messages, or a text that says why there are none. `fixed` and `text` are set for what most jobs
    are and a replay does most: messages that never change, then one with one placeholder (role, before it, after it).
    """

    inputs: tuple[Input, ...]
    build: Callable[[Sequence[Any]], list[Message] | str]
    blank: Callable[[Sequence[Any]], bool]
    tools_at: int | None = None
    media: frozenset[str] = frozenset()
    fixed: tuple[Message, ...] = ()
    text: tuple[str, str, str] | None = None

    def renderer(
        self, *, ceiling: int | None, vary_last: bool
    ) -> Callable[[Sequence[Any]], Rendered | Unaskable | None]:
        """Give the function that makes the request of a row; it gives None when the row has nothing to say."""
        if self.text is None or self.tools_at is not None or vary_last:
            return lambda values: self._render(values, ceiling=ceiling, vary_last=vary_last)
        fixed, (role, head, tail) = self.fixed, self.text

        def render(values: Sequence[Any]) -> Rendered | None:
            text = values[0]
            if not text or text.isspace():
                return None
            return Rendered(
                messages=(*fixed, {"role": role, "content": f"{head}{text}{tail}"}), ceiling=ceiling
            )

        return render

    def _render(
        self, values: Sequence[Any], *, ceiling: int | None, vary_last: bool
    ) -> Rendered | Unaskable | None:
        if self.blank(values):
            return None
        messages = self.build(values)
        if isinstance(messages, str):
            return Unaskable(reason=messages)
        parameters = None
        if self.tools_at is not None and values[self.tools_at] is not None:
            tools = _json_value(values[self.tools_at])
            if not isinstance(tools, list):
                return Unaskable(
                    reason=f"the column {self.inputs[self.tools_at].path!r} holds no list of tools"
                )
            parameters = {"tools": tools}
        vary = (values[-1] or "") if vary_last else None
        return Rendered(messages=messages, ceiling=ceiling, vary=vary, parameters=parameters)


def conversation_column(reference: Mapping[str, Any], what: str) -> str:
    """Read `{"column": name}`; raise `PromptError` for any other mapping."""
    if set(reference) != {"column"} or not isinstance(reference["column"], str):
        raise PromptError(f"{what} as a mapping must be {{column: name}}; it is {dict(reference)!r}")
    return str(reference["column"])


def conversation_of(
    messages: Sequence[Mapping[str, Any]] | Mapping[str, Any], *, tools_column: str | None = None
) -> Conversation:
    """Parse `messages` of an ask prompt."""
    if isinstance(messages, dict):
        conversation = _from_column(conversation_column(messages, "messages"))
    else:
        conversation = _from_templates(list(messages))  # type: ignore[arg-type]
    if tools_column is None:
        return conversation
    inputs = (*conversation.inputs, Input(path=tools_column, kind="json"))
    return replace(conversation, inputs=inputs, tools_at=len(inputs) - 1)


def _from_column(path: str) -> Conversation:
    def build(values: Sequence[Any]) -> list[Message] | str:
        found = _json_value(values[0])
        if not isinstance(found, list) or not found:
            return f"the column {path!r} holds no list of messages"
        messages: list[Message] = []
        for position, message in enumerate(found):
            if not isinstance(message, dict) or message.get("role") not in ROLES:
                role = message.get("role") if isinstance(message, dict) else message
                return f"message {position} in {path!r} has the role {role!r}; known are {', '.join(sorted(ROLES))}"
            messages.append({name: value for name, value in message.items() if value is not None})
        return messages

    return Conversation((Input(path=path, kind="json"),), build, lambda values: not _json_value(values[0]))


def _json_value(value: object) -> object:
    if isinstance(value, str):
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value if value.strip() else None
    return value


class _Slots:
    """The columns that the templates name, each once, in order of first use."""

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self.media: set[str] = set()

    def at(self, path: str, kind: InputKind) -> int:
        wanted = Input(path=path, kind=kind)
        if wanted not in self.inputs:
            self.inputs.append(wanted)
        return self.inputs.index(wanted)


def _from_templates(written: list[Mapping[str, Any]]) -> Conversation:
    if not written:
        raise PromptError("messages is empty; at least one message is needed")
    slots = _Slots()
    builders = [_message_builder(message, position, slots) for position, message in enumerate(written)]
    inputs = tuple(slots.inputs)
    texts = [index for index, item in enumerate(inputs) if item.kind == "text"]
    others = [index for index, item in enumerate(inputs) if item.kind != "text"]

    def build(values: Sequence[Any]) -> list[Message] | str:
        try:
            return [builder(values) for builder in builders]
        except _CannotBuildError as error:
            return str(error)

    def blank(values: Sequence[Any]) -> bool:
        for index in texts:
            value = values[index]
            if value and not value.isspace():
                return False
        return all(not values[index] for index in others)

    fixed, text = _single_text(written, inputs)
    return Conversation(inputs, build, blank, media=frozenset(slots.media), fixed=fixed, text=text)


def _single_text(
    written: list[Mapping[str, Any]], inputs: tuple[Input, ...]
) -> tuple[tuple[Message, ...], tuple[str, str, str] | None]:
    *before, last = written
    plain = all(
        set(message) == {"role", "content"} and isinstance(message["content"], str) for message in written
    )
    if not plain or len(inputs) != 1 or any(parse_template(message["content"]).paths for message in before):
        return (), None
    template = parse_template(last["content"])
    if len(template.paths) != 1:
        return (), None
    fixed = tuple({"role": message["role"], "content": message["content"]} for message in before)
    return fixed, (last["role"], *template.literals)


class _CannotBuildError(Exception):
    pass


def _message_builder(
    message: Mapping[str, Any], position: int, slots: _Slots
) -> Callable[[Sequence[Any]], Message]:
    role = message.get("role")
    if role not in ROLES:
        raise PromptError(f"messages[{position}].role is {role!r}; known are {', '.join(sorted(ROLES))}")
    fields = {
        name: _value_builder(value, f"messages[{position}].{name}", slots)
        for name, value in message.items()
        if name != "role" and value is not None
    }

    def build(values: Sequence[Any]) -> Message:
        made = {"role": role}
        for name, builder in fields.items():
            value = builder(values)
            if value is not None:
                made[name] = value
        return made

    return build


def _value_builder(value: object, where: str, slots: _Slots) -> Callable[[Sequence[Any]], Any]:
    if isinstance(value, str):
        return _text_builder(parse_template(value), slots)
    if isinstance(value, list | tuple):
        parts = [_part_builder(part, f"{where}[{index}]", slots) for index, part in enumerate(value)]

        def build_parts(values: Sequence[Any]) -> list[Any] | None:
            made = [part(values) for part in parts]
            return [part for part in made if part is not None] or None

        return build_parts
    if isinstance(value, dict) and set(value) == {"column"}:
        index = slots.at(str(value["column"]), "json")
        return lambda values: _json_value(values[index])
    return lambda _values: value


def _text_builder(template: Template, slots: _Slots) -> Callable[[Sequence[Any]], str]:
    indexes = [slots.at(path, "text") for path in template.paths]
    literals = template.literals

    def build(values: Sequence[Any]) -> str:
        pieces = [literals[0]]
        for index, literal in zip(indexes, literals[1:], strict=True):
            pieces.append(values[index] or "")
            pieces.append(literal)
        return "".join(pieces)

    return build


def _part_builder(part: object, where: str, slots: _Slots) -> Callable[[Sequence[Any]], Any]:
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
            return _media_builder(kind, path, slots.at(path, "binary"))
    if isinstance(part.get("text"), str):
        text = _text_builder(parse_template(part["text"]), slots)
        return lambda values: {"type": "text", "text": text(values)}
    return lambda _values: part


def _media_builder(kind: str, path: str, index: int) -> Callable[[Sequence[Any]], Any]:
    def build(values: Sequence[Any]) -> Any:
        data = values[index]
        if not data:
            return None
        made = media_part(kind, bytes(data))
        if isinstance(made, str):
            raise _CannotBuildError(f"the column {path!r} holds {made}")
        return made

    return build
