from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from corpusmill import OpenAICompatible, enrich
from corpusmill.prompts.ask import Ask
from corpusmill.rows.prompt_cut import is_prompt_cut, prompt_cut_warning
from corpusmill.rows.render import Asked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from corpusmill.testing.server import FakeEndpoint

PROSE = "The library is closed for repairs until August. "


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        (PROSE * 200, 2_000, False),
        (PROSE * 200, 801, False),
        (PROSE * 200, 790, True),
        (PROSE * 200, 8, True),
        (PROSE * 200, None, False),
        (PROSE * 41, 8, False),
        (PROSE * 42, 8, True),
        ("=" * 50_000, 400, False),
        (" " * 50_000 + PROSE, 400, False),
        ("字" * 10 + PROSE * 200, 0, True),
    ],
)
def test_a_count_far_below_what_was_sent_betrays_a_cut_prompt(
    text: str,
    tokens: int | None,
    expected: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """From 2,000 characters on, below a token for twelve of them, runs of one sign counted once."""
    assert is_prompt_cut(Asked(Ask("{text}", into="x"), [(text,)]), 0, tokens) is expected
    parts = [{"role": "user", "content": [{"type": "text", "text": text}, {"type": "image_url"}]}]
    asked = Asked(Ask(messages={"column": "messages"}, into="x"), [(parts,)])
    assert is_prompt_cut(asked, 0, tokens) is expected


def test_what_is_not_sent_does_not_count() -> None:
    """A long value that only tells draws apart is not on the wire."""
    asked = Asked(Ask("{text}", into="x", vary_by="draw"), [("short", PROSE * 200)])
    assert not is_prompt_cut(asked, 0, 8)


def test_the_report_says_once_that_prompts_were_cut(
    tmp_path: Path, fake_endpoint_factory: Callable[..., FakeEndpoint]
) -> None:
    """Each row has the note, from the store too, and the report has one line for all."""
    endpoint = fake_endpoint_factory(faults={"prompt_cut": 1.0})
    table = pa.table({"text": [PROSE * 200 + str(row) for row in range(3)] + ["short"]})
    for again in (False, True):
        report = enrich(
            table,
            tmp_path / f"out-{again}",
            Ask("{text}", into="out"),
            endpoint=OpenAICompatible(endpoint.base_url, "any"),
            store=f"sqlite:///{tmp_path / 'store.db'}",
        )
        assert report.prompts[0].notes == {"prompt_cut": 3}
        assert report.warnings == [prompt_cut_warning(3)]
    assert prompt_cut_warning(3).startswith("3 rows: the server counted far fewer tokens than were sent")
    assert prompt_cut_warning(1).startswith("1 row: ")
