"""Reading answers: lenient in what is read, strict in what counts as an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.exchange import NotACompletionError, read_completion


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
    """Lone surrogates and NUL in an answer are read; what happens to them is decided where columns are built."""
    found = read_completion(body().replace(b"hello", b"a" + escape.encode() + b"b"))
    assert found.content is not None
    assert found.content[0] + found.content[-1] == "ab"
    assert found.document()["model"] == "m"


@given(content=st.text())
def test_any_text_comes_back(content: str) -> None:
    """The text of an answer is what the server wrote."""
    assert read_completion(body(choices=[choice(content)])).content == content
