"""Conversations: templated messages, columns of whole message lists, media parts and tools."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from corpusmill import Ask, OpenAICompatible, enrich, read
from corpusmill.errors import PromptError
from corpusmill.rows.render import Renderer

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.testing import FakeEndpoint

PNG = b"\x89PNG\r\n\x1a\n" + bytes(24)
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(24)
MP4 = b"\x00\x00\x00\x20ftypisom" + bytes(24)
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


def asked(prompt: Ask, **columns: Any) -> list[Any]:
    """Render the rows of a table; give the messages, a reason, or None for each."""
    found = Renderer(prompt, identity="i").ask(pa.RecordBatch.from_pydict(columns))
    return [
        list(found.rendered(row).messages) if key is not None else found.unaskable.get(row)
        for row, key in enumerate(found.keys)
    ]


def test_messages_are_templates_with_roles() -> None:
    """Each message is filled by itself, in order; all six roles are taken."""
    prompt = Ask(
        messages=[
            {"role": "system", "content": "You know {topic}."},
            {"role": "developer", "content": "Be short."},
            {"role": "user", "content": "{question}"},
            {"role": "assistant", "content": "Let me see."},
            {"role": "tool", "content": "{found}", "tool_call_id": "call-1"},
            {"role": "function", "name": "f", "content": "1"},
        ],
        into="out",
    )
    (messages,) = asked(prompt, topic=["tides"], question=["Why {topic}?"], found=["the moon"])
    assert [message["role"] for message in messages] == [
        "system",
        "developer",
        "user",
        "assistant",
        "tool",
        "function",
    ]
    assert messages[0]["content"] == "You know tides."
    assert messages[2]["content"] == "Why {topic}?"
    assert messages[4] == {"role": "tool", "content": "the moon", "tool_call_id": "call-1"}


@pytest.mark.parametrize("as_json", [True, False])
def test_a_column_may_hold_whole_conversations(*, as_json: bool) -> None:
    """As a list of structs or as JSON text; an empty one is skipped, a broken one fails its row alone."""
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "name": "a"}]
    rows: list[Any] = [talk, [], None, [{"role": "nobody", "content": "x"}]]
    column: Any = [None if row is None else json.dumps(row) for row in rows] if as_json else rows
    found = asked(Ask(messages={"column": "talk"}, into="out"), talk=column)
    assert found[0][0]["content"] == "Hi"
    assert found[0][1] == {"role": "assistant", "name": "a"}
    assert found[1] is None
    assert found[2] is None
    assert "'nobody'" in found[3]


def test_a_name_in_braces_may_be_text_in_any_message() -> None:
    """In messages without a column, beside one, and in a part."""
    prompt = Ask(
        messages=[
            {"role": "system", "content": "Keep {literal:name}."},
            {"role": "user", "content": ["{literal:a}", "{a}"]},
        ],
        into="out",
    )
    (messages,) = asked(prompt, a=["x"])
    assert messages == [
        {"role": "system", "content": "Keep {name}."},
        {"role": "user", "content": [{"type": "text", "text": "{a}"}, {"type": "text", "text": "x"}]},
    ]


def test_json_that_is_no_conversation_fails_its_row() -> None:
    """Text that is not JSON is not sent as a prompt."""
    assert (
        "holds no list of messages" in asked(Ask(messages={"column": "talk"}, into="out"), talk=["hello"])[0]
    )


def test_media_parts_have_the_shapes_of_the_document() -> None:
    """Image and video as data URLs of the sniffed type, audio as bare base64."""
    parts = [
        "Describe {name}",
        {"image": {"column": "i"}},
        {"audio": {"column": "a"}},
        {"video": {"column": "v"}},
    ]
    prompt = Ask(messages=[{"role": "user", "content": parts}], into="out")
    ((message,),) = asked(prompt, name=["it"], i=[PNG], a=[WAV], v=[MP4])
    assert message["content"] == [
        {"type": "text", "text": "Describe it"},
        {
            "type": "image_url",
            "image_url": {"url": "data:image/png;base64," + base64.b64encode(PNG).decode()},
        },
        {"type": "audio_content", "audio_content": {"content": base64.b64encode(WAV).decode()}},
        {
            "type": "video_url",
            "video_url": {"url": "data:video/mp4;base64," + base64.b64encode(MP4).decode()},
        },
    ]


def test_bytes_of_another_kind_fail_their_row_and_missing_ones_are_left_out() -> None:
    """A PDF is no image; a row without its image is asked without it."""
    prompt = Ask(
        messages=[{"role": "user", "content": ["See {name}", {"image": {"column": "i"}}]}], into="out"
    )
    found = asked(prompt, name=["a", "b", "c"], i=[b"%PDF-1.4 ", None, WAV])
    assert "application/pdf where image is asked for" in found[0]
    assert found[1] == [{"role": "user", "content": [{"type": "text", "text": "See b"}]}]
    assert "audio/wave where image is asked for" in found[2]


def test_text_that_names_a_file_or_url_stays_text() -> None:
    """A cell with an image's URL is not turned into a picture."""
    prompt = Ask("Look: {text}", into="out")
    ((message,),) = asked(prompt, text=["https://host/cat.png file:///etc/passwd"])
    assert message["content"] == "Look: https://host/cat.png file:///etc/passwd"


