"""Rows of every kind: hostile texts, all string types, blanks, repeats, none at all; and one that is slow."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.proof.material import ASK, answer_to, endpoint_at, messages_to, rows_of, store_in, table, texts

import corpusmill
from corpusmill.engine.engine import READY_BYTES, Engine
from corpusmill.testing import FakeEndpoint, expected_answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from corpusmill.engine.engine import Progress
    from corpusmill.engine.pages import OpenChunk

HOSTILE = [
    "https://example.org/picture.png",
    "s3://bucket/key",
    "/etc/passwd",
    "{text} {id} {0} {} {{text}}",
    "{% raw %}{{ 7 * 7 }}{% endraw %}",
    "line\N{LINE SEPARATOR}para\N{PARAGRAPH SEPARATOR}next\N{NEXT LINE}end",
    "zero\u200dwidth \u200fright-to-left\u202e mark",
    "CR\rLF\r\n in a cell",
    "data: [DONE]\n\ndata: {}\n",
    "a\N{COMBINING ACUTE ACCENT} and á, İstanbul, ﬁ",
    "nan",
    "null",
    "01001",
    "2024-01-01",
    "😀" * 50,
    "\ufeffmark",
    '"; DROP TABLE completions; --',
    "%s %(name)s \\N {\\an8}",
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_texts_mean_nothing_but_themselves(tmp_path: Path, endpoint: FakeEndpoint, *, stream: bool) -> None:
    """URLs, templates, separators, marks and SQL reach the endpoint and come back as they are."""
    source = pa.table({"id": range(len(HOSTILE)), "text": HOSTILE})
    corpusmill.enrich(
        source, tmp_path / "out", ASK, endpoint=endpoint_at(endpoint, stream=stream), store=store_in(tmp_path)
    )
    rows = rows_of(tmp_path / "out")
    assert [row["text"] for row in rows] == HOSTILE
    assert [row["topic"] for row in rows] == [answer_to(text) for text in HOSTILE]


def test_nul_and_what_is_no_unicode_are_replaced_and_named(tmp_path: Path, endpoint: FakeEndpoint) -> None:
    """The row is asked with U+FFFD in their place; the passed-through column is not touched."""
    data = [b"sound", b"bad \xff\xfe bytes", b"a \x00 nul", b"half \xed\xa0\x80 pair"]
    offsets = pa.py_buffer(b"".join(sum(map(len, data[:end])).to_bytes(4, "little") for end in range(5)))
    text = pa.Array.from_buffers(pa.string(), 4, [None, offsets, pa.py_buffer(b"".join(data))])
    corpusmill.enrich(
        pa.table({"id": range(4), "text": text}),
        tmp_path / "out",
        ASK,
        endpoint=endpoint_at(endpoint),
        store=store_in(tmp_path),
    )
    out = corpusmill.read(tmp_path / "out").to_table()
    assert out["text"].cast(pa.binary()).to_pylist() == data
    assert [outcome["notes"] for outcome in out["topic_outcome"].to_pylist()] == [  # type: ignore[index]
        [],
        ["input_cleaned"],
        ["input_cleaned"],
        ["input_cleaned"],
    ]
    assert out["topic"].to_pylist()[1] == answer_to(data[1].decode("utf-8", "replace"))


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_every_string_type_is_text_and_passes_through_with_its_type(
    tmp_path: Path, endpoint: FakeEndpoint, kind: pa.DataType
) -> None:
    """At the top and nested; the answers are the same."""
    column = pa.array(texts(12)).cast(kind)
    source = pa.table({"text": column, "doc": pa.StructArray.from_arrays([column], names=["body"])})
    nested = corpusmill.Ask(template="Name the topic of: {doc.body}", into="nested")
    report = corpusmill.enrich(
        source, tmp_path / "out", ASK, nested, endpoint=endpoint_at(endpoint), store=store_in(tmp_path)
    )
    assert report.live == 12
    out = corpusmill.read(tmp_path / "out").to_table()
    assert out["topic"].to_pylist() == out["nested"].to_pylist() == [answer_to(text) for text in texts(12)]
    assert out["text"].to_pylist() == texts(12)


def test_blank_rows_are_skipped_and_repeated_ones_asked_once(tmp_path: Path, endpoint: FakeEndpoint) -> None:
    """However far apart the repeats are; nulls never become a word."""
    distinct = texts(30)
    many: list[str | None] = [*distinct, None, "", " \n\t\u3000", *([None] * 3_000), *distinct]
    report = corpusmill.enrich(
        pa.table({"text": many}),
        tmp_path / "out",
        ASK,
        endpoint=endpoint_at(endpoint),
        store=store_in(tmp_path),
    )
    assert (report.live, report.skipped) == (30, 3_003)
    assert report.deduplicated + report.cached == 30
    assert endpoint.stats(details=False).requests == 30
    for row in rows_of(tmp_path / "out"):
        if row["text"] is None or not row["text"].strip():
            assert row["topic"] is None
            assert row["topic_outcome"]["status"] == "skipped"
        else:
            assert row["topic"] == answer_to(row["text"])


@pytest.mark.parametrize("values", [[], [None, None], [" "]], ids=["none", "nulls", "blank"])
@pytest.mark.parametrize("sink", ["out", "out.parquet"])
def test_a_source_without_anything_to_ask_gives_a_dataset_of_the_same_schema(
    tmp_path: Path, endpoint: FakeEndpoint, values: list[str | None], sink: str
) -> None:
    """With no row, or none that says anything; nobody is asked."""
    options: dict[str, Any] = {"endpoint": endpoint_at(endpoint), "store": store_in(tmp_path)}
    column = pa.array(values, pa.string())
    corpusmill.enrich(pa.table({"text": column}), tmp_path / sink, ASK, **options)
    assert endpoint.stats(details=False).requests == 0
    corpusmill.enrich(pa.table({"text": texts(3)}), tmp_path / f"full-{sink}", ASK, **options)
    empty, full = corpusmill.read(tmp_path / sink), corpusmill.read(tmp_path / f"full-{sink}")
    assert empty.schema == full.schema
    assert empty.count_rows() == len(values)


def test_a_row_that_hangs_holds_up_no_other(tmp_path: Path, endpoint: FakeEndpoint) -> None:
    """When its second try comes, all others have been answered, though only two may be out at once."""
    slow = texts(1)[0]
    received: list[str] = []

    def script(request: Mapping[str, Any], attempt: int) -> str | None:
        received.append(request["messages"][0]["content"])
        return "stall" if attempt == 1 and request["messages"] == messages_to(slow) else None

    endpoint.script(script)
    report = corpusmill.enrich(
        table(80),
        tmp_path / "out",
        ASK,
        endpoint=endpoint_at(endpoint),
        store=store_in(tmp_path),
        limits=corpusmill.Limits(concurrency=2, read_timeout=3.0),
    )
    assert report.outcomes == {"completed": 80}
    assert received[-1] == messages_to(slow)[0]["content"]
    assert len(received) == 81


def test_batches_come_out_in_order_whatever_the_order_of_the_answers(
    tmp_path: Path, endpoint: FakeEndpoint
) -> None:
    """A stream keeps its order and its length."""
    endpoint.configure(latency={"mean": 0.003, "sigma": 1.5})
    source = table(600)
    batches = list(
        corpusmill.enrich_batches(
            source.to_batches(max_chunksize=50), ASK, endpoint=endpoint_at(endpoint), store=store_in(tmp_path)
        )
    )
    out = pa.Table.from_batches(batches)
    assert out["id"].to_pylist() == list(range(600))
    assert out["topic"].to_pylist() == [answer_to(text) for text in texts(600)]


def test_a_stream_may_give_its_next_batch_only_when_the_last_one_has_come_out(
    tmp_path: Path, endpoint: FakeEndpoint
) -> None:
    """Nothing waits for rows that nobody has: what was read is asked, bound and handed out."""
    handed_out = threading.Event()
    waited = []

    def source() -> Iterator[pa.RecordBatch]:
        for batch in table(60).to_batches(max_chunksize=20):
            yield batch
            waited.append(handed_out.wait(20))
            handed_out.clear()

    rows = 0
    for batch in corpusmill.enrich_batches(
        source(), ASK, endpoint=endpoint_at(endpoint), store=store_in(tmp_path)
    ):
        rows += batch.num_rows
        handed_out.set()
    assert rows == 60
    assert waited == [True] * 3


def test_whoever_leaves_a_stream_early_stops_the_asking_and_keeps_what_was_paid(
    tmp_path: Path, endpoint: FakeEndpoint
) -> None:
    """Closing the iterator is enough; the next one goes on."""
    endpoint.configure(latency=0.005)
    source = table(600).to_batches(max_chunksize=20)
    options: dict[str, Any] = {
        "endpoint": endpoint_at(endpoint),
        "store": store_in(tmp_path),
        "limits": corpusmill.Limits(concurrency=4),
    }
    stream = corpusmill.enrich_batches(source, ASK, **options)
    next(iter(stream))
    stream.close()  # type: ignore[attr-defined]
    left = endpoint.stats(details=False)
    assert left.computed < 600
    reports: list[corpusmill.RunReport] = []
    rows = sum(
        batch.num_rows
        for batch in corpusmill.enrich_batches(source, ASK, on_report=reports.append, **options)
    )
    assert rows == 600
    assert endpoint.stats(details=False).computed == 600
    assert reports[0].cached == left.computed


def test_progress_counts_no_row_that_has_no_answer(
    tmp_path: Path, endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one that was read a moment ago and has not come to be asked."""
    admit = Engine._admit
    shown: list[Progress] = []

    def admit_and_look(engine: Engine, chunk: OpenChunk) -> None:
        engine._report_progress("reading")
        admit(engine, chunk)

    monkeypatch.setattr(Engine, "_admit", admit_and_look)
    stream = corpusmill.enrich_batches(
        table(60).to_batches(max_chunksize=20),
        ASK,
        endpoint=endpoint_at(endpoint),
        store=store_in(tmp_path),
        progress=shown.append,
    )
    assert sum(batch.num_rows for batch in stream) == 60
    assert all(progress.rows <= progress.live for progress in shown)
    assert shown[-1].rows == 60


