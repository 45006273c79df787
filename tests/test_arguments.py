"""What `enrich` and `enrich_batches` say of an argument that is not the object it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from corpusmill import (
    Ask,
    CorpusmillError,
    FailurePolicy,
    Limits,
    OpenAICompatible,
    RetryPolicy,
    enrich,
    enrich_batches,
)
from corpusmill.errors import UsageError
from corpusmill.running import Conduct

if TYPE_CHECKING:
    from pathlib import Path

TABLE = pa.table({"text": ["a"]})
ASK = Ask("Topic of {text}", into="topic")
NOWHERE = OpenAICompatible("http://127.0.0.1:9/v1", "any")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limits": {"concurrency": 4}}, ["limits is {'concurrency': 4}", "limits=Limits(concurrency=64)"]),
        ({"limits": {}}, ["limits is {}", "limits=Limits("]),
        ({"limits": Limits}, ["limits is the class Limits"]),
        ({"retry": 3}, ["retry is 3", "retry=RetryPolicy("]),
        ({"failures": 0.1}, ["failures is 0.1", "failures=FailurePolicy(max_failed="]),
        ({"budget": 1_000}, ["budget is 1000", "budget=Budget(tokens="]),
        ({"endpoint": "http://x/v1"}, ["endpoint is of the type str", "OpenAICompatible(base_url, model)"]),
        ({"endpoint": OpenAICompatible}, ["endpoint is the class OpenAICompatible"]),
        ({"prompts": ["Topic of {text}"]}, ["a prompt is 'Topic of {text}', of the type str", "Ask("]),
        ({"prompts": [Ask]}, ["a prompt is the class Ask"]),
        ({"prompts": [[ASK]]}, ["given as a list", "*prompts"]),
    ],
)
def test_an_argument_that_is_none_is_named_with_what_was_given_and_what_to_write(
    tmp_path: Path, given: dict[str, Any], said: list[str]
) -> None:
    """And nothing is sent or written, by `enrich` as by `enrich_batches`."""
    prompts = given.get("prompts", [ASK])
    options = {"endpoint": NOWHERE, **{name: value for name, value in given.items() if name != "prompts"}}
    for call in (
        lambda: enrich(TABLE, tmp_path / "out", *prompts, **options),
        lambda: list(enrich_batches(TABLE, *prompts, **options)),
    ):
        with pytest.raises(UsageError) as caught:
            call()
        assert all(words in str(caught.value) for words in said)
    assert not list(tmp_path.iterdir())


def test_an_endpoint_that_is_none_is_not_shown(tmp_path: Path) -> None:
    """A mapping that somebody hands over in its place may hold a key."""
    given: Any = {"base_url": "http://127.0.0.1:9/v1", "api_key": "secret-of-mine"}
    with pytest.raises(CorpusmillError) as caught:
        enrich(TABLE, tmp_path / "out", ASK, endpoint=given)
    assert "secret-of-mine" not in str(caught.value)


def test_how_a_run_behaves_shows_no_password() -> None:
    """The URL of a store may hold one, and objects are shown in tracebacks."""
    conduct = Conduct(
        store="postgresql://me:hush@host/db",
        mode="read-write",
        refresh=None,
        limits=Limits(),
        retry=RetryPolicy(),
        failures=FailurePolicy(),
        budget=None,
        prices=None,
    )
    assert "hush" not in repr(conduct)
