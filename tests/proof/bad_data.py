"""Any table that Arrow can hold, through a whole run: right output, or a clear error before anything is sent.

`tests/proof/test_bad_data.py` tries a few, `benchmarks/bad_data.py` as many as it is told to, and larger ones.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from pyarrow import ipc
from tests.tables.anything import TYPES

import corpusmill
from corpusmill.errors import PromptError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


BEFORE = "Topic of: "
ASK = corpusmill.Ask(template=f"{BEFORE}{{text}}", into="out")
FORMS = ("table", "reader", "parquet", "no groups", "arrow", "stream")
"""How rows may come. A Parquet file without rows has one row group of none, or no row group at all."""

NAMES = (
    "text",
    "id",
    "a.b",
    "b",
    "Тема",
    "x y",
    "TEXT",
    "out",
    "out_outcome",
    "{text}",
    "",
    "_row",
    "lang=no",
)
WORDS = (
    "",
    " ",
    "word",
    "два слова",
    "line\u2028end",
    "\0",
    "data: [DONE]\n\n",
    "\ufeffmark",
    "{text}",
    "😀",
)


INVISIBLE = "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad"
"""What is no space and shows nothing: zero width, marks of direction, the byte order mark, the soft hyphen."""


def answer_to(content: str) -> str:
    """Give the answer to what was sent: no other content has it."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass
class Answering:
    """A transport that answers each request with a digest of it, and keeps what was asked."""

    asked: list[str] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        content = json.loads(request.content)["messages"][-1]["content"]
        self.asked.append(content)
        choice = {"index": 0, "finish_reason": "stop", "message": {"content": answer_to(content)}}
        return httpx.Response(200, json={"choices": [choice]})


@dataclass(frozen=True, kw_only=True)
class Came:
    """What a run came to: its output or its error, and what it had asked by then."""

    output: pa.Table | None
    error: corpusmill.CorpusmillError | None
    asked: Sequence[str]


def text_of(parts: Sequence[bytes | None]) -> pa.Array[Any]:
    """Make a column that says it is text, of any bytes."""
    return pa.array(parts, pa.binary()).view(pa.string())


texts = st.lists(st.none() | st.sampled_from(WORDS) | st.text(max_size=6), max_size=9)
raw_texts = st.lists(st.none() | st.binary(max_size=6) | st.just(b"half \xed\xa0\x80"), max_size=9)


@st.composite
def sources(draw: st.DrawFn) -> pa.Table:
    """A table with columns of any types under odd names, some of them twice, in chunks, some of them empty."""
    first = draw(texts.map(lambda cells: pa.array(cells, pa.string())) | raw_texts.map(text_of))
    kind = draw(st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]))
    columns: list[Any] = [first if kind == pa.string() else first.cast(pa.binary()).cast(kind, safe=False)]
    rows = len(first)
    for type_, values in draw(st.lists(TYPES, max_size=3)):
        cells = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
        columns.append(pa.array(cells, type_))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=len(columns), max_size=len(columns)))
    if draw(st.booleans()):
        names[0] = "text"
    table = pa.Table.from_arrays(columns, names=names)
    cut = draw(st.integers(0, rows))
    return pa.concat_tables([table.slice(0, cut), table.slice(cut, 0), table.slice(cut)])


@st.composite
def prompts(draw: st.DrawFn) -> corpusmill.Ask:
    """A prompt that asks about some column, which may be there, into one that may be there too; or the plain one."""
    asked, into = draw(st.sampled_from(["text", *NAMES])), draw(st.sampled_from(["out", *NAMES]))
    try:
        return corpusmill.Ask(template=f"{BEFORE}{{{asked}}}", into=into)
    except PromptError:
        return ASK  # refused before there is a run


