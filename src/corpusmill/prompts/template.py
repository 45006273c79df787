"""Templates: `{column.path}` is the row's text, `{literal:name}` is the text `{name}`, and nothing else means anything.

A placeholder is a brace, a dotted path of names, a brace; or `{column:any name}`, which takes all up to the closing
brace for the name. Every other brace is literal; `unclosed` finds those that may be slips, which whoever knows the
names that can be filled in refuses. What is filled in is never looked at again, so a row whose text contains `{other}`
keeps it.

Doubled braces are no escape: `{{column}}` is the row's text in braces, as LaTeX and BibTeX want it, and orchestrators
fill in `{{name}}` before a template is read. A sign before the name would be part of some language that a prompt shows
code of.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from corpusmill.errors import PromptError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

_COLUMN: Final = "column:"

# A name may hold letters of any script, digits, underscores and hyphens; blanks around a path are not allowed, so
# that JSON and code in a template stay what they are.
_PATH = r"[^\W\d][\w-]*(?:\.[\w-]+)*"
# Any name, but for one that begins as what follows a colon in JSON and in code.
_ANY = r"""[^\s{}"'][^{}]*"""
_PLACEHOLDER = re.compile(rf"\{{(?:({_PATH})|column:({_ANY}))\}}")
_LITERAL = re.compile(rf"\{{literal:({_ANY})\}}")
_FILLED = re.compile(rf"{_PLACEHOLDER.pattern}|{_LITERAL.pattern}")
_BEGUN = re.compile(rf"\{{({_COLUMN}(?={_ANY})|{_PATH})")
_BRACED = re.compile(r"\{([^{}]+)\}")
_QUOTED = re.compile(r'"[^"\n]*"')
_NEARLY = re.compile(rf"\{{\s*({_PATH})(?:[!:\[][^{{}}]*|\s*)\}}")
_SPACED = re.compile(rf"""\{{\s*{_COLUMN}\s*["']?({_ANY}?)["']?\s*\}}""")


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template: `literals[0] + value of paths[0] + literals[1] + …`."""

    literals: tuple[str, ...]
    paths: tuple[str, ...]

    def fill(self, values: dict[str, str]) -> str:
        """Put the row's text in the place of each placeholder."""
        pieces = [self.literals[0]]
        for path, literal in zip(self.paths, self.literals[1:], strict=True):
            pieces.append(values[path])
            pieces.append(literal)
        return "".join(pieces)


def parse_template(text: str) -> Template:
    """Split a template at its placeholders."""
    literals = [""]
    paths: list[str] = []
    end = 0
    for match in _FILLED.finditer(text):
        literals[-1] += text[end : match.start()]
        path, any_name, literal = match.groups()
        if literal is not None:
            literals[-1] += f"{{{literal}}}"
        else:
            paths.append(path or any_name)
            literals.append("")
        end = match.end()
    literals[-1] += text[end:]
    return Template(tuple(literals), tuple(paths))


def as_literal(name: str) -> str:
    """Say, to be put behind a message, how a name in braces is written that is text; nothing where it cannot be."""
    written = f"{{literal:{name}}}"
    return f"; write {written} for the text {{{name}}}" if _LITERAL.fullmatch(written) else ""


def as_column(name: str) -> str:
    """Say how a template names a column whose name alone in braces is text."""
    written = f"{{{_COLUMN}{name}}}"
    return f"write {written} for the column" if _PLACEHOLDER.fullmatch(written) else "rename the column"


def in_braces(path: str, text: str) -> str | None:
    """Give what stands in the braces of a text that name the path; None where nothing does."""
    return next((braced for braced in (path, f"{_COLUMN}{path}") if f"{{{braced}}}" in text), None)


def check_closed(text: str, what: str, names: Container[str]) -> None:
    """Raise `PromptError` for a brace before one of the names that is never closed; `what` is the text's name."""
    for path, place in unclosed(text):
        if path == _COLUMN or path in names or path.partition(".")[0] in names:
            raise PromptError(
                f"{what} has {'{' + path!r} at {place}, a brace that is not closed; write {_closed(path)} for the "
                "column, or a blank after a brace that is meant as text"
            )


def unclosed(text: str) -> Iterator[tuple[str, str]]:
    """Give the paths before which a brace is never closed, or `column:`, and where each stands.

    What stands in double quotes is looked at by itself: a brace there closes none that opened outside, and opens none
    for the outside to close.
    """
    rest = _PLACEHOLDER.sub(_blank, text)
    quoted = [match.span() for match in _QUOTED.finditer(rest)]
    opened = _left_open(_QUOTED.sub(_blank, rest), 0)
    for start, stop in quoted:
        opened += _left_open(rest[start:stop], start)
    for position in sorted(opened):
        begun = _BEGUN.match(text, position)
        if begun is not None:
            yield begun[1], _place(text, position)


def _closed(path: str) -> str:
    return "{column:name}" if path == _COLUMN else f"{{{path}}}"


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _left_open(text: str, offset: int) -> list[int]:
    """Give where the braces stand that nothing closes."""
    opened: list[int] = []
    for brace in re.finditer(r"[{}]", text):
        if brace[0] == "{":
            opened.append(brace.start() + offset)
        elif opened:
            opened.pop()
    return opened


def near_miss(text: str) -> str:
    """Say, to be put behind a message, what in the text looks like a placeholder and is none; else nothing."""
    text = _LITERAL.sub(_blank, text)
    spaced = _SPACED.search(text)
    if spaced is not None:
        return f" ({spaced[0]!r} at {_place(text, spaced.start())} is text; {as_column(spaced[1])})"
    nearly = _NEARLY.search(text)
    if nearly is not None:
        return f" ({nearly[0]!r} at {_place(text, nearly.start())} is text; write {{{nearly[1]}}})"
    path, place = next(unclosed(text), ("", ""))
    if path:
        return f" ({'{' + path!r} at {place} is not closed; write {_closed(path)})"
    for name, place in unnamed(text):
        if _PLACEHOLDER.fullmatch(f"{{{_COLUMN}{name}}}"):
            return f" ({'{' + name + '}'!r} at {place} is text; {as_column(name)})"
    return ""


def unnamed(text: str) -> Iterator[tuple[str, str]]:
    """Give what stands in braces and is no placeholder, and where each stands."""
    for braced in _BRACED.finditer(text):
        if _PLACEHOLDER.match(text, braced.start()) is None:
            yield braced[1], _place(text, braced.start())


def _place(text: str, position: int) -> str:
    before = text[:position]
    character = position - before.rfind("\n")
    return f"line {before.count(chr(10)) + 1}, character {character}"
