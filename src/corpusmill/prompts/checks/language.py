"""Which language a text is in: a quick vote of small words, and a detector where the vote does not decide.

Nothing is said about a short text (fewer than 40 letters), nor by one language against another that detectors confuse
with it (see `languages.FAMILIES`), nor about a language that the detector does not know.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from corpusmill.prompts.checks.aside import without_asides
from corpusmill.prompts.languages import alike

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier  # type: ignore[import-untyped]  # no types

LEAST_LETTERS: Final = 40
_SAMPLE: Final = 160
_LEAD: Final = 2
_CERTAIN: Final = 0.9
_SAME: Final = 0.05
_TRACE: Final = 0.001

_CODE: Final = re.compile(r"`[^`]*`|[\d_]+")
_LETTER: Final = re.compile(r"[^\W\d_]")
# Codes that the detector knows under another one.
_AS: Final = {"nb": "no", "cnr": "sr", "sh": "sr", "zh": "zh"}


def language_notes(answer: str, expected: str) -> tuple[str, ...]:
    """Return `language en expected lv` where an answer, or its end, is in another language than expected."""
    for sample in samples(answer):
        voted = _votes_for(sample)
        if voted is not None and alike(voted, expected):
            continue
        found = detect(sample, unlike=expected)
        if found is not None:
            return (f"language {found} expected {expected}",)
    return ()


def samples(text: str) -> tuple[str, ...]:
    """Return the beginning of a text, and its end where it is long, cut at blanks."""
    text = text.strip()
    if len(text) <= 2 * _SAMPLE:
        return (text[:_SAMPLE],) if len(text) > _SAMPLE else (text,)
    return text[:_SAMPLE].rpartition(" ")[0] or text[:_SAMPLE], text[-_SAMPLE:].partition(" ")[2] or text[
        -_SAMPLE:
    ]


def language_in(text: str) -> str | None:
    """Return the code of the language that a text begins in; None where that is not certain."""
    sample = samples(text)[0]
    return _votes_for(sample) or detect(sample)


def detect(sample: str, *, unlike: str | None = None) -> str | None:
    """Return the language that the detector is certain of, and is not like `unlike`; None otherwise."""
    text = _CODE.sub(" ", without_asides(sample))
    if len(_LETTER.findall(text)) < LEAST_LETTERS:
        return None
    identifier = _identifier()
    expected = None if unlike is None else _AS.get(unlike, unlike)
    if expected is not None and expected not in identifier.labels:
        return None
    best, _ = identifier.classify(text)
    # The usual answer needs no second look.
    if best == "zxx" or (
        expected is not None and unlike is not None and (alike(best, expected) or alike(best, unlike))
    ):
        return None
    shares = dict(identifier.rank(text))
    # Languages that are confused with one another share their certainty.
    if sum(share for code, share in shares.items() if share > _TRACE and alike(code, best)) < _CERTAIN:
        return None
    return None if expected is not None and shares[expected] > _SAME else str(best)


def _votes_for(sample: str) -> str | None:
    """Return the language with most votes, two more than any language that is unlike it; None where there is none.

    A frequent small word of a language is a vote for it, and so is a letter beyond a to z, each counted once.
    """
    votes = _votes(sample.lower())
    if not votes:
        return None
    first, *others = sorted(votes, key=votes.__getitem__, reverse=True)
    most = votes[first]
    if most < _LEAD or any(most - votes[other] < _LEAD and not alike(other, first) for other in others):
        return None
    return first


def _votes(lower: str) -> dict[str, int]:
    words, letters = _signs()
    votes: dict[str, int] = {}
    if not lower.isascii():
        lower = unicodedata.normalize("NFC", lower)
        for letter in letters.keys() & set(lower):
            for code in letters[letter]:
                votes[code] = votes.get(code, 0) + 1
    for word in words.keys() & lower.split():
        for code in words[word]:
            votes[code] = votes.get(code, 0) + 1
    return votes


@cache
def _signs() -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Return which languages a word speaks for, and which a letter."""
    tables = tomllib.loads((resources.files(__package__) / "function_words.toml").read_text(encoding="utf-8"))
    words: dict[str, tuple[str, ...]] = {}
    letters: dict[str, tuple[str, ...]] = {}
    for code, text in tables["words"].items():
        for word in text.split():
            words[word] = (*words.get(word, ()), code)
    for code, text in tables["letters"].items():
        for letter in text:
            letters[letter] = (*letters.get(letter, ()), code)
    return words, letters


@cache
def _identifier() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
