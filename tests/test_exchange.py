"""Reading answers: lenient in what is read, strict in what counts as an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.exchange import (
    NotACompletionError,
    choices_of,
    clean_text,
    clean_value,
    ending_of,
    message_of,
    read_completion,
)


def body(**changes: Any) -> bytes:
    """Make an ordinary body with some fields changed; `...` removes one."""
    whole: dict[str, Any] = {
        "id": "1",
        "object": "chat.completion",
        "created": 1737583288.6,
        "model": "m",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    }
    whole.update(changes)
    return json.dumps({name: value for name, value in whole.items() if value is not ...}).encode()


def choice(content: object, index: object = 0, **message: object) -> dict[str, Any]:
    """Make a choice."""
    return {
        "index": index,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": content, **message},
    }


def test_an_ordinary_answer_is_read() -> None:
    """Text, reason, model and usage come out."""
    found = read_completion(body())
    assert (found.content, found.finish_reason, found.model) == ("hello", "stop", "m")
    assert (found.prompt_tokens, found.completion_tokens, found.choices) == (3, 1, 1)


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({"usage": ...}, (None, None)),
        ({"usage": None}, (None, None)),
        ({"usage": {"prompt_tokens": 43, "total_tokens": 393}}, (43, None)),
        ({"usage": {"prompt_tokens": 43.0, "completion_tokens": "many"}}, (43, None)),
        ({"usage": "none"}, (None, None)),
        ({"system_fingerprint": None, "unknown": {"deep": [1]}}, (3, 1)),
        ({"created": "yesterday", "model": None}, (3, 1)),
    ],
)
def test_odd_fields_cost_no_answer(changes: dict[str, Any], tokens: tuple[int | None, int | None]) -> None:
    """Missing usage, usage of other types and unknown fields leave the text readable."""
    found = read_completion(body(**changes))
    assert found.content == "hello"
    assert (found.prompt_tokens, found.completion_tokens) == tokens


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, None),
        ("", ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "image_url"}], ""),
        (7, None),
    ],
)
def test_content_may_be_null_or_parts(content: object, text: str | None) -> None:
    """Null content and lists of parts are read."""
    assert read_completion(body(choices=[choice(content)])).content == text


def test_choices_out_of_order_are_told_by_their_index() -> None:
    """The first choice is the one with the lowest index."""
    found = read_completion(body(choices=[choice("second", 1), choice("first", 0)]))
    assert (found.content, found.choices) == ("first", 2)
    found = read_completion(body(choices=[choice("second", 1), choice(["odd"], 2), choice("first", 0)]))
    assert (found.content, found.choices) == ("first", 3)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"choices": []}',
        b'{"choices": null}',
        b'{"choices": [{"index": 0}]}',
        b'{"error": null, "choices": [{"message": {"content": "x"}}]}',
        b'{"error": {"message": "no"}}',
        b'{"choices": [{"message": {"content": "x"',
        b"[" * 100_000,
    ],
)
def test_what_is_no_answer_is_refused(bad: bytes) -> None:
    """Errors in a 200, HTML, nothing, half a body: each is told apart from an answer."""
    with pytest.raises(NotACompletionError):
        read_completion(bad)


@pytest.mark.parametrize("escape", [r"\ud800", r"\udc00x", r"\u0000"])
def test_characters_that_no_file_holds_cost_no_answer(escape: str) -> None:
    """Lone surrogates and NUL in an answer become U+FFFD, and the answer says that it was cleaned."""
    found = read_completion(body(model="m").replace(b"hello", b"a" + escape.encode() + b"b"))
    assert (found.content or "").replace("x", "") == "a\ufffdb"
    assert found.cleaned
    assert found.document()["model"] == "m"
    named = read_completion(
        body(choices=[{**choice("hello"), "finish_reason": "odd"}], model="MODEL")
        .replace(b"odd", b"o" + escape.encode())
        .replace(b"MODEL", b"m" + escape.encode())
    )
    assert (named.content, named.cleaned) == ("hello", False)
    assert (named.finish_reason or "")[:2] == "o\ufffd"
    assert (named.model or "")[:2] == "m\ufffd"


def test_a_pair_that_is_written_as_two_halves_is_one_character() -> None:
    """As it is when another field of the same body is odd."""
    found = read_completion(body(model="m").replace(b"hello", rb"\ud83d\ude00").replace(b'"m"', rb'"\ud800"'))
    assert (found.content, found.cleaned) == ("\U0001f600", False)
    assert clean_text("a\ud83d\ude00b\ud800c") == "a\U0001f600b\ufffdc"


@pytest.mark.parametrize(
    "tokens", ["-1", "1e400", "NaN", str(2**32 + 1), str(2**63), str(2**64), "9" * 5_000]
)
def test_a_count_that_is_made_up_is_unknown(tokens: str) -> None:
    """What no answer can have had would spoil the accounts that it is added to."""
    found = read_completion(
        body(usage={"prompt_tokens": 3, "completion_tokens": -7}).replace(b"-7", tokens.encode())
    )
    assert (found.content, found.prompt_tokens, found.completion_tokens) == ("hello", 3, None)


@pytest.mark.parametrize(
    "indexes", [(None, 0), ("b", 1), ([], {}), (1.5, 0), (True, False), (..., 1), (10**30, "0"), (0, 0)]
)
def test_odd_indexes_leave_choices_as_they_are_written(indexes: tuple[Any, Any]) -> None:
    """An order is an order only when all indexes are whole numbers."""
    made = [choice("first", indexes[0]), choice("second", indexes[1])]
    written = [{name: value for name, value in one.items() if value is not ...} for one in made]
    found = read_completion(body(choices=written))
    assert (found.content, found.choices) == ("first", 2)
    assert [message_of(one)["content"] for one in choices_of(found.document())] == ["first", "second"]


def test_one_choice_that_was_cut_makes_the_answer_cut() -> None:
    """So that a higher ceiling asks it again."""
    made = [choice("a", 0), {**choice("b", 1), "finish_reason": "MAX_TOKENS"}]
    assert read_completion(body(choices=made)).finish_reason == "MAX_TOKENS"


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        ("stop", "itself"),
        ("STOP", "itself"),
        (" End_Turn ", "itself"),
        ("eos_token", "itself"),
        ("length", "cut"),
        ("MAX_TOKENS", "cut"),
        ("max_output_tokens", "cut"),
        ("content_filter", "filtered"),
        ("abort", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
        (["stop"], "unknown"),
        ({}, "unknown"),
    ],
)
def test_an_ending_is_known_however_it_is_capitalised(reason: object, ending: str) -> None:
    """Servers differ in the words and in their letters; what is no word is no ending."""
    assert ending_of(reason) == ending


@given(
    st.recursive(
        st.none() | st.text() | st.integers() | st.binary(max_size=3),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_cleaning_gives_what_is_clean_back_as_it_is(value: Any) -> None:
    """The very object where nothing had to be done, and else one that stays as it is when cleaned again."""
    cleaned = clean_value(value)
    assert clean_value(cleaned) is cleaned
    assert "\0" not in repr(cleaned).replace("b'", "")
    assert clean_value([{"a\0": ("\ud800", [value])}]) == [{"a\ufffd": ("\ufffd", [cleaned])}]


@given(content=st.text())
def test_any_text_comes_back(content: str) -> None:
    """The text of an answer is what the server wrote, but for NUL."""
    found = read_completion(body(choices=[choice(content)]))
    assert found.content == content.replace("\0", "\ufffd")
    assert found.cleaned == ("\0" in content)
