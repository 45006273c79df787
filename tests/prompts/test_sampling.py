"""Which parameters a prompt may bring, and under which names."""

from __future__ import annotations

from typing import Any

import pytest

from corpusmill.errors import PromptError
from corpusmill.prompts.sampling import wire_parameters


def test_what_is_null_is_left_out_and_what_is_extra_goes_along() -> None:
    """Zero and false are values; a name that no document knows is sent from `extra`, and wins there."""
    given = {
        "temperature": 0,
        "top_p": None,
        "do_sample": False,
        "extra": {"top_k": 2, "min_p": 0.1, "x": None},
    }
    assert wire_parameters({**given, "top_k": 1}) == {
        "temperature": 0,
        "do_sample": False,
        "top_k": 2,
        "min_p": 0.1,
    }


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({"model": "m"}, "'model' belongs to the endpoint"),
        ({"min_p": 0.1}, r"'min_p' is not one .* write extra: \{min_p: …\}"),
        ({"extra": {"messages": []}}, "extra may not hold 'messages'"),
        ({"extra": {"max_tokens": 5}}, "extra may not hold 'max_tokens'"),
        ({"extra": {"max_completion_tokens": None}}, "extra may not hold 'max_completion_tokens'"),
    ],
)
def test_a_name_that_is_set_elsewhere_or_unknown_is_refused(sampling: dict[str, Any], message: str) -> None:
    """A ceiling in `extra` would contradict the prompt's own, and be in no request key."""
    with pytest.raises(PromptError, match=message):
        wire_parameters(sampling)
