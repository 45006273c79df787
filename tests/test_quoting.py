"""What a message repeats of a text is taken out of it, in whichever notation it is repeated, and nothing else is."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpusmill.quoting import GAP, RUN, texts_in, unquoted

if TYPE_CHECKING:
    from collections.abc import Callable

ROW = 'The patient said: "I am\nill", and José Ångström (born 1951) of Жмеринка noted it in C:\\new\\files.'

NOTATIONS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "squeezed": lambda text: " ".join(text.split()),
    "JSON": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON in ASCII": json.dumps,
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "source text": repr,
    "source text of source text": lambda text: repr(repr(text)),
    "bytes": lambda text: repr(text.encode()),
}


def letters(text: str) -> bytes:
    """Give the letters and digits of a text, by another way than the function itself."""
    return "".join(letter for letter in text if letter.isalnum()).encode()


def runs(text: str) -> set[bytes]:
    """Give all runs of a text that count as a quotation."""
    folded = letters(text)
    return {folded[start : start + RUN] for start in range(len(folded) - RUN + 1)}


@pytest.mark.parametrize("notation", NOTATIONS)
def test_a_quotation_is_taken_out_of_what_stands_around_it(notation: str) -> None:
    """The server's own words stay, on both sides."""
    said = unquoted(f"Error in the input <{NOTATIONS[notation](ROW)}> at 17", [ROW])
    assert said.startswith("Error in the input <")
    assert said.endswith("> at 17")
    assert GAP in said
    # The sign of bytes is no part of the text.
    between = said.removeprefix("Error in the input <").removesuffix("> at 17").lstrip("b")
    assert letters(between) == b""


TEXTS = st.text(max_size=80) | st.text(alphabet="ab \\\"'nx0u41é\n", max_size=80)


@given(text=TEXTS.filter(lambda text: "\\" not in text), notation=st.sampled_from(sorted(NOTATIONS)))
@example(text="a" * RUN, notation="as it is")
def test_no_run_of_a_text_is_left(text: str, notation: str) -> None:
    """Whatever characters it has, and however it is quoted."""
    said = unquoted(f"No! <{NOTATIONS[notation](text)}> !", [text])
    quoted = runs(text)
    assert all(quoted.isdisjoint(runs(piece)) for piece in said.split(GAP))
    assert said.startswith("No! <")
    assert said.endswith("> !")


@given(text=TEXTS)
def test_backslashes_of_a_text_do_not_hide_a_quotation(text: str) -> None:
    """A text with what looks like escapes is found as it is and as JSON; all of its runs go."""
    text = f"{text} zyxwvutsrqponmlkjihgfedcba"
    for notation in ("as it is", "JSON", "JSON in ASCII", "JSON in JSON"):
        said = unquoted(f"No! <{NOTATIONS[notation](text)}> !", [text])
        assert "zyxwvuts" not in said
        assert said.startswith("No! <")


@given(message=st.text(max_size=60), own=st.lists(st.text(max_size=60), max_size=3))
def test_what_is_left_of_a_message_is_what_it_said(message: str, own: list[str]) -> None:
    """The pieces around the gaps are the message's, in order; without a quotation it comes back as it is."""
    said = unquoted(message, own)
    at = 0
    for piece in said.split(GAP):
        found = message.find(piece, at)
        assert found >= 0
        at = found + len(piece)
    if GAP not in said:
        assert said == message


@pytest.mark.parametrize(
    ("message", "own", "said"),
    [
        ("Unknown model: abc", [], "Unknown model: abc"),
        ("Unknown model: abc", ["", "a", "unknown", "no such thing at all here"], "Unknown model: abc"),
        ("bad value 'Ann Lee'!", ["Ann Lee"], "bad value '…'!"),
        ("bad value 'Ann Leer'!", ["Ann Lee"], "bad value 'Ann Leer'!"),
        ("bad value '\\nAnna\\n'", ["Anna"], "bad value '\\n…\\n'"),
        ("Anna and Anna", ["Anna"], "… and …"),
        ("at 400: no", ["400"], "at 400: no"),
        ("bad input: 'Ann Le...", ["Ann Lee is ill and lies in bed"], "bad input: '…..."),
        ("bad input: 'Ann Le... (twice)", ["Ann Lee is ill and lies in bed"], "bad input: '…... (twice)"),
        ("bad input: 'Ann...", ["Ann Lee is ill and lies in bed"], "bad input: 'Ann..."),
        ("bad inputs... Ann Le", ["Ann Lee is ill and lies in bed"], "bad inputs... Ann Le"),
        ("in: Жмеринка", ["город Жмеринка, улица"], "in: …"),
        ("in: 他昨天去了医院。", ["据说他昨天去了医院。"], "in: …。"),
        (
            "first one two three four five, then six seven eight nine ten",
            ["zero one two three four five", "six seven eight nine ten"],
            "first …, then …",
        ),
    ],
)
def test_runs_and_whole_short_texts_are_quotations(message: str, own: list[str], said: str) -> None:
    """A short text is one only where it stands by itself, and the shortest never."""
    assert unquoted(message, own) == said


def test_a_page_with_entities_is_read_before_it_is_compared() -> None:
    """Entities are for whoever reads pages to undo; here they are letters, which break a run."""
    text = "one's two's three's four's five's"
    page = html.escape(text)
    assert unquoted(page, [text]) == page
    assert unquoted(html.unescape(page), [text]) == GAP


def test_the_texts_of_messages_and_cells_are_found() -> None:
    """Nested in any way, numbers and bytes too; roles and types are nobody's text."""
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"image_url": {"url": "data:b"}}]},
        {"role": "tool", "content": None, "tool_calls": ({"function": {"arguments": "c"}},)},
    ]
    assert sorted(texts_in(messages)) == ["a", "c", "data:b"]
    assert sorted(texts_in(("x", 17, None, True, 1.5, b"\0\1\2"))) == ["1.5", "17", "AAEC", "x"]
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    assert list(texts_in(deep)) == []
