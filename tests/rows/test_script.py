"""The script of a text: right for whole texts, cheap, and the same each time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.rows.script import script_of, script_of_messages


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Plain words", "Latin"),
        ("Ķēniņš ēd zušus", "Latin"),
        ("It’s “quoted” — oddly …", "Latin"),
        ("Привет, мир", "Cyrillic"),
        ("Γειά σου Κόσμε", "Greek"),
        ("מה שלומך היום", "Hebrew"),
        ("مرحبا بالعالم", "Arabic"),
        ("नमस्ते दुनिया", "Devanagari"),
        ("你好世界", "Han"),
        ("これは日本語の文章です", "Kana"),
        ("안녕하세요 세계", "Hangul"),
        ("สวัสดีชาวโลก", "Thai"),
        ("გამარჯობა", "Georgian"),
        ("Слово Latin среди многих русских слов", "Cyrillic"),
        ("1234 … !?", None),
        ("", None),
    ],
)
def test_a_text_has_the_script_of_most_of_its_letters(text: str, script: str | None) -> None:
    """Digits, marks and a foreign word do not count."""
    assert script_of(text) == script


@given(st.text())
def test_any_text_has_a_script_or_none(text: str) -> None:
    """No text is an error, and a text repeated has the same script to choose from."""
    assert script_of(text) is None or any(letter.isalpha() for letter in text)


def test_the_script_of_a_request_is_that_of_its_last_text() -> None:
    """An instruction in English does not make a Russian row Latin; a message without text is passed over."""
    asked: list[dict[str, Any]] = [
        {"role": "system", "content": "Translate the text into Latvian."},
        {"role": "user", "content": [{"type": "text", "text": "Привет"}, {"type": "image_url"}]},
        {"role": "assistant", "content": None},
    ]
    assert script_of_messages(asked) == "Cyrillic"
    assert script_of_messages([{"role": "user", "content": None}]) is None
