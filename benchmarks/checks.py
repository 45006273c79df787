"""Precision and recall of the checks, by check and language, over made texts.

    python benchmarks/checks.py

Honest answers are thirty translations into each language, some of which look like what a check looks for. To each check
belong fifteen to thirty faulty answers in each language: refusals and introductions as models write them, and
translations into which the fault was put. Precision counts every honest answer that a check speaks about; recall every
faulty one that it does not.
"""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.prompts.checks.insufficient import insufficient_notes
from corpusmill.prompts.checks.refusal import is_refusal
from corpusmill.prompts.checks.translation import translation_notes
from corpusmill.prompts.glossary import Glossary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

DATA = Path(__file__).parents[1] / "tests" / "prompts" / "data"
LANGUAGES = ("en", "lv", "de", "fr", "es", "pl", "ru", "et")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An answer to a text. `faulty` names the check that has to speak, None for an honest answer."""

    language: str
    source: str
    given: str
    answer: str
    terms: tuple[tuple[str, str], ...] = ()
    faulty: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What a check got right in a language: hits and misses over the faulty, false alarms over the honest answers."""

    check: str
    language: str
    hits: int
    misses: int
    false_alarms: int
    honest: int

    @property
    def precision(self) -> float:
        """The share of true ones among what the check reported; 1 where it reported nothing."""
        reported = self.hits + self.false_alarms
        return self.hits / reported if reported else 1.0

    @property
    def recall(self) -> float:
        """The share of the faulty answers that the check reported."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else 1.0


def texts() -> list[dict[str, Any]]:
    """Return the parallel texts: by language code, and `term` by language code."""
    return list(tomllib.loads((DATA / "texts.toml").read_text(encoding="utf-8"))["text"])


def phrases() -> dict[str, dict[str, list[str]]]:
    """Return what models say besides translations, by language code."""
    return tomllib.loads((DATA / "phrases.toml").read_text(encoding="utf-8"))


def honest_cases() -> list[Case]:
    """Return thirty honest translations into each language, from English, and from German into English."""
    return [
        Case(
            language=language,
            source=source,
            given=text[source],
            answer=text[language],
            terms=tuple(Glossary([(text["term"][source], text["term"][language])]).occurring(text[source])),
        )
        for language in LANGUAGES
        for source in (_source(language),)
        for text in texts()
    ]


def faulty_cases() -> list[Case]:
    """Return the faulty answers of every check and language."""
    cases: list[Case] = []
    said, honest = phrases(), honest_cases()
    for language in LANGUAGES:
        own = [case for case in honest if case.language == language]
        words = said[language]
        cases += _each(own, "refused", words["refusals"], lambda _, refusal: refusal)
        cases += _each(own[15:], "refused", said["en"]["refusals"], lambda _, refusal: refusal)
        cases += _each(own, "preamble", words["preambles"], lambda case, phrase: f"{phrase}\n\n{case.answer}")
        cases += _each(
            own[15:], "preamble", words["preambles"], lambda case, phrase: f"{phrase} {case.answer}"
        )
        cases += _each(
            own,
            "explanation_added",
            words["postscripts"] * 5,
            lambda case, phrase: f"{case.answer}\n\n{phrase}",
        )
        cases += [
            _with(case, name, changed)
            for name, change in _CHANGES.items()
            for case in own
            if (changed := change(case))
        ]
        cases += _in_another_language(own)
    return cases


def measure() -> list[Figure]:
    """Return a figure for each check and language."""
    honest = [(case, _codes(case)) for case in honest_cases()]
    faulty = [(case, _codes(case)) for case in faulty_cases()]
    checks = list(dict.fromkeys(str(case.faulty) for case, _ in faulty))
    return [
        Figure(
            check=check,
            language=language,
            hits=sum(
                check in codes for case, codes in faulty if (case.faulty, case.language) == (check, language)
            ),
            misses=sum(
                check not in codes
                for case, codes in faulty
                if (case.faulty, case.language) == (check, language)
            ),
            false_alarms=sum(check in codes for case, codes in honest if case.language == language),
            honest=sum(case.language == language for case, _ in honest),
        )
        for check in checks
        for language in LANGUAGES
    ]


def insufficient_figures() -> dict[str, tuple[int, int, int]]:
    """Return by language: informative refusals that are recognised, of how many, and how many pass for refusals."""
    return {
        language: (
            sum(bool(insufficient_notes(answer)) for answer in words["insufficient"]),
            len(words["insufficient"]),
            sum(is_refusal(answer, "How high is the bridge?") for answer in words["insufficient"]),
        )
        for language, words in phrases().items()
    }


def _codes(case: Case) -> set[str]:
    if is_refusal(case.answer, case.given, languages=frozenset((case.source, case.language))):
        return {"refused"}
    notes = translation_notes(
        case.given, case.answer, source=case.source, target=case.language, terms=case.terms
    )
    return {_check(note.split(" ")[0]) for note in notes}


def _check(code: str) -> str:
    # Tags and entities are the same check as placeholders.
    return {
        "placeholder_added": "placeholder",
        "placeholder_missing": "placeholder",
        "tag_missing": "placeholder",
        "entity_missing": "placeholder",
        "entity_added": "placeholder",
        "paragraphs": "lines",
    }.get(code, code)


def _source(language: str) -> str:
    return "de" if language == "en" else "en"


def _with(case: Case, check: str, answer: str) -> Case:
    return Case(
        language=case.language,
        source=case.source,
        given=case.given,
        answer=answer,
        terms=case.terms,
        faulty=check,
    )


def _each(
    cases: Sequence[Case], check: str, phrases: Iterable[str], change: Callable[[Case, str], str]
) -> list[Case]:
    return [_with(case, check, change(case, phrase)) for case, phrase in zip(cases, phrases, strict=False)]


def _in_another_language(own: Sequence[Case]) -> list[Case]:
    """Put the translation into each of the other languages in place of this one, in turn."""
    found: list[Case] = []
    for place, (case, text) in enumerate(zip(own, texts(), strict=True)):
        others = [one for one in LANGUAGES if one not in {case.language, case.source}]
        found.append(_with(case, "language", text[others[place % len(others)]]))
    return found


def _quoted(case: Case) -> str | None:
    left, right = ("“”", '""', "„“", "«»", "''")[len(case.answer) % 5]
    if case.given[:1] == '"' or case.given[:1] in "„–—":
        return None
    return f"{left}{case.answer}{right}"


def _marked(case: Case) -> str | None:
    first, _, rest = case.answer.partition(" ")
    kinds = (
        f"**{first}** {rest}",
        f"## {case.answer}",
        f"<p>{first} {rest}</p>",
        f"*{first.strip(',.:;')}* {rest}",
        f"`{first}` {rest}",
    )
    kind = kinds[len(case.answer) % len(kinds)]
    return None if "<" in case.given or "{" in first or "\\" in first else kind


def _special(case: Case) -> str:
    token = ("<|im_end|>", "</s>", "<eos>", "[/INST]", "<|eot_id|>", "<end_of_turn>")[len(case.answer) % 6]
    return f"{case.answer}{token}"


def _line_lost(case: Case) -> str | None:
    return re.sub(r"\n+", " ", case.answer, count=1) if "\n" in case.answer else _split(case.answer)


def _split(text: str) -> str:
    middle = text.index(" ", len(text) // 2)
    return f"{text[:middle]}\n{text[middle + 1 :]}"


def _placeholder_lost(case: Case) -> str | None:
    found = re.search(
        r"%\(\w+\)\w|%[sd]|\$\{\w+\}|\{\{\w+\}\}|\{[\w.]+\}|\\N|</?[a-z]+[^<>]*>|&amp;", case.answer
    )
    return None if found is None else case.answer.replace(found[0], "", 1)


def _placeholder_changed(case: Case) -> str | None:
    found = re.search(r"(%\(|\{)(\w+)", case.answer)
    return None if found is None else case.answer.replace(found[2], f"{found[2]}a", 1)


def _number_changed(case: Case) -> str | None:
    found = re.findall(r"(?<![\w{%&.,])(?<!\d[ \u00a0])\d\d+(?![\w}])", case.answer)
    if not found or "{0}" in case.answer:
        return None
    return re.sub(rf"(?<!\d){found[0]}(?!\d)", str(int(found[0]) + 7), case.answer)


def _number_lost(case: Case) -> str | None:
    found = re.findall(
        r"(?<![\w{%&.,\u00a0 ])\d{2,}(?![\w}.,\u00a0 ])|(?<= )\d{2,}(?=[.;] |\.$)", case.answer
    )
    return re.sub(rf"(?<!\d){found[-1]}(?!\d)", "", case.answer) if found else None


def _copied(case: Case) -> str:
    return case.given


def _copied_in_part(case: Case) -> str | None:
    lines, kept = case.answer.split("\n"), case.given.split("\n")
    places = [place for place, line in enumerate(kept) if len(line.split()) > 5 and place < len(lines)]
    if len(kept) < 2 or not places:
        return None
    lines[places[-1]] = kept[places[-1]]
    return "\n".join(lines)


_OTHER_WORDS: Mapping[str, str] = {
    "en": "thing",
    "lv": "priekšmets",
    "de": "Gegenstand",
    "fr": "objet",
    "es": "objeto",
    "pl": "przedmiot",
    "ru": "предмет",
    "et": "ese",
}


def _term_replaced(case: Case) -> str | None:
    if not case.terms:
        return None
    stem = max(3, len(case.terms[0][1]) // 2)
    words = [word for word in re.findall(r"\w+", case.terms[0][1]) if len(word) > 2]
    answer = case.answer
    for word in words:
        answer = re.sub(
            rf"(?i)\b{re.escape(word[: max(2, min(stem, (len(word) + 1) // 2))])}\w*",
            _OTHER_WORDS[case.language],
            answer,
        )
    return answer if answer != case.answer else None


def _looped(case: Case) -> str:
    return case.answer + (" " + case.answer[-30:].strip()) * 20


_CHANGES: Mapping[str, Callable[[Case], str | None]] = {
    "quotes_added": _quoted,
    "markup_added": _marked,
    "special_tokens": _special,
    "lines": _line_lost,
    "placeholder": _placeholder_lost,
    "number_missing": _number_changed,
    "untranslated": _copied,
    "glossary_missing": _term_replaced,
    "repetition": _looped,
}


def main(arguments: Sequence[str]) -> None:
    """Print the table; with `--wrong` also every answer that a check got wrong."""
    figures = measure()
    print(f"{'check':18}" + "".join(f"{language:>12}" for language in LANGUAGES) + f"{'all':>14}{'cases':>8}")
    for check in dict.fromkeys(figure.check for figure in figures):
        own = [figure for figure in figures if figure.check == check]
        hits, misses = sum(figure.hits for figure in own), sum(figure.misses for figure in own)
        alarms = sum(figure.false_alarms for figure in own)
        cells = "".join(f"{figure.precision:>6.2f}/{figure.recall:.2f} " for figure in own)
        whole = f"{hits / ((hits + alarms) or 1):>8.3f}/{hits / ((hits + misses) or 1):.3f}"
        print(f"{check:18}{cells}{whole}{hits + misses:>6}+{own[0].honest * len(LANGUAGES)}")
    print("\ninformative refusals recognised / of / taken for refusals:")
    print(
        "  ".join(
            f"{language} {seen}/{of}/{wrong}"
            for language, (seen, of, wrong) in insufficient_figures().items()
        )
    )
    if "--wrong" in arguments:
        for case in honest_cases():
            if codes := _codes(case):
                print(f"\nFALSE {case.language} {sorted(codes)}\n  {case.given!r}\n  {case.answer!r}")
        for case in faulty_cases():
            if case.faulty not in _codes(case):
                print(f"\nMISSED {case.language} {case.faulty}\n  {case.given!r}\n  {case.answer!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
