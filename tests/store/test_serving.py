from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.store import Entry, choose, serves, was_cut


def entry(**changes: Any) -> Entry:
    """Give a whole answer of ten tokens, with changes."""
    facts: dict[str, Any] = {
        "key": b"k" * 20,
        "body": b"{}",
        "ceiling": None,
        "finish_reason": "stop",
        "prompt_tokens": 5,
        "completion_tokens": 10,
        "choices": 1,
        "created_at": 100.0,
        "invocation": "i",
        "kind": "completion",
    }
    return Entry(**(facts | changes))


ceilings = st.none() | st.integers(1, 100)
entries = st.builds(
    entry,
    ceiling=ceilings,
    finish_reason=st.sampled_from(["stop", "length", "tool_calls", "strange", None]),
    completion_tokens=st.none() | st.integers(0, 100),
    choices=st.integers(1, 3),
    created_at=st.floats(0, 200),
    kind=st.sampled_from(["completion", "completion", "rejected"]),
)


@pytest.mark.parametrize(
    ("facts", "ceiling", "expected"),
    [
        ({}, None, True),
        ({}, 10, True),
        ({}, 9, False),
        ({"ceiling": 500}, 10, True),
        ({"completion_tokens": None, "ceiling": 50}, 49, False),
        ({"completion_tokens": None, "ceiling": 50}, 50, True),
        ({"completion_tokens": None, "ceiling": 50}, None, True),
        ({"completion_tokens": None}, 10_000, False),
        ({"choices": 2, "ceiling": 50}, 49, False),
        ({"choices": 2, "ceiling": 50}, 50, True),
        ({"finish_reason": "strange", "ceiling": 50}, 20, False),
        ({"finish_reason": None, "ceiling": 50}, 50, True),
        ({"finish_reason": "STOP", "ceiling": 50}, 20, True),
        ({"finish_reason": "eos_token"}, 10, True),
        ({"finish_reason": "content_filter"}, 10, True),
        ({"finish_reason": "max_output_tokens", "ceiling": 40}, 41, False),
        ({"finish_reason": "model_length"}, None, True),
        ({"finish_reason": "length", "ceiling": 40}, 40, True),
        ({"finish_reason": "length", "ceiling": 40}, 39, True),
        ({"finish_reason": "length", "ceiling": 40}, 41, False),
        ({"finish_reason": "length", "ceiling": 40}, None, False),
        ({"finish_reason": "length"}, None, True),
        ({"finish_reason": "length"}, 1, False),
        ({"finish_reason": "LENGTH"}, 1, False),
        ({"kind": "rejected"}, None, False),
    ],
)
def test_the_ceiling_rule_case_by_case(
    facts: dict[str, Any],
    ceiling: int | None,
    expected: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """Each line of the rule decides as it is written."""
    assert serves(entry(**facts), ceiling=ceiling) is expected


@given(entries, st.integers(1, 100), st.integers(1, 100))
def test_a_higher_ceiling_loses_no_whole_answer_and_a_lower_one_no_cut_answer(
    stored: Entry, one: int, other: int
) -> None:
    """What ended by itself keeps serving as the ceiling rises, what was cut as it falls."""
    low, high = sorted((one, other))
    if was_cut(stored):
        assert not serves(stored, ceiling=high) or serves(stored, ceiling=low)
    else:
        assert not serves(stored, ceiling=low) or serves(stored, ceiling=high)
        assert not serves(stored, ceiling=high) or serves(stored, ceiling=None)


@given(entries)
def test_an_answer_serves_the_very_request_that_it_was_given_to(stored: Entry) -> None:
    """Asking the same again, under the same ceiling, finds the answer, unless the server broke the ceiling."""
    kept = stored.kind == "completion"
    over = stored.ceiling is not None and (stored.completion_tokens or 0) > stored.ceiling
    if kept and not over:
        assert serves(stored, ceiling=stored.ceiling)


@given(entries, ceilings, st.floats(0, 200))
def test_nothing_older_than_asked_for_serves(stored: Entry, ceiling: int | None, not_before: float) -> None:
    """The moment only ever narrows what serves."""
    narrowed = serves(stored, ceiling=ceiling, not_before=not_before)
    assert narrowed == (serves(stored, ceiling=ceiling) and stored.created_at >= not_before)


@given(st.lists(entries, max_size=6), ceilings)
def test_the_chosen_entry_serves_and_is_the_youngest_whole_one(
    stored: list[Entry], ceiling: int | None
) -> None:
    """A whole answer comes before a cut one, and the youngest comes first; none is chosen only if none serves."""
    chosen = choose(stored, ceiling)
    serving = [each for each in stored if serves(each, ceiling=ceiling)]
    whole = [each for each in serving if not was_cut(each)]
    assert chosen is ((whole or serving)[-1] if serving else None)
