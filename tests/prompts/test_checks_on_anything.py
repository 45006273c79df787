"""The checks on texts that nobody foresaw: they do not raise, and do not hang."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.prompts.checks.answering import answer_notes
from corpusmill.prompts.checks.numbers import number_notes
from corpusmill.prompts.checks.placeholders import placeholder_notes
from corpusmill.prompts.checks.refusal import is_refusal
from corpusmill.prompts.checks.summary import summary_notes
from corpusmill.prompts.checks.translation import translation_notes
from corpusmill.prompts.checks.wrapping import unwrap, without_reasoning

TEXT = st.text(
    st.characters() | st.sampled_from("{}%<>&\\#*`|\"'«»„“:-\n\r 0123456789,.٣५<think>"), max_size=80
)


@given(TEXT, TEXT)
def test_no_text_makes_a_check_raise(before: str, after: str) -> None:
    """Any characters in any order, lone surrogates too, only lead to notes."""
    notes = translation_notes(before, after, source="en", target="lv", terms=[("a", before[:9] or "b")])
    notes += summary_notes(before, after, language=None)
    notes += answer_notes(before, before, after, language=None)
    assert all(notes)
    assert is_refusal(after, before) in {True, False}
    unwrap(after, before)
    without_reasoning(after, before)


@given(TEXT)
def test_a_text_has_its_own_numbers_and_placeholders(text: str) -> None:
    """Nothing is missing from a copy, nor from a copy in another composition."""
    for form in ("NFC", "NFD"):
        copy = unicodedata.normalize(form, text)
        assert number_notes(text, copy) == ()
        assert placeholder_notes(text, copy) == ()


@pytest.mark.parametrize(
    "piece",
    [
        "*",
        "**a",
        "_",
        "`",
        "<",
        "<a ",
        "{",
        "{a,plural,",
        "%(",
        "&",
        "\\",
        "|",
        "1 ",
        "1.",
        "(",
        '"',
        "\n",
        "\n ",
        "- ",
        "$$",
        "a:",
    ],
)
def test_a_long_text_of_one_sign_is_checked_in_linear_time(piece: str) -> None:
    """A hundred thousand characters of what patterns stumble over; a quadratic one would run into the time-out."""
    text = piece * (100_000 // len(piece))
    translation_notes(text, text[1:], source="en", target="lv")
    answer_notes("Why?", text, text[1:], language=None)
    is_refusal(text, text)
    unwrap(text, "")
    without_reasoning(text, "")
