"""`enrich_batches` over batches whose schema changes on the way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pytest

from corpusmill import Ask, OpenAICompatible, enrich_batches
from corpusmill.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST = pa.record_batch({"text": ["one"], "key": ["k1"], "of": [{"the": "row"}]})


class Stream:
    """A stream of two batches, and the requests that were made of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        text = json.loads(request.content)["messages"][-1]["content"]
        self.asked.append(text)
        message = {"role": "assistant", "content": f"to {text}"}
        return httpx.Response(
            200, json={"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        )

    def rows(self, later: dict[str, Any], template: str = "{text}", **options: Any) -> list[dict[str, Any]]:
        """Give the rows that come out where this batch follows the first one."""

        def batches() -> Iterator[pa.RecordBatch]:
            yield FIRST
            yield pa.record_batch(later)

        found = enrich_batches(
            batches(),
            Ask(template, into="answer"),
            endpoint=OpenAICompatible("http://127.0.0.1:9/v1", "m"),
            transport=httpx.MockTransport(self.answer),
            store=f"sqlite:///{self.folder}/store.db",
            **options,
        )
        return [row for batch in found for row in batch.to_pylist()]


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """A stream with a store of its own."""
    return Stream(tmp_path)


LATER = {"text": ["two"], "key": ["k2"], "of": [{"the": "row"}]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"text": [2]}, "batch 2 of the stream has the column 'text' as int64, which is string in the first"),
        ({"key": [2]}, "batch 2 of the stream has the column 'key' as int64, which is string in the first"),
        ({"key": None}, "batch 2 of the stream has no column 'key', which is string in the first"),
        ({"of": [{"the": 2}]}, "batch 2 of the stream has the column 'of' as struct<the: int64>, which is"),
    ],
)
def test_a_later_batch_of_another_schema_is_named_before_it_is_asked(
    stream: Stream, change: dict[str, Any], said: str
) -> None:
    """A column that a prompt reads as well as one that is only kept."""
    later = {name: values for name, values in {**LATER, **change}.items() if values is not None}
    with pytest.raises(SourceError, match=said):
        stream.rows(later)
    assert "two" not in stream.asked


def test_a_later_batch_that_means_the_same_goes_on(stream: Stream) -> None:
    """Columns in another order, in other layouts, and one more."""
    later = {
        "more": [1],
        "key": pa.array(["k2"]).dictionary_encode(),
        "of": [{"the": "row"}],
        "text": pa.array(["two"], pa.large_string()),
    }
    rows = stream.rows(later)
    assert [(row["text"], row["key"], row["answer"]) for row in rows] == [
        ("one", "k1", "to one"),
        ("two", "k2", "to two"),
    ]
    assert "more" not in rows[0]


def test_only_columns_that_are_read_or_kept_need_to_be_there(stream: Stream) -> None:
    """A member of a struct is read of a column as well."""
    later = {"text": [2], "of": [{"the": "second row"}]}
    rows = stream.rows(later, "{of.the}", columns=["of"])
    assert [row["answer"] for row in rows] == ["to row", "to second row"]
    with pytest.raises(SourceError, match="has no column 'of'"):
        stream.rows({"text": ["two"]}, "{of.the}", columns=["text"])
