"""Languages by code or by English name, and which of them no detector tells apart reliably.

Names and aliases come from CLDR, by way of Babel. `cnr` (Montenegrin, in ISO 639-2 since 2017) is missing
there and is added; it is one of the 34 languages of TildeOpen.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from corpusmill.errors import PromptError

_ADDED: Final = {"cnr": "Montenegrin"}
_ALIASES: Final = {"sr-ME": "cnr", "greek": "el", "norwegian bokmal": "nb", "farsi": "fa", "chinese": "zh"}
_TAG = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")

FAMILIES: Final = (
    frozenset({"bs", "hr", "sr", "sh", "cnr"}),
    frozenset({"no", "nb", "nn", "da"}),
    frozenset({"lv", "ltg"}),
    frozenset({"id", "ms"}),
    frozenset({"cs", "sk"}),
    frozenset({"es", "gl", "ast", "an", "ext"}),
    frozenset({"pt", "gl"}),
    frozenset({"mk", "bg"}),
    frozenset({"zh", "yue", "wuu"}),
    frozenset({"nl", "af"}),
    frozenset({"de", "lb"}),
    frozenset({"ga", "gd"}),
)
"""Languages that are not failed against one another."""


@dataclass(frozen=True, slots=True)
class Language:
    """A language: its BCP 47 tag (`pt-BR`) and its English name (`Brazilian Portuguese`)."""

    tag: str
    name: str

    @property
    def code(self) -> str:
        """The language alone, without script and region: `pt`."""
        return self.tag.partition("-")[0]


def language_of(value: object, *, field: str) -> Language:
    """Return the language that a code or an English name stands for.

    Raises `PromptError` that names the field, the value and the nearest known names.
    """
    if not isinstance(value, str):
        hint = "; in YAML write no as 'no'" if value is False else ""
        raise PromptError(
            f"{field} is {value!r}; it must be a language code or name, such as lv or Latvian{hint}"
        )
    text = value.strip()
    found = _by_tag(text) if _TAG.fullmatch(text) else None
    if found is None:
        tag = _tags_by_name().get(" ".join(text.casefold().split()))
        found = _by_tag(tag) if tag else None
    if found is not None:
        return found
    names = _names()
    near = difflib.get_close_matches(text.casefold(), _tags_by_name(), n=3, cutoff=0.6)
    nearest = ", ".join(names[_tags_by_name()[name]] for name in near)
    hint = f"did you mean {nearest}?" if near else "write a code or an English name, such as lv or Latvian"
    raise PromptError(f"{field} is {value!r}, which is no language that is known; {hint}")


@cache
def alike(one: str, other: str) -> bool:
    """Whether two language codes are the same language or of one family that detectors confuse."""
    return one == other or any(one in family and other in family for family in FAMILIES)


@cache
def _names() -> dict[str, str]:
    from babel.core import Locale

    known = {tag.replace("_", "-"): name for tag, name in Locale("en").languages.items()}
    return {**known, **_ADDED}


@cache
def _tags_by_name() -> dict[str, str]:
    by_name: dict[str, str] = {}
    # Short tags first, so that a name which several tags share means the plain language.
    for tag, name in sorted(_names().items(), key=lambda item: (len(item[0]), item[0])):
        by_name.setdefault(name.casefold(), tag)
    return {**by_name, **{name: tag for name, tag in _ALIASES.items() if name.islower()}}


def _by_tag(text: str) -> Language | None:
    from babel.core import get_global

    parts = text.replace("_", "-").split("-")
    code = parts[0].lower()
    names = _names()
    if code not in names:
        alias = str(get_global("language_aliases").get(code, ""))
        code = alias.replace("_", "-") if alias.replace("_", "-") in names else ""
    if not code:
        return None
    tag = "-".join([code, *(_subtag(part) for part in parts[1:])])
    tag = _ALIASES.get(tag, tag)
    if tag in names:
        return Language(tag, names[tag])
    rest = tag.removeprefix(code + "-").replace("-", ", ")
    return Language(tag, f"{names[code]} ({_spelled(rest)})")


def _subtag(part: str) -> str:
    if len(part) == 4 and part.isalpha():  # noqa: PLR2004 - a script has four letters
        return part.title()
    return part.upper() if len(part) <= 3 else part.lower()  # noqa: PLR2004 - a region has two letters or three digits


def _spelled(subtags: str) -> str:
    from babel.core import Locale

    english = Locale("en")
    parts = subtags.split(", ")
    return ", ".join(english.scripts.get(part) or english.territories.get(part) or part for part in parts)
