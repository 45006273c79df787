"""What makes two requests the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.exchange import ChatRequest
from corpusmill.fingerprint import Fingerprint, canonical, request_key

if TYPE_CHECKING:
    from collections.abc import Mapping

IDENTITY = "https://host/v1 model"

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
parameters = st.dictionaries(st.text(min_size=1, max_size=8), values, max_size=5)


def key(messages: list[dict[str, Any]], made: Mapping[str, Any], vary: str | None = None) -> bytes:
    """Give the key of a request for the test's identity."""
    return request_key(IDENTITY, ChatRequest(messages=messages, parameters=made, vary=vary))


def user(text: str) -> list[dict[str, Any]]:
    """Make a conversation of one user message."""
    return [{"role": "user", "content": text}]


@given(made=parameters, text=st.text())
def test_the_order_of_keys_does_not_matter(made: dict[str, Any], text: str) -> None:
    """The same parameters and message, written in another order, have the same key."""
    turned = dict(reversed(list(made.items())))
    assert key(user(text), made) == key([{"content": text, "role": "user"}], turned)


@given(
    made=parameters, name=st.text(min_size=1, max_size=8), value=scalars.filter(lambda item: item is not None)
)
def test_any_field_changes_the_key(made: dict[str, Any], name: str, value: object) -> None:
    """A field more, whatever its name, is another request, unless it is one that is left out on purpose."""
    left_out = {"stream", "stream_options", "max_tokens", "max_completion_tokens"}
    without = {other: item for other, item in made.items() if other != name}
    same = key(user("a"), without) == key(user("a"), {**without, name: value})
    assert same == (name in left_out)


@given(one=st.text(), other=st.text())
def test_texts_share_a_key_only_when_they_are_equal(one: str, other: str) -> None:
    """Different texts, composed and decomposed letters included, are different requests."""
    assert (key(user(one), {}) == key(user(other), {})) == (one == other)


@given(text=st.text(), role=st.sampled_from(["system", "user", "assistant"]))
def test_the_quick_way_and_the_general_way_agree(text: str, role: str) -> None:
    """A plain message has the same key as the same message with a null field, which takes the general path."""
    plain = {"role": role, "content": text}
    assert key([plain], {}) == key([{**plain, "name": None}], {})


def test_zero_is_zero_and_null_is_absent() -> None:
    """0 equals 0.0, and a null parameter is no parameter."""
    assert key(user("a"), {"temperature": 0}) == key(user("a"), {"temperature": 0.0, "top_p": None})
    assert key(user("a"), {"temperature": 0}) != key(user("a"), {"temperature": 0.5})


@pytest.mark.parametrize("name", ["tools", "chat_template_kwargs"])
def test_order_counts_where_it_reaches_the_model(name: str) -> None:
    """Inside tools, schemas and template arguments the order of keys is content."""
    one, other = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert key(user("a"), {name: one}) != key(user("a"), {name: other})
    assert key(user("a"), {"response_format": {"json_schema": one}}) != key(
        user("a"), {"response_format": {"json_schema": other}}
    )
    assert key(user("a"), {"response_format": one}) == key(user("a"), {"response_format": other})


def test_vary_by_enters_the_key() -> None:
    """Draws with different values of `vary_by` are different requests, and differ from none at all."""
    assert (
        len({key(user("a"), {}), key(user("a"), {}, "1"), key(user("a"), {}, "2"), key(user("a"), {}, "")})
        == 4
    )


def test_a_miss_is_explained_by_field() -> None:
    """The digests of two requests differ in exactly the fields in which the requests do."""
    one = Fingerprint(IDENTITY, {"temperature": 0}).fields_of(user("a"))
    other = Fingerprint(IDENTITY, {"temperature": 1}).fields_of(user("b"))
    assert {name for name in one if one[name] != other[name]} == {"temperature", "messages[0]"}


def test_canonical_bytes_hold_what_json_cannot() -> None:
    """Infinity and NaN have canonical bytes too, each its own."""
    assert (
        len({canonical(float("nan")), canonical(float("inf")), canonical(float("-inf")), canonical("nan")})
        == 4
    )
