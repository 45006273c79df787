"""Templates: `{column.path}` is the row's text, `{literal:name}` is the text `{name}`, and nothing else means anything.

A placeholder is a brace, a dotted path of names, a brace. Every other brace is literal; `unclosed` finds those that may
be slips, which whoever knows the names that can be filled in refuses. What is filled in is never looked at again, so a
row whose text contains `{other}` keeps it.

Doubled braces are no escape: `{{column}}` is the row's text in braces, as LaTeX and BibTeX want it, and orchestrators
fill in `{{name}}` before a template is read. A sign before the name would be part of some language that a prompt shows
code of.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from corpusmill.errors import PromptError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

# A name may hold letters of any script, digits, underscores and hyphens; blanks around a path are not allowed, so
# that JSON and code in a template stay what they are.
_PATH = r"[^\W\d][\w-]*(?:\.[\w-]+)*"
_PLACEHOLDER = re.compile(rf"\{{({_PATH})\}}")
_LITERAL = re.compile(r"\{literal:([\w.-]+(?: +[\w.-]+)*)\}")
_FILLED = re.compile(rf"{_PLACEHOLDER.pattern}|{_LITERAL.pattern}")
_BEGUN = re.compile(rf"\{{({_PATH})")
_WORDS = re.compile(r"\{([^\W\d][\w-]*(?: +[\w.-]+)+)\}")
_BRACED = re.compile(r"\{([^{}]+)\}")
_QUOTED = re.compile(r'"[^"\n]*"')
_NEARLY = re.compile(rf"\{{\s*({_PATH})[^{{}}]*\}}")

NAMES = (
    "templates name columns by letters, digits, _, - and dots, beginning with a letter or _; rename the column "
    "if it is one, or name it as it is where a prompt takes a column (translate, summarise, answer, extract)"
)
"""What is said of a column whose name a template cannot hold."""


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
        path, name = match.groups()
        if path is None:
            literals[-1] += f"{{{name}}}"
        else:
            paths.append(path)
            literals.append("")
        end = match.end()
    literals[-1] += text[end:]
    return Template(tuple(literals), tuple(paths))


def as_literal(name: str) -> str:
    """Say, to be put behind a message, how a name in braces is written that is text; nothing where it cannot be."""
    written = f"{{literal:{name}}}"
    return f"; write {written} for the text {{{name}}}" if _LITERAL.fullmatch(written) else ""


def check_closed(text: str, what: str, names: Container[str]) -> None:
    """Raise `PromptError` for a brace before one of the names that is never closed; `what` is the text's name."""
    for path, place in unclosed(text):
        if path in names or path.partition(".")[0] in names:
            raise PromptError(
                f"{what} has {'{' + path!r} at {place}, a brace that is not closed; write {{{path}}} for the column, "
                "or a blank after a brace that is meant as text"
            )


def unclosed(text: str) -> Iterator[tuple[str, str]]:
    """Give the paths before which a brace is never closed, and where each stands.

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
    nearly = _NEARLY.search(text)
    if nearly is None:
        path, place = next(unclosed(text), ("", ""))
        return f" ({'{' + path!r} at {place} is not closed; write {{{path}}})" if path else ""
    words = _WORDS.match(text, nearly.start())
    if words is not None:
        return f" ({words[0]!r} at {_place(text, words.start())} is text: {NAMES})"
    return f" ({nearly[0]!r} at {_place(text, nearly.start())} is text; write {{{nearly[1]}}})"


def unnamed(text: str) -> Iterator[tuple[str, str]]:
    """Give what stands in braces and is no placeholder, and where each stands."""
    for braced in _BRACED.finditer(text):
        if _PLACEHOLDER.match(text, braced.start()) is None:
            yield braced[1], _place(text, braced.start())


def _place(text: str, position: int) -> str:
    before = text[:position]
    character = position - before.rfind("\n")
    return f"line {before.count(chr(10)) + 1}, character {character}"
