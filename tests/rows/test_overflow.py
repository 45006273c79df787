"""Rows that do not fit into the context: what a server says of them tells its size, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from corpusmill import OpenAICompatible, Translate, enrich
from corpusmill.errors import TooManyFailuresError
from corpusmill.page import render
from corpusmill.rows.overflow import context_size, overflow_warning

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from corpusmill.testing import FakeEndpoint


@pytest.mark.parametrize(
    ("said", "size"),
    [
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000.",
            8192,
        ),
        ("'max_tokens' is too large: 5000. This model's maximum context length is 4,096 tokens", 4096),
        ("the input (5000 tokens) is longer than the model's context length (4096 tokens)", 4096),
        ("max_model_len is 4096, prompt has 5000", 4096),
        ("Prompt is too long: 9000 tokens > 8192 maximum", 8192),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 9000", 4096),
        ("the request exceeds the available context size (4096 tokens), try increasing it", 4096),
        ("exceeds the maximum number of tokens allowed (8192).", 8192),
        ("requested 9000, n_ctx: 2048", 2048),
        ("context length exceeded: 9000 tokens", None),
        ("the prompt of 9000 tokens is too long", None),
        ("context length is 0", None),
    ],
)
def test_the_size_of_the_context_is_read_from_what_a_server_says(said: str, size: int | None) -> None:
    """The number of the context, and not that of the request, in the words of several servers."""
    assert context_size(said) == size


@pytest.mark.parametrize(
    ("stated", "said", "advice"),
    [
        (None, "context length is 4000", "under the endpoint, context_tokens: 4000."),
        (None, "too long", "under the endpoint, context_tokens."),
        (8_000, "context length is 4000", "write context_tokens: 4000"),
        (4_000, "context length is 4000", "(4,000 tokens): shorten them"),
        (4_000, "too long", "(4,000 tokens): shorten them"),
    ],
)
def test_the_advice_goes_by_what_the_endpoint_states(stated: int | None, said: str, advice: str) -> None:
    """The size is to be stated, corrected, or is right and the texts are too long for it."""
    assert advice in overflow_warning(["", said], stated=stated)


def test_a_run_whose_rows_do_not_fit_names_the_setting_that_helps(
    tmp_path: Path, fake_endpoint_factory: Callable[..., FakeEndpoint]
) -> None:
    """The error of the run says why and what to write, the page says so once, and what it says works."""
    server = fake_endpoint_factory(context_tokens=4_000, strict_context=True)

    def translated(context_tokens: int | None) -> None:
        enrich(
            pa.table({"text": ["one", "two"]}),
            tmp_path / "out",
            Translate("text", to="de", into="text_de"),
            endpoint=OpenAICompatible(server.base_url, "any", context_tokens=context_tokens),
            store=f"sqlite:///{tmp_path / 'store.db'}",
        )

    with pytest.raises(TooManyFailuresError) as ended:
        translated(None)
    said = str(ended.value)
    assert "2 context_overflow" in said
    assert " Most often: HTTP 400: This model's maximum context length is 4000 tokens, you requested" in said
    assert "state its size under the endpoint, context_tokens: 4000." in said
    assert ended.value.report is not None
    page = render({**ended.value.report.as_dict(), "ended": said})
    assert page.count("context_tokens: 4000") == 1
    translated(4_000)
