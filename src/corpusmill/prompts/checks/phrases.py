"""The phrases that give a refusal, an introduction or a remark away, by language. They are data: `phrases.toml`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrases:
    """The patterns of one language, over folded text. What each means stands in the data."""

    language: str
    openers: frozenset[str]
    unable: re.Pattern[str]
    task: re.Pattern[str]
    machine: re.Pattern[str]
    preamble: re.Pattern[str]
    postscript: re.Pattern[str]
    insufficient: re.Pattern[str]


@cache
def all_phrases() -> tuple[Phrases, ...]:
    """Return the phrases of all languages that are known, English first."""
    text = (resources.files(__package__) / "phrases.toml").read_text(encoding="utf-8")
    return tuple(
        Phrases(
            language=language,
            openers=frozenset(table["openers"]),
            unable=re.compile(table["unable"]),
            task=re.compile(table["task"]),
            machine=re.compile(table["machine"]),
            preamble=re.compile(
                rf"[*_#\W]{{0,4}}(?:{table['preamble']})[*_]{{0,2}}(?:[:：][*_]{{0,2}}|(?=\n))"
            ),
            postscript=re.compile(rf"[*_#\W]{{0,4}}{table['postscript']}"),
            insufficient=re.compile(table["insufficient"]),
        )
        for language, table in tomllib.loads(text).items()
    )


@cache
def by_opener() -> dict[str, tuple[Phrases, ...]]:
    """Return which languages a first word may begin a refusal in."""
    found: dict[str, list[Phrases]] = {}
    for phrases in all_phrases():
        for word in phrases.openers:
            found.setdefault(word, []).append(phrases)
    return {word: tuple(those) for word, those in found.items()}
