"""Text never becomes markup, and numbers are written as people read them."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpusmill.page import numbers
from corpusmill.page.markup import MOST, Markup, tag, text


class Seen(HTMLParser):
    """What a parser finds in a piece of HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.data = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.data += data


def parsed(markup: str) -> Seen:
    """Parse a piece of HTML."""
    seen = Seen()
    seen.feed(markup)
    seen.close()
    return seen


@given(st.text())
@example("</p><script>alert(1)</script>")
@example("<!--")
@example("&lt;b&gt; &amp;lt;")
def test_any_text_comes_out_of_a_parser_as_it_went_in(value: str) -> None:
    """No text makes an element of its own; what is not misleading is shown exactly."""
    seen = parsed(tag("p", value))
    assert set(seen.tags) <= {"p", "span"}
    assert seen.tags.count("p") == 1
    if value.isprintable():
        assert seen.data == value


@given(st.text())
@example('" onload="alert(1)')
def test_any_text_stays_within_its_attribute(value: str) -> None:
    """An attribute's value cannot end early."""
    assert [name for name, _ in parsed(tag("p", "a", title=value)).attributes] == ["title"]


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\u202e", "\u2066", "\u2069", "\U000e0041", "\x9b"])
def test_what_would_mislead_a_reader_is_shown_by_its_number(character: str) -> None:
    """Controls, overrides of direction and invisible tags are replaced by their code point."""
    shown = text(f"a{character}b")
    assert character not in shown
    assert f"U+{ord(character):04X}" in shown


def test_a_huge_text_is_cut_and_says_how_much_is_missing() -> None:
    """Only the beginning of a long text is in the page."""
    shown = text("<" * 1_000_000)
    assert shown.startswith("&lt;" * MOST + "<span")
    assert "996,000 more characters" in shown


def test_a_lone_surrogate_does_not_keep_a_page_from_being_written() -> None:
    """What no file can hold is replaced."""
    assert tag("p", "a\ud800", title="\ud800").encode() == b'<p title="?">a?</p>'


def test_markup_is_put_as_it_is_and_nothing_else_is() -> None:
    """Only the type tells markup from text, also within lists."""
    assert tag("p", [Markup("<b>a</b>"), "<b>", None]) == "<p><b>a</b>&lt;b&gt;</p>"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "–"),
        (0, "0"),
        (99_999, "99,999"),
        (100_000, "100 k"),
        (999_950, "1.00 M"),
        (12_345_678, "12.3 M"),
    ],
)
def test_counts_keep_three_digits_once_they_are_large(value: float | None, written: str) -> None:
    """Up to six digits are written in full."""
    assert numbers.count(value) == written


@pytest.mark.parametrize(
    ("value", "written"), [(None, "not known"), (0, "$0.00"), (1234.5, "$1,234.50"), (0.000123, "$0.000123")]
)
def test_money_never_rounds_a_small_sum_to_nothing(value: float | None, written: str) -> None:
    """Small sums keep digits that count."""
    assert numbers.money(value) == written


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_an_axis_covers_what_it_shows_in_a_few_steps(highest: float) -> None:
    """Ticks begin at 0, rise, reach the highest value, and are few."""
    found = numbers.ticks(highest)
    assert found[0] == 0
    assert found == sorted(set(found))
    assert found[-1] >= highest * 0.999
    assert len(found) <= 6


def test_a_share_is_never_rounded_to_none_or_all() -> None:
    """One of a million is not 0 %, all but one of them are not 100 %."""
    assert numbers.share(1, 1_000_000) == "< 0.1 %"
    assert numbers.share(999_999, 1_000_000) == "> 99.9 %"
    assert numbers.share(0, 5) == "0 %"


def test_a_quantile_is_the_bound_under_which_the_part_lies() -> None:
    """Half of the values lie in the first bin, nine tenths in the second; beyond the last bound nothing is known."""
    assert numbers.quantile([5, 4, 1], [1.0, 2.0], 0.5) == 1.0
    assert numbers.quantile([5, 4, 1], [1.0, 2.0], 0.9) == 2.0
    assert numbers.quantile([5, 4, 1], [1.0, 2.0], 0.99) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (3_599.4, "59 min 59 s"),
        (3_600, "1 h 00 min"),
        (90_061, "25 h 01 min"),
    ],
)
def test_lengths_of_time_are_written_as_people_do(seconds: float, words: str) -> None:
    """With two units at most."""
    assert numbers.duration(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0124, "12 ms"), (9.94, "9.9 s"), (10.4, "10 s"), (75, "1 min 15 s")]
)
def test_short_spans_keep_a_fraction(seconds: float, words: str) -> None:
    """On the page seconds of which a tenth counts have one; from ten on a span is as long as elsewhere."""
    assert numbers.span(seconds) == words
