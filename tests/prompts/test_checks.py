"""What each check says, and what it leaves alone, by example."""

from __future__ import annotations

import unicodedata

import pytest

from corpusmill.prompts.checks.language import language_in, language_notes
from corpusmill.prompts.checks.markup import markup_notes
from corpusmill.prompts.checks.numbers import number_notes
from corpusmill.prompts.checks.placeholders import placeholder_notes
from corpusmill.prompts.checks.preamble import preamble_notes
from corpusmill.prompts.checks.quotes import quotes_notes
from corpusmill.prompts.checks.refusal import is_refusal
from corpusmill.prompts.checks.repetition import repetition_notes
from corpusmill.prompts.checks.structure import structure_notes
from corpusmill.prompts.checks.terms import term_notes
from corpusmill.prompts.checks.translation import translation_notes
from corpusmill.prompts.checks.wrapping import unwrap, without_reasoning


@pytest.mark.parametrize(
    ("given", "answer", "notes"),
    [
        ("a\nb\n\nc", "x\ny\n\nz", ()),
        ("a\nb\n\nc", "x y\n\nz", ("lines 3→2",)),
        ("a\n\nb", "x\ny", ("paragraphs 2→1",)),
        ("a\r\n\r\nb\r\n", "x\n\ny", ()),
        ("a\n \n\nb", "x\n\ny", ()),
        ("a\u2028b\x85c", "x\u2028y z", ()),
        ("one", "one\ntwo", ("lines 1→2",)),
    ],
)
def test_lines_and_paragraphs_are_counted_at_line_feeds(
    given: str, answer: str, notes: tuple[str, ...]
) -> None:
    """Carriage returns, further blank lines and Unicode's own separators change no count."""
    assert structure_notes(given, answer) == notes


@pytest.mark.parametrize(
    ("given", "answer", "notes"),
    [
        ("%s of %s", "%s no %s", ()),
        ("%s of %d", "%2$d no %1$s", ()),
        ("%(name)s has %(n)d", "%(n)d ir %(name)s", ()),
        ("100% sure", "100 % pārliecināts", ()),
        ("50 % discount", "50 % atlaide", ()),
        ("%s left", "pa kreisi", ("placeholder_missing %s",)),
        ("{name}, hi", "Sveiks, {vārds}", ("placeholder_missing {name}", "placeholder_added {vārds}")),
        ("{a}{b}", "{a}{a}{b}", ("placeholder_added {a}",)),
        ("Hi {user.name!r:>10}", "Sveiks {user.name!r:>10}", ()),
        ("{see below}", "{skatīt zemāk}", ()),
        (r"{\an8}One\NTwo", r"{\an8}Viens\NDivi", ()),
        (r"{\an8}One\NTwo", "Viens Divi", (r"placeholder_missing {\an8}", r"placeholder_missing \N")),
        ("Tom &amp; Ann", "Toms &amp; Anna", ()),
        ("Tom &amp; Ann", "Toms un Anna", ("entity_missing &amp;",)),
        ("5 km", "5&nbsp;km", ()),
        ("<b>x</b>", "<b>y</b>", ()),
        ("<b>x</b>", "<b>y", ("tag_missing </b>",)),
        ('<a href="x">y</a>', '<a href="x" title="z">y</a>', ()),
        ("a < b and c > d", "a < b un c > d", ()),
        ("${x} and {{y}}", "{{y}} un ${x}", ()),
    ],
)
def test_placeholders_of_every_family_are_kept(given: str, answer: str, notes: tuple[str, ...]) -> None:
    """A difference is named; another order, or numbered positions, are none."""
    assert placeholder_notes(given, answer) == notes