def test_tools_may_come_from_a_column() -> None:
    """A row brings its own tools, which enter its key; a row without any sends none."""
    prompt = Ask("{text}", into="out", tools={"column": "tools"})
    batch = pa.RecordBatch.from_pydict({"text": ["same"] * 3, "tools": [json.dumps([TOOL]), None, "{}"]})
    found = Renderer(prompt, identity="i").ask(batch)
    assert found.rendered(0).parameters == {"tools": [TOOL]}
    assert found.rendered(1).parameters is None
    assert found.keys[0] != found.keys[1]
    assert "no list of tools" in found.unaskable[2]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages is empty"),
        ([{"role": "nobody", "content": "{text}"}], r"messages\[0\].role is 'nobody'"),
        ([{"role": "user", "content": [{"image": "photo.png"}]}], r"image must be \{column: name\}"),
        ([{"role": "user", "content": [7]}], "a part is text"),
        ({"columns": "talk"}, r"must be \{column: name\}"),
        ([{"role": "user", "content": "nothing"}], "names no column"),
    ],
)
def test_a_conversation_that_makes_no_sense_is_refused(messages: Any, message: str) -> None:
    """When the prompt is made, long before a run."""
    with pytest.raises(PromptError, match=message):
        Ask(messages=messages, into="out")


def test_a_conversation_with_everything_is_taken_by_a_server_that_checks(
    tmp_path: Path, fake_endpoint: FakeEndpoint
) -> None:
    """What is sent is what the OpenAPI document allows, and tool calls come back as a column."""
    table = pa.table({"text": ["a", "b"], "photo": [PNG, None], "tools": [json.dumps([TOOL])] * 2})
    prompt = Ask(
        messages=[
            {"role": "developer", "content": "Use tools."},
            {"role": "user", "content": ["See {text}", {"image": {"column": "photo"}}]},
        ],
        into="out",
        tools={"column": "tools"},
        tool_choice="required",
        returns={"tool_calls": "calls"},
    )
    report = enrich(
        table,
        tmp_path / "out",
        prompt,
        endpoint=OpenAICompatible(fake_endpoint.base_url, "any"),
        store=f"sqlite:///{tmp_path / 'store.db'}",
    )
    assert report.outcomes == {"completed": 2}
    for row in read(tmp_path / "out").to_table().to_pylist():
        assert json.loads(row["calls"])[0]["function"]["name"] == "look_up"
        assert row["photo"] == (PNG if row["text"] == "a" else None)


def test_vary_by_draws_again_for_the_same_text(tmp_path: Path, fake_endpoint: FakeEndpoint) -> None:
    """Three draws of one text are three requests on the wire that look the same; without it they are one."""
    table = pa.table({"text": ["same"] * 3, "draw": ["1", "2", "3"]})
    for vary_by, live in (("draw", 3), (None, 1)):
        report = enrich(
            table,
            tmp_path / f"out-{vary_by}",
            Ask("{text}", into="out", temperature=1.0, vary_by=vary_by),
            endpoint=OpenAICompatible(fake_endpoint.base_url, "any"),
            store=f"sqlite:///{tmp_path / 'store.db'}",
        )
        assert (report.live, report.deduplicated) == (live, 3 - live)
    assert fake_endpoint.stats().distinct == 1


def test_the_new_column_of_a_question_is_named_by_position_or_by_name() -> None:
    """As that of the other prompts is; a question without one is refused in words."""
    assert Ask("{text}", "theme").content() == Ask("{text}", into="theme").content()
    with pytest.raises(PromptError, match=r"ask\.into is ''; it must name the new column"):
        Ask("{text}")