def test_of_long_rows_few_are_made_ready_before_they_can_be_asked(
    tmp_path: Path, endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits takes several times the bytes of its rows: no more is read while there is enough of it."""
    admit = Engine._admit
    waiting: list[int] = []

    def admit_and_count(engine: Engine, chunk: OpenChunk) -> None:
        waiting.append(len(engine._ready))
        admit(engine, chunk)

    monkeypatch.setattr(Engine, "_admit", admit_and_count)
    row_bytes = READY_BYTES // 80
    long = [f"{row} " + "x" * row_bytes for row in range(240)]
    report = corpusmill.enrich(
        pa.table({"text": long}),
        tmp_path / "out",
        ASK,
        endpoint=endpoint_at(endpoint),
        store=store_in(tmp_path),
        limits=corpusmill.Limits(concurrency=2),
    )
    assert report.outcomes == {"completed": 240}
    assert len(waiting) >= 3
    assert 0 < max(waiting) <= 80


def test_a_source_that_breaks_off_while_it_is_waited_for_is_told_of_once(
    tmp_path: Path, endpoint: FakeEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error is raised where the batches are taken, and nothing else complains of it."""
    handed_out = threading.Event()

    def source() -> Iterator[pa.RecordBatch]:
        yield from table(20).to_batches()
        handed_out.wait(20)
        raise OSError("the line is dead")

    stream = corpusmill.enrich_batches(
        source(), ASK, endpoint=endpoint_at(endpoint), store=store_in(tmp_path)
    )
    assert next(stream).num_rows == 20
    handed_out.set()
    with pytest.raises(OSError, match="the line is dead"):
        next(stream)
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_whoever_leaves_a_stream_does_not_wait_for_a_silent_source(
    tmp_path: Path, endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can interrupt the source; its thread is left to itself, and keeps no process alive."""
    monkeypatch.setattr("corpusmill.engine.reading.LAST_MOMENT", 0.01)
    said_something = threading.Event()

    def source() -> Iterator[pa.RecordBatch]:
        yield from table(20).to_batches()
        said_something.wait(60)

    stream = corpusmill.enrich_batches(
        source(), ASK, endpoint=endpoint_at(endpoint), store=store_in(tmp_path)
    )
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    left = [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("corpusmill") and "fake" not in thread.name
    ]
    said_something.set()
    assert [thread.name for thread in left] == ["corpusmill-source"]
    assert left[0].daemon
    left[0].join()


HELD = """
import sys, threading
import corpusmill, pyarrow as pa
def source():
    yield pa.record_batch({"text": ["a text"]})
    threading.Event().wait()
stream = corpusmill.enrich_batches(
    source(), corpusmill.Ask(template="{text}", into="topic"),
    endpoint=corpusmill.OpenAICompatible(sys.argv[1], "any"), store=f"sqlite:///{sys.argv[2]}/store.db",
)
for batch in stream:
    raise ValueError("the consumer has broken")
"""


def test_a_program_ends_though_it_still_holds_a_stream(tmp_path: Path, endpoint: FakeEndpoint) -> None:
    """As it does after an error in the loop; and though the source is silent."""
    ended = subprocess.run(
        [sys.executable, "-c", HELD, endpoint.base_url, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "ValueError: the consumer has broken"


def test_of_several_choices_the_first_fills_the_column_and_all_can_be_had(
    tmp_path: Path, endpoint: FakeEndpoint
) -> None:
    """With `n` above 1; other fields of the response become columns too."""
    ask = corpusmill.Ask(
        template="Name the topic of: {text}",
        into="topic",
        n=3,
        returns={"choices": "all", "usage.completion_tokens": "tokens", "finish_reason": "why"},
    )
    corpusmill.enrich(
        table(5), tmp_path / "out", ask, endpoint=endpoint_at(endpoint), store=store_in(tmp_path)
    )
    for row in rows_of(tmp_path / "out"):
        first = expected_answer(messages_to(row["text"]))
        assert row["topic"] == first
        assert row["all"] == [first, f"{first} (choice 1)", f"{first} (choice 2)"]
        assert row["why"] == "stop"
        assert int(row["tokens"]) == row["topic_outcome"]["completion_tokens"]