def given_as(table: pa.Table, form: str, folder: Path) -> Any:
    """Give the table in one of the forms; None when that form cannot hold it."""
    if form == "table":
        return table
    if form == "reader":
        return table.to_reader(max_chunksize=4)
    path = folder / "corpus.parquet"
    try:
        if form in {"arrow", "stream"}:
            path = path.with_suffix(".arrow")
            opened = ipc.new_file if form == "arrow" else ipc.new_stream
            with opened(str(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=3)
        elif form == "parquet":
            pq.write_table(table, path, row_group_size=3)
        else:
            with pq.ParquetWriter(path, table.schema):
                pass
    except (pa.ArrowException, NotImplementedError, ValueError):
        return None
    return path


def run(source: Any, prompt: corpusmill.Ask, folder: Path, *, sink: str = "out") -> Came:
    """Ask about each row of a source; whatever else than a corpusmill error is raised goes on upwards."""
    answering = Answering()
    try:
        corpusmill.enrich(
            source,
            folder / sink,
            prompt,
            endpoint=corpusmill.OpenAICompatible("http://127.0.0.1:9/v1", "any"),
            store=f"sqlite:///{folder / 'store.db'}",
            mode="off",
            transport=httpx.MockTransport(answering),
            failures=corpusmill.FailurePolicy(max_failed=1.0),
        )
    except corpusmill.CorpusmillError as error:
        return Came(output=None, error=error, asked=answering.asked)
    return Came(output=corpusmill.read(folder / sink).to_table(), error=None, asked=answering.asked)


def check(table: pa.Table, prompt: corpusmill.Ask, came: Came) -> None:
    """Either an error before anything was sent, or every row as it was and beside it what belongs to it."""
    if came.error is not None:
        assert not came.asked, f"{len(came.asked)} requests were sent before: {came.error}"
        assert type(came.error) is not corpusmill.CorpusmillError
        assert len(str(came.error)) > 20
        return
    assert came.output is not None
    output = came.output
    assert output.num_rows == table.num_rows
    assert output.column_names[: table.num_columns] == table.column_names
    for name in table.column_names:
        assert cells(output, name) == cells(table, name), name
    assert prompt.template is not None
    asked = prompt.template.removeprefix(BEFORE)[1:-1]
    column = cells(table, asked) if asked in table.column_names else None
    for row, (given, outcome) in enumerate(
        zip(output[prompt.into].to_pylist(), output[f"{prompt.into}_outcome"].to_pylist(), strict=True)
    ):
        assert outcome is not None
        status = outcome["status"]
        if column is None or not isinstance(column[row], bytes):
            assert status in {"completed", "skipped", "failed"}
            continue
        text = cleaned(column[row])
        if not any(is_visible(character) for character in text):
            assert (status, given) == ("skipped", None), (row, text)
        else:
            assert (status, given) == ("completed", answer_to(BEFORE + text)), (row, text)
    assert len(came.asked) == len(set(came.asked))


def cells(table: pa.Table, name: str) -> list[Any]:
    """Give the cells of a column; text as its bytes, since it may be no text."""
    column = table[name]
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return [None if cell is None else cell for cell in column.cast(pa.large_binary()).to_pylist()]
    return list(column.to_pylist())


def is_visible(character: str) -> bool:
    """Tell whether there is something to ask about in a text that has this character."""
    return not character.isspace() and character not in INVISIBLE


def cleaned(raw: bytes) -> str:
    """What is sent of a cell: NUL, and what is no Unicode, are replaced; half a pair of surrogates by one character."""
    try:
        text = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "replace")
    return re.sub("[\0\ud800-\udfff]", "\ufffd", text)


def try_one(table: pa.Table, prompt: corpusmill.Ask, form: str, *, sink: str = "out") -> Came | None:
    """Put one table through one run in one form; None when that form cannot hold it."""
    folder = Path(tempfile.mkdtemp(prefix="corpusmill-bad-"))
    try:
        source = given_as(table, form, folder)
        if source is None:
            return None
        came = run(source, prompt, folder, sink=sink)
        check(table.slice(0, 0) if form == "no groups" else table, prompt, came)
        return came
    finally:
        shutil.rmtree(folder)


def large(megabytes: int, rows: int) -> Iterator[str]:
    """Give texts of so many megabytes, each of its own."""
    for row in range(rows):
        yield f"{row} " + "word " * (megabytes * 1024 * 1024 // 5 + 1)


def wide(columns: int, rows: int) -> pa.Table:
    """Give a table of so many columns, whose last one is the text."""
    made: dict[str, Any] = {f"c{number}": pa.array(range(rows)) for number in range(columns - 1)}
    return pa.table({**made, "text": [f"row {row}" for row in range(rows)]})
