from __future__ import annotations

import pytest

from corpusmill.errors import PromptError
from corpusmill.prompts.languages import alike, language_of

TILDE = [
    "sq",
    "bs",
    "bg",
    "hr",
    "cs",
    "da",
    "nl",
    "en",
    "et",
    "fi",
    "fr",
    "de",
    "hu",
    "is",
    "ga",
    "it",
    "ltg",
    "lv",
    "lt",
    "mk",
    "mt",
    "cnr",
    "no",
    "pl",
    "pt",
    "ro",
    "ru",
    "sr",
    "sk",
    "sl",
    "es",
    "sv",
    "tr",
    "uk",
]


@pytest.mark.parametrize(
    ("value", "tag", "name"),
    [
        ("lv", "lv", "Latvian"),
        ("LV", "lv", "Latvian"),
        ("Latvian", "lv", "Latvian"),
        (" latvian ", "lv", "Latvian"),
        ("lav", "lv", "Latvian"),
        ("pt-br", "pt-BR", "Brazilian Portuguese"),
        ("pt_BR", "pt-BR", "Brazilian Portuguese"),
        ("zh-hant", "zh-Hant", "Traditional Chinese"),
        ("sr-latn", "sr-Latn", "Serbian (Latin)"),
        ("no", "no", "Norwegian"),
        ("Montenegrin", "cnr", "Montenegrin"),
        ("sr-ME", "cnr", "Montenegrin"),
        ("latgalian", "ltg", "Latgalian"),
    ],
)
def test_codes_and_names_are_both_understood(value: str, tag: str, name: str) -> None:
    """A tag in any case, a three-letter code, a name."""
    language = language_of(value, field="to")
    assert (language.tag, language.name) == (tag, name)


def test_every_language_of_tildeopen_is_known() -> None:
    """Thirty-four languages, each with a name of its own."""
    assert len({language_of(code, field="to").name for code in TILDE}) == 34


@pytest.mark.parametrize("value", ["", "Klingonish", "x1", "xx", None, 5, "lv lv"])
def test_what_is_no_language_is_refused(value: object) -> None:
    """The field and the value are named."""
    with pytest.raises(PromptError, match=r"translate\.to"):
        language_of(value, field="translate.to")


def test_languages_of_one_family_are_alike() -> None:
    """Families are symmetrical, and no language of one is alike to all."""
    assert alike("hr", "sr")
    assert alike("sr", "hr")
    assert not alike("lv", "lt")
    assert not alike("de", "en")
