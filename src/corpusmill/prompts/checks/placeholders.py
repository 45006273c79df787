r"""Placeholders, entities and tags: what a program will look for in the translation has to be there.

Families: `%s` and its kin, `%1$s`, `%(name)s`, `%{name}`, `${name}`, `{name}`, `{0:>5}`, `{{name}}`, ICU arguments
with their plural and select branches, `{\an8}` and `\N` of subtitles, escapes such as `\n`, entities, tags. They
are compared as counts, so an order of their own is no finding; `%1$s` counts as `%s`. Of ICU branches the plural
categories are the target language's own matter; what stands in some branch has to stand in some branch, what stands
in each in each.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import Final

from corpusmill.prompts.checks.notes import difference, noted

_ANY: Final = re.compile(r"[%{\\&<$]")
_PLACEHOLDER: Final = re.compile(
    r"%\([^()\n]{1,60}\)[-#0+]*\d*(?:\.\d+)?[a-zA-Z]"
    r"|(?<![\d%])%(?:\d+\$)?[-#0+]*\d*(?:\.\d+)?(?:hh?|ll?|[Lqjzt])?[diouxXeEfFgGcrsa@](?![a-zA-Z])"
    r"|[%$#]\{[^{}\n]{1,60}\}"
    r"|\{\\[^{}\n]{1,60}\}"
    r"|\{\{[^{}\n]{1,60}\}\}"
    r"|\{(?:[A-Za-z_][\w.\[\]-]*|\d+)?(?:![rsa])?(?::[^{}\s]*)?\}"
    r"|\\[Nnhrt]"
)
_ICU: Final = re.compile(r"\{\s*([\w.]+)\s*,\s*(plural|select|selectordinal|number|date|time)\s*([,}])")
_BRANCH: Final = re.compile(r"\s*(?:offset:\d+\s*)?(=\d+|[\w-]+)\s*\{")
_ENTITY: Final = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_TAG: Final = re.compile(r"<(/?)([A-Za-z][\w:.-]*)(?:\s[^<>]*)?(/?)>")
_POSITION: Final = re.compile(r"%\d+\$")
# A translation may need blanks that do not break and its own quotation marks.
_TYPOGRAPHY: Final = frozenset(
    {"&nbsp;", "&shy;", "&quot;", "&laquo;", "&raquo;", "&ldquo;", "&rdquo;", "&bdquo;"}
)


def placeholder_notes(given: str, answer: str) -> tuple[str, ...]:
    """Return what was lost of placeholders, entities and tags, and which placeholders and entities were added.

    Codes: `placeholder_missing`, `placeholder_added`, `entity_missing`, `entity_added`, `tag_missing`, `tag_added`.
    """
    if not _ANY.search(given) and not _ANY.search(answer):
        return ()
    before, after = (_found(unicodedata.normalize("NFC", text)) for text in (given, answer))
    notes = difference("placeholder", before.placeholders, after.placeholders)
    if before.nested != after.nested or before.always != after.always:
        lost = (before.nested - after.nested) | (before.always - after.always)
        notes += noted("placeholder_missing", sorted(lost))
        notes += noted("placeholder_added", sorted(after.nested - before.nested))
    notes += difference("entity", before.entities, after.entities)
    return notes + difference("tag", before.tags, after.tags)


class _Found:
    __slots__ = ("always", "entities", "nested", "placeholders", "tags")

    def __init__(self) -> None:
        # What stands in some branch of an ICU argument, and what stands in each of its branches.
        self.always: set[str] = set()
        self.placeholders: Counter[str] = Counter()
        self.entities: Counter[str] = Counter()
        self.tags: Counter[str] = Counter()
        self.nested: set[str] = set()


def _found(text: str) -> _Found:
    found = _Found()
    if "{" in text:
        text = _take_icu(text, found)
    for match in _PLACEHOLDER.finditer(text):
        found.placeholders[_POSITION.sub("%", match[0])] += 1
    if "&" in text:
        found.entities.update(name for name in _ENTITY.findall(text) if name not in _TYPOGRAPHY)
    if "<" in text:
        found.tags.update(f"<{closing}{name}{own}>" for closing, name, own in _TAG.findall(text))
    return found


def _take_icu(text: str, found: _Found) -> str:
    """Note the ICU arguments of a text, and return what stands outside of them."""
    outside: list[str] = []
    reached = 0
    while match := _ICU.search(text, reached):
        end = _closing(text, match.start())
        if end is None:
            break
        outside.append(text[reached : match.start()])
        name, kind, after = match.groups()
        found.placeholders[f"{{{name}, {kind}}}"] += 1
        if after == ",":
            _take_branches(text[match.end() : end], kind, found)
        reached = end + 1
    outside.append(text[reached:])
    return "".join(outside)


def _take_branches(body: str, kind: str, found: _Found) -> None:
    position = 0
    branches: list[set[str]] = []
    while match := _BRANCH.match(body, position):
        end = _closing(body, match.end() - 1)
        if end is None:
            return
        inner = _Found()
        rest = _take_icu(body[match.end() : end], inner)
        branches.append(
            inner.nested | set(inner.placeholders) | {one[0] for one in _PLACEHOLDER.finditer(rest)}
        )
        if kind == "select":
            found.nested.add(f"{match[1]} {{…}}")
        position = end + 1
    if branches:
        found.nested.update(*branches)
        found.always |= set.intersection(*branches)


def _closing(text: str, opening: int) -> int | None:
    depth = 0
    for place in range(opening, len(text)):
        if text[place] == "{":
            depth += 1
        elif text[place] == "}":
            depth -= 1
            if depth == 0:
                return place
    return None