def test_plural_categories_belong_to_the_target_language() -> None:
    """More or fewer categories are no finding; a lost argument, a lost branch of a selection, or a lost name is."""
    given = "{n, plural, one {# file of {who}} other {# files of {who}}}"
    polish = "{n, plural, one {# plik {who}} few {# pliki {who}} many {# plików {who}} other {# pliku {who}}}"
    assert placeholder_notes(given, polish) == ()
    assert placeholder_notes(given, polish.replace("pliki {who}", "pliki")) == ("placeholder_missing {who}",)
    assert placeholder_notes(given, "{n} {who}")[0] == "placeholder_missing {n, plural}"
    selected = "{g, select, male {He} female {She} other {They}}"
    assert placeholder_notes(selected, "{g, select, male {Viņš} other {Viņi}}") == (
        "placeholder_missing female {…}",
    )


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ("1,234.5", "1 234,5"),
        ("1,234.5", "1.234,5"),
        ("1\u202f234", "1234"),
        ("1,234,567", "1'234'567"),
        ("12,34,567", "1 234 567"),
        ("0.50 kg", "0,5 kg"),
        ("2024", "٢٠٢٤"),
        ("१२३", "123"),
        ("24 March 2021", "2021. gada 24. martā"),
        ("03/31/2026", "31.03.2026"),
        ("03/31/2026", "2026. gada 31. martā"),
        ("5 pm", "17.00"),
        ("17:30", "5:30 pm"),
        ("1,500,000", "1,5 miljoni"),
        ("45,000", "45 tūkst."),
        ("3 cats", "trīs kaķi"),
        ("in the 1980s", "80. gados"),
        ("the 19th century", "le XIXe siècle"),
        ("350 people", "三百五十人"),
        ("no number", "2 numbers"),
        ("it&#39;s %2$s, 15 of {0}", "'s {0}, %2$s no 15"),
        ("version 2.10.3", "versija 2.10.3"),
    ],
)
def test_numbers_are_compared_as_values(given: str, answer: str) -> None:
    """Separators, scripts, order, scales, hours, decades and small words say the same number."""
    assert number_notes(given, answer) == ()


@pytest.mark.parametrize(
    ("given", "answer", "missing"),
    [
        ("1,234.5", "1 234,6", "1,234.5"),
        ("17 people", "cilvēki", "17"),
        ("35 km", "45 km", "35"),
        ("3 cats", "4 kaķi", "3"),
        ("12.5 %", "125 %", "12.5"),
        ("2019 and 2020", "2019", "2020"),
    ],
)
def test_a_number_of_another_value_is_missing(given: str, answer: str, missing: str) -> None:
    """The number is named as the input writes it."""
    assert number_notes(given, answer) == (f"number_missing {missing}",)


@pytest.mark.parametrize(
    ("given", "answer", "notes"),
    [
        ("Hi", '"Sveiki"', ("quotes_added",)),
        ("Hi", "„Sveiki“", ("quotes_added",)),
        ("Hi", "«Sveiki»", ("quotes_added",)),
        ('"Hi"', "„Sveiki“", ()),
        ("– Hi", "“Sveiki”", ()),
        ('"A" and "B"', "„A“ un „B“", ()),
        ('say "A" or "B"', "„A“ vai „B“", ()),
        ("the boys' and girls'", "zēnu un meiteņu", ()),
    ],
)
def test_quotation_marks_round_the_whole_are_added_or_not(
    given: str, answer: str, notes: tuple[str, ...]
) -> None:
    """Marks that the input has, in whatever form, and marks within are no finding."""
    assert quotes_notes(given, answer) == notes


@pytest.mark.parametrize(
    ("given", "answer", "notes"),
    [
        ("Hi", "**Sveiki**", ("markup_added **",)),
        ("**Hi**", "**Sveiki**", ()),
        ("2 * 3 * 4", "2 * 3 * 4", ()),
        ("Hi", "# Sveiki", ("markup_added #",)),
        ("Hi", "<p>Sveiki</p>", ("markup_added <p>", "markup_added </p>")),
        ("Hi", "Sveiki<|im_end|>", ("special_tokens <|im_end|>",)),
        ("Write </s>", "Raksti </s>", ()),
        ("Hi", "Sveiki</s>", ("special_tokens </s>",)),
        ("– a\n– b", "- a\n- b", ()),
        ("a\nb", "- a\n- b", ("markup_added -",)),
        ("Hi", "[Sveiki](http://x.lv)", ("markup_added []()",)),
    ],
)
def test_markup_and_special_tokens_are_added_or_not(given: str, answer: str, notes: tuple[str, ...]) -> None:
    """What the input has as well is no finding."""
    assert markup_notes(given, answer) == notes


