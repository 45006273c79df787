"""Lines and paragraphs: a translation has as many as the text."""

from __future__ import annotations

import re
from typing import Final

_BLANK_LINES: Final = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")


def structure_notes(given: str, answer: str) -> tuple[str, ...]:
    """Return `paragraphs 2→1` and `lines 4→3` where their numbers differ.

    Blank lines, and blanks round the whole, do not count.
    Lines end at line feeds and nowhere else, with or without a carriage return before them.
    """
    if "\n" not in given and "\n" not in answer:
        return ()
    before, after = given.replace("\r\n", "\n").strip(), answer.replace("\r\n", "\n").strip()
    counted = (
        ("paragraphs", len(_BLANK_LINES.split(before)), len(_BLANK_LINES.split(after))),
        (
            "lines",
            len(_BLANK_LINES.sub("\n", before).split("\n")),
            len(_BLANK_LINES.sub("\n", after).split("\n")),
        ),
    )
    return tuple(f"{what} {was}→{now}" for what, was, now in counted if was != now)
