"""Whatever servers answer and rows hold, a batch comes out of it, and nothing ends a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpusmill import FailurePolicy, OpenAICompatible, enrich
from corpusmill import read as corpusmill_read
from corpusmill.exchange import NotACompletionError, read_completion
from corpusmill.plan import check_input
from corpusmill.prompts.ask import Ask
from corpusmill.prompts.extract import Extract
from corpusmill.prompts.translate import Translate
from corpusmill.rows.columns import Filling, new_fields
from corpusmill.rows.judge import Answer, judge
from corpusmill.rows.render import Renderer, characters
from corpusmill.rows.script import script_of_messages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from corpusmill.exchange import Completion
    from corpusmill.prompts.prompt import Prompt

RETURNS = {
    "reasoning": "why",
    "tool_calls": "calls",
    "choices": "all",
    "created": "at",
    "usage.completion_tokens": "tokens",
    "usage.total_latency": "seconds",
    "deep.down": "deep",
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"type": "string"},
        "b": {"type": "array", "items": {"type": "integer"}},
        "c": {},
        "d": {"type": "number"},
    },
}
PROMPTS: list[Prompt] = [
    Ask("{text}", into="out", returns=RETURNS),
    Translate("text", "out", to="lv", returns=RETURNS),
    Extract(
        "text",
        "out",
        schema=SCHEMA,
        returns=RETURNS,
    ),
]

anything = st.characters() | st.sampled_from(["\0", "\ud800", "\udc00", "\u200b"])
texts = st.text(anything, max_size=8)
numbers = (
    st.integers()
    | st.floats()
    | st.sampled_from([2**63, -(2**63) - 1, 2**64, 10**40, float("nan"), float("inf"), -1, 5, True])
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
extracted = st.dictionaries(st.sampled_from(["a", "b", "c", "d", "\ud800"]), values).map(json.dumps)
endings = st.sampled_from(["stop", "length", "content_filter", "tool_calls", "EOS", "odd\ud800", None])


def with_some(known: dict[str, Any], **more: Any) -> Any:
    """Make objects with any of the known members."""
    return st.fixed_dictionaries(known, optional=more) | values


messages = with_some(
    {"content": texts | extracted | st.none() | values},
    refusal=values,
    reasoning=values,
    tool_calls=values,
    role=values,
)
choices = with_some({"message": messages}, finish_reason=endings | values, index=values)
bodies = with_some(
    {"choices": st.lists(choices, max_size=3)},
    model=values,
    usage=with_some({}, prompt_tokens=numbers, completion_tokens=numbers, total_latency=numbers),
    created=values,
    deep=values,
)


def read(body: bytes) -> Completion | None:
    """Read a body; None for what is no answer."""
    try:
        return read_completion(body)
    except NotACompletionError:
        return None


def table_of(prompt: Prompt, answers: list[Answer]) -> pa.Table:
    """Build the columns of a prompt from answers, as a run does."""
    filling = Filling(prompt, telemetry=True)
    for answer in answers:
        outcome, value = judge(prompt, ("row",), answer, b"k" * 20, cleaned=False, cut=False)
        filling.add(outcome, value, answer.completion)
    table = pa.Table.from_arrays(filling.arrays(), schema=pa.schema(new_fields(prompt, telemetry=True)))
    table.validate(full=True)
    return table


def texts_in(value: object) -> Iterator[str]:
    """Give all texts in rows, names of members too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        yield from texts_in(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)


@given(body=bodies.map(json.dumps).map(str.encode), error=texts, request_id=texts)
@example(
    body=rb'{"choices": [{"message": {"content": "{\"a\": \"\\u0000\"}"}, "finish_reason": "stop"}]}',
    error="",
    request_id="",
)
def test_any_body_is_no_answer_or_gives_a_row(body: bytes, error: str, request_id: str) -> None:
    """Halves of pairs, NaN, huge numbers, members of any type: a row of the declared types, that JSON can hold."""
    completion = read(body)
    answers = [Answer(error=error, request_id=request_id)]
    if completion is not None:
        answers.append(Answer(completion))
        for count in (completion.prompt_tokens, completion.completion_tokens):
            assert count is None or 0 <= count < 2**63
    for prompt in PROMPTS:
        table = table_of(prompt, answers)
        assert table.num_rows == len(answers)
        json.dumps(table.to_pylist(), ensure_ascii=False, default=str).encode()
        assert not [text for text in texts_in(table.to_pylist()) if "\0" in text]


