"""Templates: `{column.path}` is replaced by the row's text, and nothing else means anything.

A placeholder is a brace, a dotted path of names, a brace. Every other brace is literal. What is filled in is never
looked at again, so a row whose text contains `{other}` keeps it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# A name may hold letters of any script, digits, underscores and hyphens; blanks around a path are not allowed, so
# that JSON and code in a template stay what they are.
_PLACEHOLDER = re.compile(r"\{([^\W\d][\w-]*(?:\.[\w-]+)*)\}")


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template: `literals[0] + value of paths[0] + literals[1] + …`."""

    text: str
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
    literals: list[str] = []
    paths: list[str] = []
    end = 0
    for match in _PLACEHOLDER.finditer(text):
        literals.append(text[end : match.start()])
        paths.append(match[1])
        end = match.end()
    literals.append(text[end:])
    return Template(text, tuple(literals), tuple(paths))
