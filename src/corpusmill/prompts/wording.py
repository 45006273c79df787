"""Wording is data: which messages a task makes, and in what words. A user may replace it.

A wording is a table (TOML, YAML, JSON or a mapping) with one entry a task: `translate`, `summarise`,
`answer`, `extract`. An entry has

- `messages`: a list of `{role, content}`. `content` is a text or a list of pieces, which are put together
  with line feeds. A piece is a text, or a list of texts of which the first that can be filled is taken.
  `{name}` is replaced by what the prompt knows under that name, and `{literal:name}` is the text `{name}`;
  a piece that names something which this prompt or row does not have is left out, and so is a message
  without any piece. What is filled in is never looked at again.
- a message with `each = "examples"` is repeated for each example, with `{source}` and `{target}`;
  neighbours that have it are repeated together.
- `term` and `example`: how one line of `{glossary}` and of `{examples}` is written, with `{source}` and
  `{target}`.

Two sets come with the package: `chat` for instruction-tuned models, where the system message instructs and
the user message is the row's text and nothing else; and `tildeopen`, one user message whose first paragraph
instructs and whose rest, to its very end, is the text, so that no delimiter within a text can be mistaken
for ours.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from corpusmill.errors import PromptError
from corpusmill.exchange import ROLES
from corpusmill.prompts.template import Template, as_literal, check_closed, in_braces, parse_template

if TYPE_CHECKING:
    from corpusmill.exchange import Message

SETS: Final = ("chat", "tildeopen")
"""The names of the sets that come with the package; the first is the default."""

_KEYS: Final = frozenset({"messages", "term", "example"})
_MESSAGE_KEYS: Final = frozenset({"role", "content", "each"})

Piece = tuple[Template, ...]


@dataclass(frozen=True, slots=True)
class _MessageWording:
    role: str
    pieces: tuple[Piece, ...]
    repeated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The wording of one task. `table` is what it was read from, and is content."""

    table: Mapping[str, Any]
    messages: tuple[_MessageWording, ...]
    term: Template
    example: Template

    def names(self) -> frozenset[str]:
        """All names that the messages outside the examples speak of."""
        return frozenset(
            path
            for message in self.messages
            if not message.repeated
            for piece in message.pieces
            for template in piece
            for path in template.paths
        )


def read_wording(
    wording: str | Path | Mapping[str, Any] | None,
    *,
    task: str,
    names: frozenset[str],
    needed: frozenset[str],
) -> Wording:
    """Read the wording of one task: a set's name, a file's path, a mapping, or None for the default set.

    `names` are those that a message may speak of, `needed` those that it must. Raises `PromptError` for a
    file that cannot be read, for a wrong key or name, and where the row's text has no place.
    """
    origin, table = _table(wording, task)
    where = f"the wording of {task} in {origin}"
    unknown = set(table) - _KEYS
    if unknown:
        raise PromptError(f"{where} has {_nearest(min(unknown), _KEYS)}")
    messages = table.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise PromptError(f"{where} needs messages, a list of {{role, content}}")
    read = Wording(
        table=table,
        messages=tuple(_message(message, where, names) for message in messages),
        term=_line(table, "term", where),
        example=_line(table, "example", where),
    )
    missing = needed - read.names()
    if missing:
        raise PromptError(f"{where} has no place for {{{min(missing)}}}; every row would ask the same")
    return read


def _table(wording: str | Path | Mapping[str, Any] | None, task: str) -> tuple[str, Mapping[str, Any]]:
    if isinstance(wording, Mapping):
        origin, document = "the mapping", wording
    elif wording is None or wording in SETS:
        name = wording or SETS[0]
        origin, document = f"the set {name}", _shipped(str(name))
    else:
        origin, document = str(wording), _file(Path(wording))
    if "messages" in document:
        return origin, document
    table = document.get(task)
    if not isinstance(table, Mapping):
        raise PromptError(
            f"{origin} has no wording for {task}; it has {', '.join(map(str, document)) or 'nothing'}"
        )
    return origin, table


@cache
def _shipped(name: str) -> Mapping[str, Any]:
    return tomllib.loads(
        (resources.files(__package__) / "wordings" / f"{name}.toml").read_text(encoding="utf-8")
    )


