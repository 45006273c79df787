from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.rows.fit import Fit, learn_fit
from corpusmill.rows.tokens import ENOUGH, Counted

CONTEXT = 65_536


def counted(ratio: float, script: str = "Latin", times: int = ENOUGH) -> list[Counted]:
    """Answers to texts of 1,000 characters with so many tokens a character."""
    return [Counted(script, 1_000, int(1_000 * ratio), 10) for _ in range(times)]


def test_a_text_is_too_long_when_even_the_lowest_estimate_fills_the_context() -> None:
    """By what a server counted, with a margin; the reason names characters, tokens and context."""
    fit = learn_fit(CONTEXT, counted(0.25) + counted(0.3))
    assert fit.too_long(290_000, "Latin") is None
    reason = fit.too_long(292_000, "Latin")
    assert reason is not None
    assert "292,000 characters" in reason
    assert "65,536" in reason


def test_without_usage_a_table_is_asked() -> None:
    """One answer too few teaches nothing, and neither do short ones or another script."""
    for usage in (
        counted(2.0, times=ENOUGH - 1),
        [Counted("Latin", 10, 20, 1)] * 9,
        counted(2.0, "Cyrillic"),
    ):
        fit = learn_fit(CONTEXT, usage)
        assert fit.too_long(100_000, "Latin") is None
        assert fit.too_long(400_000, "Latin") is not None


def test_a_ceiling_leaves_room_for_the_request() -> None:
    """What was wanted where there is room, what the context leaves where there is less."""
    fit = learn_fit(CONTEXT, counted(0.25))
    assert fit.ceiling(4_096, 10_000, "Latin") == 4_096
    assert fit.ceiling(None, 10_000, "Latin") is None
    assert fit.ceiling(200_000, 100_000, "Latin") == CONTEXT - 27_500


@pytest.mark.parametrize("script", ["Latin", "Han", None])
@given(wanted=st.integers(1, 10**6), characters=st.integers(0, 10**6))
def test_a_ceiling_is_never_more_than_wanted_and_never_nothing(
    script: str | None, wanted: int, characters: int
) -> None:
    """Whatever the estimate says."""
    ceiling = Fit(context=CONTEXT).ceiling(wanted, characters, script)
    assert ceiling is not None
    assert 1 <= ceiling <= wanted
