"""What is refused before anything is sent: the message names the thing and says what to do."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill import Ask, Capabilities, OpenAICompatible, SinkSpec, Translate, enrich
from corpusmill.errors import PromptError, SinkError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.testing import FakeEndpoint

TABLE = pa.table(
    {
        "id": [1, 2],
        "text": ["a", "b"],
        "doc": pa.array([{"body": "x"}, None], pa.struct([("body", pa.string())])),
        "Name": ["p", "q"],
    }
)
ASK = Ask("Say something about {text}", into="out")


def filling(template: str, *, into: str) -> Ask:
    """Make a prompt that does not check for itself what it fills, as one of a user's own may not."""
    prompt = Ask(template, into="out")
    object.__setattr__(prompt, "into", into)
    return prompt


def attempt(
    tmp_path: Path, endpoint: FakeEndpoint, *prompts: Any, table: pa.Table = TABLE, **options: Any
) -> None:
    """Try to enrich the table; whatever happens, the endpoint must not hear of it."""
    where = OpenAICompatible(endpoint.base_url, "any", capabilities=options.pop("capabilities", None))
    sink = options.pop("sink", tmp_path / "out")
    try:
        enrich(table, sink, *prompts, endpoint=where, store=f"sqlite:///{tmp_path / 'store.db'}", **options)
    finally:
        assert endpoint.stats().requests == 0


@pytest.mark.parametrize(
    "prompt",
    [
        Ask("{text} beside {Text Column}", into="out"),
        Ask("{text}", system="About {1st}", into="out"),
        Ask(messages=[{"role": "user", "content": ["{text}", "{Text Column}"]}], into="out"),
    ],
    ids=["template", "system", "messages"],
)
def test_a_column_in_braces_that_do_not_take_its_name_is_refused(
    tmp_path: Path, fake_endpoint: FakeEndpoint, prompt: Ask
) -> None:
    """Beside another column every row would be sent the braces, and nobody would notice."""
    table = pa.table({"text": ["a"], "Text Column": ["b"], "1st": ["c"]})
    with pytest.raises(
        PromptError,
        match=r"'\{(Text Column|1st)\}' at line 1, character .*: write \{column:\1\} for .*; write \{literal:\1\} for",
    ):
        attempt(tmp_path, fake_endpoint, prompt, table=table)


@pytest.mark.parametrize(
    ("prompt", "place"),
    [
        (Ask("{text} beside {text", into="out"), "'{text' at line 1, character 15"),
        (Ask("{text}", system="About\n{text: it", into="out"), "'{text' at line 2, character 1"),
        (
            Ask(messages=[{"role": "user", "content": ["{text}", "{doc.b"]}], into="out"),
            "'{doc.b' at line 1, cha",
        ),
        (
            Ask(
                messages=[{"role": "user", "content": ["{text}", {"type": "text", "text": "of {label"}]}],
                into="out",
            ),
            "'{label' at line 1, character 4",
        ),
        (Ask('{text} as {label: "a {text", n: 1}', into="out"), "'{text' at line 1, character 22"),
    ],
    ids=["template", "system", "messages", "part", "quoted"],
)
def test_a_column_after_a_brace_that_is_not_closed_is_refused(
    tmp_path: Path, fake_endpoint: FakeEndpoint, prompt: Ask, place: str
) -> None:
    """The brace and the name would be sent in the place of the row's text."""
    table = pa.table({"text": ["a"], "label": ["b"], "doc": [{"b": "c"}]})
    with pytest.raises(
        PromptError,
        match=f"(template|message) of the prompt into 'out' has {re.escape(place)}.*a brace that is not closed; write",
    ):
        attempt(tmp_path, fake_endpoint, prompt, table=table)


def test_other_braces_are_text(tmp_path: Path, fake_endpoint: FakeEndpoint) -> None:
    """JSON and code in a template stay what they are, also where a word in them is a column."""
    prompt = Ask(
        '{text}: answer {"id": 1}, { text }, {Text Column}, {text: "a {b", n: 1}, {textual, {"text": "{',
        into="out",
    )
    report = enrich(
        TABLE,
        tmp_path / "out",
        prompt,
        endpoint=OpenAICompatible(fake_endpoint.base_url, "any"),
        store=f"sqlite:///{tmp_path / 'store.db'}",
    )
    assert report.outcomes == {"completed": 2}


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (
            Ask("{texts}", into="out"),
            r"names 'texts'.*'text'\?; write \{literal:texts\} for the text \{texts\}$",
        ),
        (
            Ask("{column:texts}", into="out"),
            r"names 'texts'.*'text'\?; write \{literal:column:texts\} for the text \{column:texts\}$",
        ),
        (Translate("texts", "out", to="lv"), r"names 'texts'.*'text'\?$"),
        (Ask("{text}", into="out", vary_by="texts"), r"names 'texts'.*'text'\?$"),
        (Ask("{doc.bodi}", into="out"), r"names 'doc.bodi'.*'doc.body'"),
        (Translate("id", "out", to="lv"), r"takes text from 'id', whose type is int64; cast"),
        (Ask("{doc}", into="out"), r"takes text from 'doc'"),
        (Ask("{text}", into="text"), r"the new column 'text' exists already"),
        (Ask("{text}", into="name"), r"'name' differs only by case from 'Name'"),
        (filling("{text}", into=" "), r"is blank"),
        (Ask("{text}", into="out", returns={"reasoning": "out_outcome"}), r"'out_outcome' exists already"),
        (Ask("{text}", into="out", temperature=2.5), r"temperature.*2\.5"),
        (Ask("{text}", into="out", n=9), r"\bn\b.*9"),
        (Ask("{text}", into="out", top_logprobs=3), r"logprobs"),
        (Ask("{text}", into="out", response_format={"type": "text"}), r"response_format"),
        (Ask("{text}", into="out", response_format={"type": "json_object"}), r"the word JSON"),
    ],
)
def test_a_prompt_that_does_not_fit_is_refused(
    tmp_path: Path, fake_endpoint: FakeEndpoint, prompt: Ask, message: str
) -> None:
    """Unknown columns, wrong types, clashing names and parameters out of range cost nothing."""
    with pytest.raises(PromptError, match=message):
        attempt(tmp_path, fake_endpoint, prompt)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([b"a"]),
        pa.array([["a"]]),
        pa.array([timedelta(1)]),
        pa.array([None]),
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())),
    ],
    ids=lambda values: str(values.type),
)
@pytest.mark.parametrize("prompt", [Ask("{it}", into="out"), Translate("text", "out", to="lv", vary_by="it")])
def test_a_column_whose_values_have_no_one_text_is_refused(
    tmp_path: Path, fake_endpoint: FakeEndpoint, prompt: Any, values: pa.Array[Any]
) -> None:
    """Bytes, lists, spans of time, and numbers that mean something else to whoever made their type."""
    table = pa.table({"text": ["a"], "it": values})
    with pytest.raises(
        PromptError, match=r"takes text from 'it', whose type is .*; cast the column to string"
    ):
        attempt(tmp_path, fake_endpoint, prompt, table=table)


