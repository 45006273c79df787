"""The keys of requests as they are: another one would buy again what is stored."""

from __future__ import annotations

import pyarrow as pa
import pytest

from corpusmill import Answer, Ask, Column, Extract, Summarise, Translate
from corpusmill.rows.render import Renderer

BATCH = pa.RecordBatch.from_pydict({"text": ["ein Text"], "n": [4], "doc": [{"body": "b"}], "a b": ["c"]})
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("prompt", "key"),
    [
        (
            Ask('Of {text}: {column: 1} {column:"a"} {column:} {"a": {literal:n}}', into="x"),
            "82ef6818d9d2e683207e6a2da49a5d0afac504c8",
        ),
        (
            Ask("{text}", into="x", system="{text} {doc.body}", vary_by="n"),
            "02c8fd82c4030c8a505ff7be618ae146ae2b566a",
        ),
        (Translate("text", "x", to="lv", vary_by="n"), "8aee0068323d8d8bf9b5d7beb305da0354569ff0"),
        (Summarise("doc.body", "x", length=5), "f9b7df60abb40a8dd9cde1272c7d2b3b8cb01bc9"),
        (Answer("Why?", Column("a b"), "x"), "08f579f001a7ce7d15b9ef7e4412043404cf7cee"),
        (Extract("text", "x", schema=SCHEMA), "d6afe8bbf6c7a01e844e4199c10921f88e12288e"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_request_has_the_key_that_it_always_had(prompt: Ask, key: str) -> None:
    """Whatever else a prompt learns to take."""
    (found,) = Renderer(prompt, identity="i").ask(BATCH).keys
    assert found is not None
    assert found.hex() == key
