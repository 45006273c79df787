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
from corpusmill.prompts.checks.summary import summary_notes
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


def honest_summaries() -> list[Case]:
    """Return thirty summaries in each language: the first of two texts in that language."""
    return [
        Case(language=language, source=language, given=f"{own[place]}\n\n{own[place - 1]}", answer=own[place])
        for language in LANGUAGES
        for own in ([text[language] for text in texts()],)
        for place in range(len(own))
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
            _with(case, name, answer)
            for name, change in _CHANGES.items()
            for case in own
            for answer in change(case)
            if answer != case.answer
        ]
        cases += _in_another_language(own)
        cases += _summaries_in_another_language(language)
    return cases


def measure() -> list[Figure]:
    """Return a figure for each check and language."""
    honest = [(case, _codes(case)) for case in (*honest_cases(), *honest_summaries())]
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
            honest=sum(
                case.language == language and (case.source == language) == check.startswith("summary")
                for case, _ in honest
            ),
        )
        for check in checks
        for language in LANGUAGES
    ]


def refused_lookalikes() -> list[str]:
    """Return the honest answers to texts that decline something themselves which are taken for refusals."""
    pairs = tomllib.loads((DATA / "lookalikes.toml").read_text(encoding="utf-8"))["text"]
    return [pair["answer"] for pair in pairs if is_refusal(pair["answer"], pair["given"])]


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
    if case.source == case.language:
        notes = summary_notes(case.given, case.answer, language=None)
        return {f"summary_{note.split(' ')[0]}" for note in notes}
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


def _summaries_in_another_language(language: str) -> list[Case]:
    """Put the beginning of a text of two, in each of the other languages in turn, in place of its summary."""
    own = [text[language] for text in texts()]
    return [
        Case(
            language=language,
            source=language,
            given=f"{own[place]}\n\n{own[place - 1]}",
            answer=text[[one for one in LANGUAGES if one != language][place % (len(LANGUAGES) - 1)]],
            faulty="summary_language",
        )
        for place, text in enumerate(texts())
    ]


def _quoted(case: Case) -> list[str]:
    left, right = ("“”", '""', "„“", "«»", "''")[len(case.answer) % 5]
    spoken = case.given[:1] in '"„–—'
    return [] if spoken else [f"{left}{case.answer}{right}"]


def _marked(case: Case) -> list[str]:
    first, _, rest = case.answer.partition(" ")
    kinds = (
        f"**{first}** {rest}",
        f"## {case.answer}",
        f"<p>{first} {rest}</p>",
        f"*{first.strip(',.:;')}* {rest}",
        f"`{first}` {rest}",
    )
    return [] if "<" in case.given or "{" in first else [kinds[len(case.answer) % len(kinds)]]


def _special(case: Case) -> list[str]:
    tokens = ("<|im_end|>", "</s>", "<eos>", "[/INST]", "<|eot_id|>", "<end_of_turn>")
    return [f"{case.answer}{tokens[len(case.answer) % len(tokens)]}"]


def _line_lost_or_added(case: Case) -> list[str]:
    if "\n" in case.answer:
        return [re.sub(r"\n+", " ", case.answer, count=1)]
    middle = case.answer.index(" ", len(case.answer) // 2)
    return [f"{case.answer[:middle]}\n{case.answer[middle + 1 :]}"]


_PLACEHOLDERS = re.compile(r"%\(\w+\)\w|%[sd]|\$\{\w+\}|\{\{\w+\}\}|\{\\?[\w.]+\}|\\N|</?[a-z]+[^<>]*>|&amp;")


def _placeholder_lost_or_changed(case: Case) -> list[str]:
    found = dict.fromkeys(_PLACEHOLDERS.findall(case.answer))
    lost = [case.answer.replace(placeholder, "", 1) for placeholder in found]
    names = dict.fromkeys(re.findall(r"(?:%\(|\{)([a-z_]{3,})", case.answer))
    return lost + [re.sub(rf"(?<=[({{]){name}\b", f"{name}a", case.answer) for name in names]


def _number_changed(case: Case) -> list[str]:
    if "{" in case.answer or "://" in case.answer:
        return []
    found = re.findall(r"(?<![\w.,])(?<!\d[ \u00a0])\d\d+(?![\w])", case.answer)
    return [
        re.sub(rf"(?<!\d){number}(?!\d)", str(int(number) + 7), case.answer)
        for number in dict.fromkeys(found)
    ]


def _copied(case: Case) -> list[str]:
    lines, kept = case.answer.split("\n"), case.given.split("\n")
    places = [place for place, line in enumerate(kept) if len(line.split()) > 6 and place < len(lines)]
    if len(kept) < 2 or not places:
        return [case.given]
    lines[places[-1]] = kept[places[-1]]
    return [case.given, "\n".join(lines)]


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


def _term_replaced(case: Case) -> list[str]:
    answer = case.answer
    for _, target in case.terms:
        for word in re.findall(r"\w{3,}", target):
            stem = re.escape(word[: max(2, (len(word) + 1) // 2)])
            answer = re.sub(rf"(?i)\b{stem}\w*", _OTHER_WORDS[case.language], answer)
    return [answer]


def _looped(case: Case) -> list[str]:
    return [case.answer + (" " + case.answer[-30:].strip()) * 20]


_CHANGES: Mapping[str, Callable[[Case], list[str]]] = {
    "quotes_added": _quoted,
    "markup_added": _marked,
    "special_tokens": _special,
    "lines": _line_lost_or_added,
    "placeholder": _placeholder_lost_or_changed,
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
    print(f"\nhonest answers to texts that decline, taken for refusals: {len(refused_lookalikes())}")
    if "--wrong" in arguments:
        for case in (*honest_cases(), *honest_summaries()):
            if codes := _codes(case):
                print(f"\nFALSE {case.language} {sorted(codes)}\n  {case.given!r}\n  {case.answer!r}")
        for case in faulty_cases():
            if case.faulty not in _codes(case):
                print(f"\nMISSED {case.language} {case.faulty}\n  {case.given!r}\n  {case.answer!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
