from __future__ import annotations

import json

import pytest

from corpusmill.engine.ladder import Rung, climb
from corpusmill.store.protocol import Entry


def entry(ceiling: int | None, tokens: int, reason: str = "length", prompt_tokens: int = 100) -> Entry:
    """An answer of so many tokens, asked under a ceiling."""
    body = {
        "choices": [{"index": 0, "message": {"content": f"{tokens} words"}, "finish_reason": reason}],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": tokens},
    }
    return Entry(b"k" * 20, json.dumps(body).encode(), ceiling, reason, prompt_tokens, tokens, 1, 1.0, "run")


CUT_LOW, CUT_HIGH = entry(4_096, 4_096), entry(16_384, 16_384)
ENDED = entry(16_384, 9_000, "stop")


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], Rung(None, 4_096)),
        ([entry(4_096, 10, "stop")], Rung(entry(4_096, 10, "stop"), 4_096)),
        ([CUT_LOW], Rung(None, 16_384, 1)),
        ([CUT_LOW, ENDED], Rung(ENDED, 16_384, 1)),
        ([CUT_LOW, CUT_HIGH], Rung(None, 65_436, 2)),
        ([CUT_LOW, CUT_HIGH, entry(65_436, 65_436)], Rung(entry(65_436, 65_436), 65_436, 2)),
    ],
)
def test_a_ladder_is_taken_up_where_it_was_left(entries: list[Entry], expected: Rung) -> None:
    """The answer that ended counts, else the next ceiling, else the last cut where the context is full."""
    assert climb(entries, ceiling=4_096, highest=65_536, context=65_536) == expected


def test_a_users_cap_is_not_climbed() -> None:
    """What reaches it is the answer, though a longer one is stored."""
    assert climb([CUT_LOW, ENDED], ceiling=4_096, highest=None, context=65_536) == Rung(CUT_LOW, 4_096)


def test_only_young_answers_count_in_a_refresh() -> None:
    """Older ones are as if they were not there."""
    rung = climb([CUT_LOW, ENDED], ceiling=4_096, highest=65_536, context=None, not_before=2.0)
    assert rung == Rung(None, 4_096)