@pytest.mark.parametrize(
    ("target", "answer", "language", "there"),
    [
        ("kūka", "Man patīk kūkas.", "lv", True),
        ("kūka", "Man garšo torte.", "lv", False),
        ("Haus", "Die Häuser sind alt.", "de", True),
        ("Vertrag", "Der Kaufvertrag ist alt.", "de", True),
        ("ręka", "na ręce", "pl", True),
        ("bean", "an bhean", "ga", True),
        ("cath", "fy nghath", "cy", True),
        ("käsi", "minu käe", "et", True),
        ("aed", "aias", "et", True),
        ("API", "API lietošana", "lv", True),
        ("API", "saskarne", "lv", False),
        ("契約", "この契約は", "ja", True),
        ("契約", "この合意は", "ja", False),
        ("chiffre d'affaires", "le chiffre d\u2019affaires", "fr", True),
        ("C++ (11)", "C++ (11)", "de", True),
    ],
)
def test_a_target_term_may_be_inflected(target: str, answer: str, language: str, there: bool) -> None:  # noqa: FBT001
    """Endings, stem changes, mutations and compounds count as there; another word does not."""
    for form in ("NFC", "NFD"):
        notes = term_notes(unicodedata.normalize(form, answer), [("term", target)], language)
        assert notes == (() if there else (f"glossary_missing term→{target}",))


@pytest.mark.parametrize(
    ("answer", "given", "text", "notes"),
    [
        ("<think>Hm.</think>\n\nSveiki", "Hi", "Sveiki", ("reasoning_leak",)),
        ("Hm.</think>Sveiki", "Hi", "Sveiki", ("reasoning_leak",)),
        ("<think>Hm.", "Hi", "", ("reasoning_leak",)),
        ("[THINK]Hm.[/THINK]Sveiki", "Hi", "Sveiki", ("reasoning_leak",)),
        ("<think>Hm</think> ir birka", "<think>x</think> is a tag", "<think>Hm</think> ir birka", ()),
        (
            "<think>Ahem.</think><think>a</think> b",
            "<think>a</think> b",
            "<think>a</think> b",
            ("reasoning_leak",),
        ),
        ("Lieto <think> birku", "Use the <think> tag", "Lieto <think> birku", ()),
    ],
)
def test_leaked_reasoning_is_taken_off_where_the_input_has_none(
    answer: str, given: str, text: str, notes: tuple[str, ...]
) -> None:
    """A whole block, a closing tag alone, an opening one alone; tags that the text is about stay."""
    assert without_reasoning(answer, given) == (text, notes)


@pytest.mark.parametrize(
    ("answer", "given", "text", "notes"),
    [
        ("```\nSveiki\n```", "Hi", "Sveiki", ("fence_removed",)),
        ("```text\nSveiki\n\njūs\n```\n", "Hi\n\nyou", "Sveiki\n\njūs", ("fence_removed",)),
        ("```\nx\n```", "```\ny\n```", "```\nx\n```", ()),
        ("```\nx\n```\nand\n```\ny\n```", "x", "```\nx\n```\nand\n```\ny\n```", ()),
        ('{"translation": "Sveiki"}', "Hi", "Sveiki", ("json_wrapper_removed",)),
        ('{"text": "Sveiki"}', '{"text": "Hi"}', '{"text": "Sveiki"}', ()),
        ('{"a": "b"}', "Hi", '{"a": "b"}', ()),
    ],
)
def test_a_wrapping_of_the_whole_answer_is_taken_off(
    answer: str, given: str, text: str, notes: tuple[str, ...]
) -> None:
    """A fence or a JSON object round the whole; not one that the input begins with by right."""
    assert unwrap(answer, given) == (text, notes)