@pytest.mark.parametrize(
    ("field", "written"),
    [
        ("reasoning", rb'"a\ud800b"'),
        ("reasoning", rb'"a\u0000b"'),
        ("tool_calls", rb'[{"arguments": "\udfff"}]'),
        ("tool_calls", b'{"n": NaN, "huge": 1e400}'),
        ("tool_calls", b"[" * 300 + b"]" * 300),
    ],
)
def test_what_no_file_can_hold_is_cleaned_in_returned_fields(field: str, written: bytes) -> None:
    """The value beside them stays, and text that was changed is noted."""
    body = b'{"choices": [{"message": {"content": "fine", "%b": %b}, "finish_reason": "stop"}]}' % (
        field.encode(),
        written,
    )
    table = table_of(PROMPTS[0], [Answer(read_completion(body))])
    assert table["out"].to_pylist() == ["fine"]
    (outcome,) = table["out_outcome"].to_pylist()
    assert outcome is not None
    assert outcome["notes"] == (["output_cleaned"] if b"\\u" in written else [])


def test_a_number_that_the_column_cannot_hold_is_null() -> None:
    """Counts beyond 64 bits, seconds beyond a float, and numbers where text was expected."""
    body = (
        b'{"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}], "created": 1e400,'
        b'"usage": {"completion_tokens": 99999999999999999999, "total_latency": NaN}, "deep": {"down": 1%b}}'
    ) % (b"0" * 500)
    (row,) = table_of(PROMPTS[0], [Answer(read_completion(body))]).to_pylist()
    assert (row["at"], row["tokens"], row["seconds"], row["deep"]) == (None, None, None, None)
    assert row["out"] == "fine"


@pytest.mark.parametrize("reason", ["length", "content_filter", "stop"])
def test_text_that_was_not_read_is_no_value_of_another_type(reason: str) -> None:
    """Half an answer fills a column of text, and stands in the error where the column holds data."""
    called = (
        {"content": "half ", "tool_calls": [{}]} if reason != "stop" else {"content": " ", "tool_calls": [{}]}
    )
    body = json.dumps({"choices": [{"message": called, "finish_reason": reason}]}).encode()
    answer = Answer(read_completion(body))
    assert table_of(PROMPTS[1], [answer])["out"].to_pylist() == [called["content"]]
    (row,) = table_of(PROMPTS[2], [answer]).to_pylist()
    assert row["out"] is None
    assert reason == "stop" or row["out_outcome"]["error"].endswith(": half ")


ASKS = {
    "messages": Ask(into="out", messages={"column": "cell"}),
    "tools": Ask("{text}", into="out", tools={"column": "cell"}),
    "part": Ask(
        into="out",
        messages=[{"role": "user", "content": [{"text": "{text}"}, {"image": {"column": "cell"}}]}],
    ),
    "field": Ask(into="out", messages=[{"role": "user", "content": "{text}", "name": {"column": "cell"}}]),
}


def refuse_nothing(_parameters: object, _messages: object) -> None:
    """Take all messages."""


def rendered(cells: pa.Array[Any], asked: str) -> list[str | None]:
    """Render rows with these cells; give the reason why a row cannot be asked, None for one that can."""
    column = pa.array(["text"] * len(cells), pa.string())
    batch = pa.RecordBatch.from_arrays([column, cells], names=["text", "cell"])
    found = Renderer(ASKS[asked], identity="i", check=refuse_nothing).ask(batch)
    assert len(found.keys) == len(found.ceilings) == len(found.values) == len(cells)
    for row, key in enumerate(found.keys):
        if key is not None:
            messages = found.rendered(row).messages
            assert characters(messages) >= 0
            script_of_messages(messages)
    return [found.unaskable.get(row) for row in range(len(cells))]


roles = st.sampled_from(["user", "assistant", "nobody"]) | values
conversations = st.lists(st.fixed_dictionaries({"role": roles, "content": values}) | values, max_size=3)


@given(cell=(conversations | values).map(json.dumps), asked=st.sampled_from(["messages", "tools", "field"]))
def test_any_json_cell_gives_a_request_or_a_reason(cell: str, asked: str) -> None:
    """Also beside a row that is fine."""
    good = json.dumps([{"role": "user", "content": "x"}])
    assert rendered(pa.array([cell, good]), asked)[1] is None


@given(data=st.lists(st.none() | st.binary(max_size=12), max_size=4), asked=st.sampled_from(sorted(ASKS)))
def test_any_bytes_give_a_request_or_a_reason(data: list[bytes | None], asked: str) -> None:
    """As bytes, and as what should be text and is none."""
    rendered(pa.array(data, pa.binary()), asked)
    if asked != "part":
        rendered(pa.array(data, pa.binary()).view(pa.string()), asked)