def test_two_prompts_may_not_fill_one_column(tmp_path: Path, fake_endpoint: FakeEndpoint) -> None:
    """The second prompt is named, and so is the clash."""
    with pytest.raises(PromptError, match="'OUT' differs only by case from 'out', a new column of this run"):
        attempt(tmp_path, fake_endpoint, ASK, Ask("{text}", into="OUT"))


@pytest.mark.parametrize(
    ("prompt", "capabilities", "message"),
    [
        (
            Ask(messages=[{"role": "user", "content": [{"image": {"column": "photo"}}]}], into="out"),
            Capabilities(images=False),
            "sends image parts",
        ),
        (Translate("text", "out", to="el"), Capabilities(languages=frozenset({"lv", "en"})), "'el'.*en, lv"),
        (Ask("{text}", into="out", n=2), Capabilities(n=1), r"\bn\b"),
        (Ask("{text}", into="out", logprobs=True), Capabilities(logprobs=False), "logprobs"),
        (
            Ask("{text}", into="out", tools=[{"type": "function", "function": {"name": "f"}}]),
            Capabilities(tools=False),
            "tools",
        ),
    ],
)
def test_what_the_endpoint_cannot_do_is_refused(
    tmp_path: Path, fake_endpoint: FakeEndpoint, prompt: Any, capabilities: Capabilities, message: str
) -> None:
    """Parts, languages, choices, probabilities and tools, by what the endpoint says of itself."""
    table = TABLE.append_column("photo", pa.array([b"\x89PNG\r\n\x1a\n", None]))
    with pytest.raises(PromptError, match=message):
        attempt(tmp_path, fake_endpoint, prompt, table=table, capabilities=capabilities)


def test_unknown_columns_of_the_sink_are_refused(tmp_path: Path, fake_endpoint: FakeEndpoint) -> None:
    """The message lists what there is."""
    with pytest.raises(SinkError, match=r"'ident'.*it has id, text"):
        attempt(tmp_path, fake_endpoint, ASK, sink=SinkSpec(path=tmp_path / "out", columns=["ident"]))


@pytest.mark.parametrize("type_", [pa.month_day_nano_interval(), pa.struct([])])
def test_types_that_parquet_cannot_hold_are_refused(
    tmp_path: Path, fake_endpoint: FakeEndpoint, type_: pa.DataType
) -> None:
    """Before spending, not when the first part is written."""
    table = pa.table({"text": ["a"], "odd": pa.array([None], type_)})
    with pytest.raises(UsageError, match="'odd'"):
        attempt(tmp_path, fake_endpoint, ASK, table=table)


@pytest.mark.parametrize("below", ["data/out", "data", "data/a.parquet"])
def test_a_sink_inside_its_source_is_refused(tmp_path: Path, fake_endpoint: FakeEndpoint, below: str) -> None:
    """Otherwise the next run would read the output of this one."""
    (tmp_path / "data").mkdir()
    pq.write_table(TABLE, tmp_path / "data" / "a.parquet")
    with pytest.raises(SinkError, match=r"another place|a folder of its own"):
        enrich(
            tmp_path / "data",
            tmp_path / below,
            ASK,
            endpoint=OpenAICompatible(fake_endpoint.base_url, "any"),
            store=f"sqlite:///{tmp_path / 'store.db'}",
        )
    assert fake_endpoint.stats().requests == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "write-only"}, "'write-only'; known are"),
        ({"refresh": ["failed"]}, "must be 'refresh'"),
    ],
)
def test_a_mode_that_makes_no_sense_is_refused(
    tmp_path: Path, fake_endpoint: FakeEndpoint, options: dict[str, Any], message: str
) -> None:
    """Modes are named."""
    with pytest.raises(UsageError, match=message):
        attempt(tmp_path, fake_endpoint, ASK, **options)


@pytest.mark.parametrize("key", ["text", "out"])
def test_a_partition_named_like_a_column_is_refused(
    tmp_path: Path, fake_endpoint: FakeEndpoint, key: str
) -> None:
    """A reader of hive folders would take the folder's value for the whole column."""
    with pytest.raises(SinkError, match=rf"the key '{key}', which is also a column that is read or filled"):
        attempt(tmp_path, fake_endpoint, ASK, sink=SinkSpec(path=tmp_path / "out", partition={key: "x"}))