def test_an_introduction_is_one_where_the_text_has_none() -> None:
    """A text that begins with a label of its own is translated with it."""
    assert preamble_notes("The cat.", "Hier ist die Übersetzung:\n\nDie Katze.") == ("preamble",)
    assert preamble_notes("The cat.", "Translation: Die Katze.") == ("preamble",)
    assert preamble_notes("Translation: the cat.", "Übersetzung: die Katze.") == ()
    assert preamble_notes("Note: the cat.", "Hinweis: die Katze.") == ()
    assert preamble_notes("a", "b\n\nNote: I kept the name.") == ("explanation_added",)


def test_a_text_that_declines_is_translated_and_not_refused() -> None:
    """Only an answer that declines where its text does not is a refusal."""
    refusal = "I'm sorry, but I can't translate this text."
    assert is_refusal(refusal, "Kaķis guļ.")
    assert not is_refusal(refusal, "Es tut mir leid, aber ich kann diesen Text nicht übersetzen.")
    assert is_refusal("Als KI-Modell kann ich diesen Text nicht übersetzen.", "Ich kann nicht schwimmen.")
    assert not is_refusal("I can't swim, and I can't help it.", "Ich kann nicht schwimmen und nichts dafür.")


def test_a_loop_at_the_end_is_noted() -> None:
    """An answer that says its last words over and over, and is far longer than its text."""
    assert repetition_notes("Hi, my friend.", "Sveiks, mans draugs. " * 40) == ("repetition",)
    assert repetition_notes("Hi! " * 50, "Sveiks! " * 50) == ()


LATVIAN = "Šodien Rīgā ir ļoti jauks laiks, un mēs visi kopā ejam pastaigāties gar upi."


def test_the_language_of_an_answer_is_told_where_that_is_certain() -> None:
    """Another language is noted, a short text and a language that the detector does not know are not."""
    assert language_notes(LATVIAN, "lv") == ()
    assert language_notes(LATVIAN, "en") == ("language lv expected en",)
    assert language_notes("Labdien!", "en") == ()
    assert language_notes(LATVIAN, "xx") == ()
    assert language_in(LATVIAN) == "lv"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Danas je u Zagrebu vrlo lijepo vrijeme i svi zajedno idemo u šetnju uz rijeku Savu.",
            ("bs", "sr", "cnr"),
        ),
        (
            "I dag er det veldig fint vær i Oslo, og vi skal alle sammen gå en tur langs elven.",
            ("da", "nb", "nn"),
        ),
        (LATVIAN, ("ltg",)),
        ("Šudiņ Reigā ir cīši jauks laiks, i mes vysi kūpā īmam pasastaiguot gar upi.", ("lv",)),
        ("Dnes je v Bratislave veľmi pekné počasie a všetci spolu ideme na prechádzku popri rieke.", ("cs",)),
    ],
)
def test_languages_that_detectors_confuse_are_not_failed_against_one_another(
    text: str, expected: tuple[str, ...]
) -> None:
    """South Slavic, Scandinavian and Baltic neighbours pass for one another."""
    assert [language_notes(text, code) for code in expected] == [()] * len(expected)


def test_a_copy_is_untranslated_unless_it_was_in_the_target_language_already() -> None:
    """A whole copy, and copied lines; but no name, no short text, and no row that needed no translation."""
    english = "The weather is very nice in the city today."
    assert translation_notes(english, english, source="en", target="lv") == ("untranslated",)
    mixed = f"{english}\nAnd we all go for a walk along the river."
    half = f"{english}\nUn mēs visi ejam pastaigāties gar upi."
    assert translation_notes(mixed, half, source="en", target="lv") == ("untranslated 1 lines",)
    assert (
        translation_notes("Microsoft Windows 11 Pro", "Microsoft Windows 11 Pro", source="en", target="lv")
        == ()
    )
    assert translation_notes(LATVIAN, LATVIAN, source=None, target="lv") == ()
    longer = f"{english} And we all go for a walk along the river."
    assert translation_notes(longer, longer, source=None, target="lv") == ("untranslated",)
    assert (
        translation_notes(
            "Dette er et hus og en bil.", "Dette er et hus og en bil.", source="no", target="da"
        )
        == ()
    )