ARROW: list[pa.Array[Any]] = [
    pa.array([1, None]),
    pa.array([float("nan"), float("inf")]),
    pa.array([10**18, 0], pa.timestamp("s")),
    pa.array([1, 0], pa.timestamp("ns")),
    pa.array([1, 0], pa.duration("ns")),
    pa.array([[("role", "user")], None], pa.map_(pa.string(), pa.string())),
    pa.array([[(1, "x")], []], pa.map_(pa.int64(), pa.string())),
    pa.array([{"role": "user", "content": "x"}, None]),
    pa.array([[{"role": "user", "content": 1}], [{"role": None}]]),
    pa.array([[{"role": "user", "content": [{"text": 7}]}], None]),
    pa.array([[{"role": "user", "content": b"\xff"}], []]),
    pa.array([[{"role": "user", "at": 2**62}]]).cast(
        pa.list_(pa.struct([("role", pa.string()), ("at", pa.timestamp("s"))]))
    ),
    pa.array([["a"], ["b"]], pa.large_list(pa.string())),
    pa.array([["a"], ["b"]], pa.list_(pa.string(), 1)),
    pa.array(["a", None]).dictionary_encode(),
    pa.ExtensionArray.from_storage(pa.json_(), pa.array(["[]", None])),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None], pa.binary(16))),
    pa.nulls(2),
]


@pytest.mark.parametrize("asked", ["messages", "tools", "field"])
@pytest.mark.parametrize("cells", ARROW, ids=lambda cells: str(cells.type))
def test_any_arrow_type_gives_a_request_or_a_reason(cells: pa.Array[Any], asked: str) -> None:
    """What is no list of messages, no tool and nothing that JSON knows costs its own row."""
    rendered(cells, asked)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ('[{"role": []}]', "has the role []"),
        ('[{"role": {"a": 1}}]', "has the role {'a': 1}"),
        ("[" * 100_000, "RecursionError"),
        ('{"a": 1}', "holds no list of messages"),
    ],
)
def test_a_cell_that_is_no_conversation_fails_alone(cell: str, reason: str) -> None:
    """The reason says what is wrong, and the row beside it is asked."""
    good = '[{"role": "user", "content": "x"}]'
    bad, fine = rendered(pa.array([cell, good]), "messages")
    assert reason in (bad or "")
    assert fine is None


def odd(place: int) -> bytes:
    """Give an answer that is odd in one way or another."""
    content = json.dumps({"a": "x\ud800", "b": [1]})
    whole: dict[str, Any] = {
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": content}}],
        "usage": {"prompt_tokens": 2**63, "completion_tokens": 2**63 - 1},
    }
    changes: list[dict[str, Any]] = [
        {},
        {"model": "\udfff", "choices": [{**whole["choices"][0], "finish_reason": "\ud800"}]},
        {"choices": [{**whole["choices"][0], "message": {"content": None, "refusal": "no \ud800"}}]},
        {"choices": [{**whole["choices"][0], "message": {"content": "no JSON \ud800"}}]},
        {"choices": [whole["choices"][0], {"index": "b", "finish_reason": ["stop"], "message": 5}]},
        {"choices": [{**whole["choices"][0], "finish_reason": "length"}]},
    ]
    return json.dumps(whole | changes[place]).encode()


def test_odd_answers_end_no_run_and_no_run_after_it(tmp_path: Path) -> None:
    """Each is a row with a status, is paid once, and comes from the store the next time."""
    places = range(6)

    def answer(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)["messages"][-1]["content"]
        return httpx.Response(200, content=odd(int(asked.rpartition(" ")[2])))

    tables = []
    for again in (False, True):
        report = enrich(
            pa.table({"text": [f"row {place}" for place in places]}),
            tmp_path / f"out-{again}",
            Extract("text", "out", schema=SCHEMA, returns=RETURNS, max_tokens=9),
            endpoint=OpenAICompatible("http://127.0.0.1:9/v1", "any"),
            store=f"sqlite:///{tmp_path / 'store.db'}",
            failures=FailurePolicy(max_failed=1.0),
            transport=httpx.MockTransport(answer),
        )
        assert (report.live, report.cached) == ((0, 6) if again else (6, 0))
        tables.append(corpusmill_read(tmp_path / f"out-{again}").to_table().to_pylist())
    assert tables[0] == tables[1]
    assert [row["out_outcome"]["status"] for row in tables[0]] == [
        "completed",
        "invalid",
        "refused",
        "invalid",
        "invalid",
        "truncated",
    ]
    assert tables[0][0]["out"]["a"] == "x\ufffd"


@pytest.mark.parametrize(
    ("column", "path"),
    [
        (pa.array([{"c": "x"}]), "a.b.c"),
        (pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}'])), "a.b"),
    ],
)
def test_what_the_plan_takes_the_rows_find(column: pa.Array[Any], path: str) -> None:
    """A name with a dot, with a member below it; text with a logical type."""
    batch = pa.RecordBatch.from_arrays([column], names=["a.b"])
    prompt = Ask("{" + path + "}", into="out")
    check_input(batch.schema, prompt, prompt.inputs[0])
    assert Renderer(prompt, identity="i").ask(batch).keys[0] is not None