def _file(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise PromptError(
            f"the wording {str(path)!r} cannot be read ({reason}); give a TOML, YAML or JSON file, "
            f"a mapping, or one of {', '.join(SETS)}"
        ) from error
    try:
        match path.suffix.lower():
            case ".json":
                document = json.loads(text)
            case ".yaml" | ".yml":
                from ruamel.yaml import YAML

                document = YAML(typ="safe", pure=True).load(text)
            case _:
                document = tomllib.loads(text)
    except Exception as error:  # three parsers, three families of errors; each names its line
        raise PromptError(f"the wording {str(path)!r} cannot be parsed: {error}") from error
    if not isinstance(document, Mapping):
        raise PromptError(f"the wording {str(path)!r} must be a table with one entry a task")
    return document


def _message(message: object, where: str, names: frozenset[str]) -> _MessageWording:
    if not isinstance(message, Mapping):
        raise PromptError(f"{where} has the message {message!r}; it must be {{role, content}}")
    unknown = set(message) - _MESSAGE_KEYS
    if unknown:
        raise PromptError(f"a message of {where} has {_nearest(min(map(str, unknown)), _MESSAGE_KEYS)}")
    role, each = message.get("role"), message.get("each")
    if role not in ROLES:
        raise PromptError(
            f"a message of {where} has the role {role!r}; it must be one of {', '.join(sorted(ROLES))}"
        )
    if each not in {None, "examples"}:
        raise PromptError(
            f"a message of {where} has each = {each!r}; the only thing to repeat for is 'examples'"
        )
    allowed = names | {"source", "target"} if each else names
    content = message.get("content")
    pieces = [content] if isinstance(content, str) else content
    if not isinstance(pieces, Sequence) or not pieces:
        raise PromptError(
            f"a message of {where} has the content {content!r}; it must be a text or a list of pieces"
        )
    return _MessageWording(role, tuple(_piece(piece, where, allowed) for piece in pieces), bool(each))


def _piece(piece: object, where: str, names: frozenset[str]) -> Piece:
    alternatives = [piece] if isinstance(piece, str) else piece
    if not isinstance(alternatives, Sequence) or not all(isinstance(text, str) for text in alternatives):
        raise PromptError(f"{where} has the piece {piece!r}; it must be a text or a list of texts")
    for text in alternatives:
        check_closed(text, where, names)
    parsed = tuple(parse_template(text) for text in alternatives)
    for text, template in zip(alternatives, parsed, strict=True):
        for path in template.paths:
            if path not in names:
                braced = in_braces(path, text) or path
                raise PromptError(f"{where} speaks of {_nearest(path, names, braced)}{as_literal(braced)}")
    return parsed


def _line(table: Mapping[str, Any], key: str, where: str) -> Template:
    text = table.get(key, "{source} = {target}")
    template = parse_template(text) if isinstance(text, str) else None
    if template is None or set(template.paths) != {"source", "target"}:
        raise PromptError(f"{where} has {key} = {text!r}; it must be one line with {{source}} and {{target}}")
    return template


def _nearest(word: str, allowed: frozenset[str], braces: str = "") -> str:
    near = difflib.get_close_matches(word, sorted(allowed), n=1)
    shown = f"{{{braces}}}" if braces else repr(word)
    hint = f"did you mean {near[0]!r}?" if near else f"it may be {', '.join(sorted(allowed))}"
    return f"{shown}, which is unknown; {hint}"


class Layout:
    """The messages of one prompt, filled with all that its rows share; `fill` puts in what a row has."""

    __slots__ = ("_plans",)

    def __init__(
        self,
        wording: Wording,
        *,
        constants: Mapping[str, str | None],
        by_row: frozenset[str],
        examples: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Fill the constants; None among them means that the prompt has no such thing."""
        known = {name: value for name, value in constants.items() if value is not None}
        if examples:
            known["examples"] = "\n".join(_example_line(wording.example, pair) for pair in examples)
        plans: list[tuple[str, tuple[Piece, ...]]] = []
        group: list[_MessageWording] = []
        for message in (*wording.messages, None):
            if message is not None and message.repeated:
                group.append(message)
                continue
            for source, target in examples if group else ():
                pair = {**known, "source": source, "target": target}
                plans += ((repeated.role, _bound(repeated.pieces, pair, by_row)) for repeated in group)
            group = []
            if message is not None:
                plans.append((message.role, _bound(message.pieces, known, by_row)))
        self._plans = tuple(_plan(role, pieces) for role, pieces in plans if pieces)

    def fill(self, row: Mapping[str, str | None]) -> list[Message]:
        """Return the messages of a row; a piece whose name has no value here is left out."""
        messages: list[Message] = []
        for role, ready, pieces in self._plans:
            if ready is not None:
                messages.append(ready)
                continue
            lines = [line for piece in pieces if (line := _filled(piece, row)) is not None]
            if lines:
                messages.append({"role": role, "content": "\n".join(lines)})
        return messages

    def __getstate__(self) -> tuple[object, ...]:
        return self._plans

    def __setstate__(self, plans: tuple[Any, ...]) -> None:
        self._plans = plans


def _plan(role: str, pieces: tuple[Piece, ...]) -> tuple[str, Message | None, tuple[Piece, ...]]:
    if all(not piece[0].paths for piece in pieces):
        # All rows share this very message; nobody changes it.
        return role, {"role": role, "content": "\n".join(piece[0].literals[0] for piece in pieces)}, pieces
    return role, None, pieces


def _bound(
    pieces: tuple[Piece, ...], constants: Mapping[str, str], by_row: frozenset[str]
) -> tuple[Piece, ...]:
    bound: list[Piece] = []
    for piece in pieces:
        usable = [
            _fill_constants(template, constants)
            for template in piece
            if all(path in constants or path in by_row for path in template.paths)
        ]
        if usable:
            bound.append(tuple(usable))
    return tuple(bound)


def _fill_constants(template: Template, constants: Mapping[str, str]) -> Template:
    literals, paths = [template.literals[0]], []
    for path, literal in zip(template.paths, template.literals[1:], strict=True):
        if path in constants:
            literals[-1] += constants[path] + literal
        else:
            paths.append(path)
            literals.append(literal)
    return Template(tuple(literals), tuple(paths))


def _filled(piece: Piece, row: Mapping[str, str | None]) -> str | None:
    for template in piece:
        values = {path: value for path in template.paths if (value := row.get(path)) is not None}
        if len(values) == len(set(template.paths)):
            return template.fill(values)
    return None


def _example_line(line: Template, pair: tuple[str, str]) -> str:
    # A blank line would end the paragraph that the examples stand in.
    source, target = ("\n".join(part for part in text.split("\n") if part.strip()) for text in pair)
    return line.fill({"source": source, "target": target})
