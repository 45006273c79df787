"""YAML 1.2 into plain values: words stay words, and what is odd is an error with its line and without its values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.errors import JobError
from corpusmill.job.yaml_text import plain, read_yaml

TEXTS = [
    "no",
    "on",
    "yes",
    "off",
    "N",
    "22:30",
    "12:30:45",
    "2024-01-01",
    "2024-01-01T10:00:00Z",
    "1_000",
    "1_0.5",
]


@pytest.mark.parametrize("text", TEXTS)
def test_what_only_older_yaml_takes_for_something_else_is_text(text: str) -> None:
    """Language codes, times, dates and numbers with underlines arrive as they are written."""
    assert read_yaml(f"a: {text}", "job").values == {"a": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0123", 123),
        ("0o17", 15),
        ("0x1F", 31),
        ("-7", -7),
        ("1e3", 1_000.0),
        (".5", 0.5),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'true'", "true"),
        ('"\\u0041"', "A"),
        ("|-\n  one\n  two", "one\ntwo"),
    ],
)
def test_plain_scalars_are_those_of_the_core_schema(text: str, value: object) -> None:
    """Nothing but true, false, null and numbers is anything else than text."""
    found = plain(read_yaml(f"a: {text}", "job").values)["a"]
    assert found == value
    assert type(found) is type(value)


def test_a_number_remembers_how_it_was_written() -> None:
    """Fields that take text get `0123` and `1e3`, whatever number they are; so do keys."""
    values = read_yaml("a: [0123, 1e3]\n0042: b\ntrue: c\nnull: d", "job").values
    assert [each.text for each in values["a"]] == ["0123", "1e3"]
    assert list(values) == ["a", "0042", "true", "null"]


def test_lines_are_known_at_every_depth() -> None:
    """A place that has no line of its own has that of what is around it."""
    document = read_yaml("a:\n  - b: 1\n  -\n    c: {d: 2}\nx: &x {e: 1}\ny:\n  <<: *x\n  f: 2\n", "job")
    assert document.line(("a",)) == 1
    assert document.line(("a", 0, "b")) == 2
    assert document.line(("a", 1, "c", "d")) == 4
    assert document.line(("a", 1, "c", "not", "there")) == 4
    assert document.line(("y", "e")) == 6
    assert document.line(("z",)) is None


def test_an_anchor_is_the_value_that_it_names() -> None:
    """Also where one mapping is merged into another."""
    values = plain(read_yaml("x: &x {a: 1}\ny: *x\nz:\n  <<: *x\n  b: 2", "job").values)
    assert values == {"x": {"a": 1}, "y": {"a": 1}, "z": {"a": 1, "b": 2}}


@pytest.mark.parametrize("text", ["", "# nothing but a comment\n", "---\n"])
def test_an_empty_document_is_null(text: str) -> None:
    """What that means is for the caller to say."""
    assert read_yaml(text, "job").values is None


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    """Editors on Windows write one."""
    assert read_yaml("\ufeffa: 1", "job").values == {"a": 1}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: {c: 1,\n c: 2}", 3, "the key 'c' stands twice"),
        ("a: 1\nb: !!str 5", 2, "the tag"),
        ("a: !!binary aGk=", 1, "the tag"),
        ("a:\n  - !python/object x", 2, "the tag '!python/object' means nothing here"),
        ("a:\n\tb: 1", 2, "cannot start any token"),
        ("a: 1\n---\nb: 2", 2, "another document"),
        ("a: [1, 2", 1, "expected ',' or"),
        ("a: *nope", 1, "undefined alias 'nope'"),
        ("a: 1\nb: &r [1, *r]", 2, "'r' contains itself"),
        ("%YAML 1.1\n---\na: no", 2, "YAML 1.2"),
        ('a: "\\ud83d"', 1, "half of a surrogate pair"),
        ("a: b: c", 1, "mapping values are not allowed"),
    ],
)
def test_what_is_no_plain_yaml_is_an_error_with_its_line(text: str, line: int, words: str) -> None:
    """The message names the file, the line and the thing."""
    with pytest.raises(JobError, match=rf"^job\.yaml:{line}: ") as raised:
        read_yaml(text, "job.yaml")
    assert words in str(raised.value)


def test_control_characters_are_refused() -> None:
    """They are no YAML, wherever they stand."""
    with pytest.raises(JobError, match=r"^job: not YAML: unacceptable character"):
        read_yaml("a: x\x00", "job")


def test_a_key_that_stands_twice_is_named_without_what_it_says() -> None:
    """It may be the key of an API, in an old and a new form."""
    with pytest.raises(JobError) as raised:
        read_yaml("endpoint:\n  api_key: sk-canary-old\n  api_key: sk-canary-new\n", "job")
    assert "canary" not in str(raised.value)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs"))),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abcXYZ", min_size=1), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_json_is_read_as_json(value: Any) -> None:
    """Any JSON document is a job file's text with the same meaning."""
    assert plain(read_yaml(json.dumps(value), "job").values) == value
    assert plain(read_yaml(json.dumps(value, indent=1, ensure_ascii=False), "job").values) == value
