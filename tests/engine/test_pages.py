"""Open chunks: what is held of them while their answers are waited for."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from corpusmill import Translate
from corpusmill.engine.outputs import FailureLog
from corpusmill.engine.pages import HEAVY_BYTES, Binder, OpenChunk
from corpusmill.engine.tally import Ledger
from corpusmill.exchange import read_completion
from corpusmill.rows.columns import new_fields
from corpusmill.rows.judge import Answer
from corpusmill.rows.render import Renderer

PROMPT = Translate("text", "text_lv", from_="en", to="lv")
KEPT: list[pa.Field[Any]] = [pa.field("text", pa.string())]
ROWS = 8


def opened(words: int) -> OpenChunk:
    """Open a chunk in which every row but an empty one has so many words, a placeholder and NUL, and its answer."""
    texts = [None if row == 3 else f"%s {row}\0" + " word" * words for row in range(ROWS)]
    batch = pa.record_batch([pa.array(texts, pa.string())], names=["text"])
    asked = Renderer(PROMPT, identity="somewhere").ask(batch)
    body = msgspec.json.encode(
        {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "vārds"}}]}
    )
    answers = [
        None if key is None else Answer(completion=read_completion(body), origin="live") for key in asked.keys
    ]
    return OpenChunk(0, batch, [asked], [answers])


def bound(chunk: OpenChunk) -> list[dict[str, Any]]:
    """Bind a chunk, and give its rows."""
    binder = Binder(
        prompts=[PROMPT],
        kept_columns=["text"],
        schema=pa.schema([*KEPT, *new_fields(PROMPT, telemetry=False)]),
        telemetry=False,
        ledger=Ledger([PROMPT.into]),
        failed=lambda *_: None,
    )
    return binder.bind(chunk).to_pylist()


@pytest.mark.parametrize("words", [10, HEAVY_BYTES // ROWS], ids=["light", "heavy"])
def test_a_chunk_at_rest_is_bound_like_any_other(words: int) -> None:
    """A heavy one has let its values go, and the answers are judged by them all the same."""
    chunk = opened(words)
    chunk.rest()
    assert bool(chunk.asked[0].values) == (words == 10)
    rows = bound(chunk)
    assert rows == bound(opened(words))
    notes = [row["text_lv_outcome"]["notes"] for row in rows]
    assert notes[3] == []
    for row in (0, 1, 2, 4, 5, 6, 7):
        assert {"input_cleaned", "placeholder_missing %s"} <= set(notes[row])


def test_of_a_chunk_that_will_never_be_whole_the_rows_that_are_complete_are_counted() -> None:
    """A row is complete when every prompt has its answer or asks nothing; failures among them are told by their row."""
    other = Translate("text", "text_lt", from_="en", to="lt")
    chunk, second = opened(2), opened(2)
    chunk.first_row = 100
    chunk.asked.append(Renderer(other, identity="somewhere").ask(chunk.batch))
    chunk.answers.append(second.answers[0])
    chunk.answers[0][0] = chunk.answers[1][7] = None
    chunk.answers[1][5] = Answer(error="the answer never came", kind="too_slow")
    ledger, failed = Ledger([PROMPT.into, other.into]), []
    binder = Binder(
        prompts=[PROMPT, other],
        kept_columns=["text"],
        schema=pa.schema([]),
        telemetry=False,
        ledger=ledger,
        failed=lambda row, into, _kind, _outcome, _own: failed.append((row, into)),
    )
    binder.count(chunk)
    assert list(chunk.complete()) == [1, 2, 3, 4, 5, 6]
    assert ledger.rows == 6
    assert [sum(account.outcomes.values()) for account in ledger.prompts] == [6, 6]
    assert ledger.prompts[1].outcomes["failed"] == 1
    assert ledger.prompts[1].errors == {"too_slow": 1}
    assert failed == [(105, "text_lt")]
    assert {sample.row for sample in ledger.samples} <= {101, 102, 104, 105, 106}


@pytest.mark.parametrize(
    "message",
    [
        {"content": None, "refusal": 'I cannot translate: "The patient, Ann Lee, is ill."'},
        {"content": "I'm sorry, but I cannot translate this: The patient, Ann Lee, is ill."},
    ],
)
def test_the_list_of_failures_quotes_no_answer_either(message: dict[str, str | None]) -> None:
    """An answer may say what the row says; the outcome in the dataset tells it all."""
    chunk, log = opened(2), FailureLog()
    body = json.dumps({"choices": [{"finish_reason": "stop", "message": message}]}).encode()
    chunk.answers[0][0] = Answer(completion=read_completion(body), origin="live")
    schema = pa.schema([*KEPT, *new_fields(PROMPT, telemetry=False)])
    binder = Binder(
        prompts=[PROMPT],
        kept_columns=["text"],
        schema=schema,
        telemetry=False,
        ledger=Ledger([PROMPT.into]),
        failed=log.add,
    )
    outcome = binder.bind(chunk).to_pylist()[0]["text_lv_outcome"]
    (line,) = map(json.loads, log.lines())
    log.close()
    assert "Ann Lee" in outcome["error"]
    assert line["status"] == outcome["status"] == "refused"
    assert line["error"].startswith("the model refused: …")
    assert "Ann" not in line["error"]
