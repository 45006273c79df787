"""HTML, made so that text cannot become markup: what is not `Markup` is escaped wherever it is put.

Text of a corpus or a model may hold anything. Besides `<`, `>`, `&` and quotes, what it may hold to mislead a reader
is made visible: control characters, and the characters that turn the direction of the text around them.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 4_000
"""Characters of one text that a page shows."""

_VOID = frozenset({"br", "meta", "line", "path", "polyline", "rect", "circle"})

# C0 but for tab and line feed, DEL and C1; embeddings, overrides and isolates; the invisible tag characters.
_MISLEADING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


class Markup(str):
    """HTML that may go into a page as it is. Made by the functions here, never from a text of the corpus."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child] | None"
"""A text, which is escaped; a `Markup`, which is not; several of them; or nothing."""


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """Give an element. A trailing underscore of an attribute's name is dropped, others become hyphens."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_sendable(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>" if name in {"br", "meta"} else f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{joined(children)}</{name}>")


def joined(children: Iterable[Child]) -> Markup:
    """Put pieces after one another, each escaped unless it is markup."""
    pieces: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            pieces.append(child)
        elif isinstance(child, str):
            pieces.append(text(child))
        else:
            pieces.append(joined(child))
    return Markup("".join(pieces))


def text(value: str) -> Markup:
    """Escape a text, show what would mislead, and cut it after `MOST` characters."""
    rest = len(value) - MOST
    shown = _sendable(value[:MOST].replace("\r\n", "\n"))
    escaped = _MISLEADING.sub(_named, html.escape(shown))
    if rest > 0:
        escaped += f'<span class="more">… {rest:,} more characters</span>'
    return Markup(escaped)


def _named(match: re.Match[str]) -> str:
    return f'<span class="code">U+{ord(match[0]):04X}</span>'


def _sendable(value: str) -> str:
    """Replace lone surrogates, which no file can hold."""
    return value.encode("utf-8", "replace").decode() if not value.isascii() else value
