"""A streamed answer is the answer that would have come at once, or it is none."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.chat.stream import Assembled, Assembler
from corpusmill.exchange import read_completion


def assemble(*pieces: bytes) -> Assembled:
    """Put a whole stream together."""
    assembler = Assembler()
    for piece in pieces:
        assembler.feed(piece)
    return assembler.finish()


def events(*chunks: dict[str, Any] | str) -> bytes:
    """Write chunks as a server does."""
    texts = [chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=False) for chunk in chunks]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def chunk(delta: dict[str, Any], *, index: int = 0, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """Make a chunk of one choice."""
    choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None, **more}
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1737642515.6,
        "model": "m",
        "system_fingerprint": None,
        "choices": [choice],
    }


USAGE = {
    "id": "c1",
    "choices": [],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "is_last_response": True},
}

WHOLE = (
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Žē"}),
    chunk({"content": "\u2028lo"}),
    chunk({"content": ""}, finish="stop"),
    USAGE,
    "[DONE]",
)


def body_of(assembled: Assembled) -> dict[str, Any]:
    """Parse a body that is whole."""
    assert assembled.cut is None
    body = json.loads(assembled.body)
    assert isinstance(body, dict)
    return body


def test_a_stream_comes_to_the_body_of_the_same_answer() -> None:
    """Text joined, usage taken, unknown fields and the float date kept, named as if not streamed."""
    assert body_of(assemble(events(*WHOLE))) == {
        "id": "c1",
        "object": "chat.completion",
        "created": 1737642515.6,
        "model": "m",
        "system_fingerprint": None,
        "usage": USAGE["usage"],
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Žē\u2028lo"},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
    }


@given(cuts=st.lists(st.integers(0, len(events(*WHOLE))), max_size=30), bom=st.booleans(), crlf=st.booleans())
def test_any_split_of_a_stream_is_the_same_answer(cuts: list[int], *, bom: bool, crlf: bool) -> None:
    """However the bytes are cut, with whatever line ends, behind a BOM or not."""
    stream = events(*WHOLE)
    stream = b"\xef\xbb\xbf" * bom + (stream.replace(b"\n", b"\r\n") if crlf else stream)
    places = [0, *sorted(cuts), len(stream)]
    pieces = [stream[start:end] for start, end in itertools.pairwise(places)]
    assert assemble(*pieces) == assemble(events(*WHOLE))


def test_interleaved_choices_are_told_apart_by_their_index() -> None:
    """With several choices their chunks come mixed and out of order."""
    body = body_of(
        assemble(
            events(
                chunk({"content": "b"}, index=1),
                chunk({"content": "a"}, index=0),
                chunk({"content": "B"}, index=1, finish="length"),
                chunk({"content": "A"}, index=0, finish="stop"),
                "[DONE]",
            )
        )
    )
    assert [choice["message"]["content"] for choice in body["choices"]] == ["aA", "bB"]
    assert [choice["finish_reason"] for choice in body["choices"]] == ["stop", "length"]


def test_one_unfinished_choice_makes_the_whole_answer_cut() -> None:
    """A choice without its end would be half a text."""
    stream = events(chunk({"content": "a"}, finish="stop"), chunk({"content": "b"}, index=1), "[DONE]")
    assert assemble(stream).cut is not None


@pytest.mark.parametrize("choices", [[], None, "missing", {}, [None]])
def test_chunks_without_choices_are_read_over(choices: object) -> None:
    """`choices` may be empty, null, missing or something else."""
    odd = {"usage": {"prompt_tokens": 1}} if choices == "missing" else {"choices": choices}
    stream = events(chunk({"content": "a"}), odd, chunk({}, finish="stop"), "[DONE]")
    assert body_of(assemble(stream))["choices"][0]["message"]["content"] == "a"


def test_usage_in_every_chunk_is_put_together() -> None:
    """The latest number holds, and null takes nothing away."""
    first = {**chunk({"content": "a"}), "usage": {"prompt_tokens": 5, "completion_tokens": 1}}
    second = {**chunk({}, finish="stop"), "usage": {"prompt_tokens": None, "completion_tokens": 2}}
    last: dict[str, Any] = {"choices": [], "usage": None}
    assert body_of(assemble(events(first, second, last)))["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 2,
    }


def test_reasoning_is_joined_beside_the_content() -> None:
    """`channel` names, `reasoning` is text; content may stay null."""
    body = body_of(
        assemble(
            events(
                chunk({"role": "assistant", "content": None, "reasoning": "I ", "channel": "analysis"}),
                chunk({"reasoning": "think", "channel": "analysis"}, finish="length"),
                "[DONE]",
            )
        )
    )
    message = body["choices"][0]["message"]
    assert message == {"role": "assistant", "content": None, "reasoning": "I think", "channel": "analysis"}


def call(arguments: str, **more: Any) -> dict[str, Any]:
    """Make a piece of a tool call."""
    function = {"arguments": arguments, **({"name": more.pop("name")} if "name" in more else {})}
    return {"function": function, **more}


@pytest.mark.parametrize(
    "pieces",
    [
        [
            call("", index=0, id="x", type="function", name="f"),
            call('{"a"', index=0),
            call("{", index=1, id="y", type="function", name="g"),
            call(":1}", index=0),
            call("}", index=1),
        ],
        [
            call('{"a":1}', index=0, id="x", type="function", name="f"),
            call("{}", index=0, id="y", type="function", name="g"),
        ],
        [
            call('{"a"', id="x", type="function", name="f"),
            call(":1}"),
            call("{}", id="y", type="function", name="g"),
        ],
        [
            call('{"a":', index=0, id="x", type="function", name="f"),
            call("1}", index=0, id="x", type="function", name=""),
            call("{}", index=1, id="y", type="function", name="g"),
        ],
    ],
    ids=["by index", "one index for all", "no index", "id repeated"],
)
def test_tool_calls_are_put_together(pieces: list[dict[str, Any]]) -> None:
    """In each way in which servers tell two calls apart."""
    stream = events(*(chunk({"tool_calls": [piece]}) for piece in pieces), chunk({}, finish="tool_calls"))
    message = body_of(assemble(stream))["choices"][0]["message"]
    calls = [
        (one["id"], one["function"]["name"], one["function"]["arguments"]) for one in message["tool_calls"]
    ]
    assert calls == [("x", "f", '{"a":1}'), ("y", "g", "{}")]
    assert message["content"] is None


def test_logprobs_are_joined() -> None:
    """As an object, which is their type, and as a list, which one page shows."""
    for form in ({"content": [{"token": "a"}]}, [{"token": "a"}]):
        stream = events(
            chunk({"content": "a"}, logprobs=form),
            chunk({"content": "a"}, logprobs=form),
            chunk({}, finish="stop"),
        )
        logprobs = body_of(assemble(stream))["choices"][0]["logprobs"]
        assert (logprobs["content"] if isinstance(logprobs, dict) else logprobs) == [{"token": "a"}] * 2


def test_unknown_fields_are_kept() -> None:
    """At the top, in a choice and in a delta."""
    first = {**chunk({"content": "a", "custom": "x"}, note=5), "service_tier": "fast"}
    second = chunk({"custom": "y"}, finish="stop", weight=0.5)
    body = body_of(assemble(events(first, second)))
    choice = body["choices"][0]
    assert (body["service_tier"], choice["note"], choice["weight"]) == ("fast", 5, 0.5)
    assert choice["message"]["custom"] == "xy"


def test_an_end_without_done_is_accepted_when_every_choice_has_ended() -> None:
    """Nothing is missing, and it is noted."""
    assembled = assemble(events(*WHOLE[:-1]))
    assert (assembled.cut, assembled.notes) == (None, ("stream_without_done",))


def test_an_event_response_completed_ends_a_stream_as_done_does() -> None:
    """The document names both."""
    for end in (b"event: response.completed\ndata: {}\n\n", b'data: {"type": "response.completed"}\n\n'):
        assembled = assemble(events(*WHOLE[:-1]) + end)
        assert (assembled.cut, assembled.notes) == (None, ())


@pytest.mark.parametrize(
    "stream",
    [
        events(*WHOLE[:3]),
        events(*WHOLE[:3], "[DONE]"),
        events("[DONE]"),
        events(USAGE, "[DONE]"),
        events(*WHOLE)[: len(events(*WHOLE[:3])) + 40],
        events(WHOLE[0], '{"choices": [{"del', *WHOLE[1:]),
    ],
    ids=[
        "no end",
        "done without a finish reason",
        "done only",
        "usage only",
        "in the middle",
        "broken event",
    ],
)
def test_a_stream_that_is_cut_is_never_an_answer(stream: bytes) -> None:
    """Neither `[DONE]` nor an orderly end makes half an answer a whole one."""
    assert assemble(stream).cut is not None


def test_the_finish_reason_may_stand_in_the_usage() -> None:
    """The document says that `usage.stop_reason` mirrors that of the choice."""
    usage = {"choices": [], "usage": {"stop_reason": "length", "completion_tokens": 2}}
    body = body_of(assemble(events(chunk({"content": "a"}), usage, "[DONE]")))
    assert body["choices"][0]["finish_reason"] == "length"


def test_what_comes_after_the_end_changes_nothing() -> None:
    """A stream is over at `[DONE]`."""
    assert assemble(events(*WHOLE, chunk({"content": "more"}))) == assemble(events(*WHOLE))


@pytest.mark.parametrize(
    ("tail", "error"),
    [
        (b'data: {"error": {"message": "boom", "code": 500}}\n\n', {"message": "boom", "code": 500}),
        (b'data: {"error": "boom"}\n\n', "boom"),
        (b'data: {"error": null}\n\n', None),
        (b'event: error\ndata: {"message": "boom"}\n\n', {"message": "boom"}),
        (b"event: error\ndata: boom\n\n", "boom"),
        (b'error: {"message": "boom"}\n\n', {"message": "boom"}),
        (b'{"error": "boom"}\n', "boom"),
    ],
)
def test_an_error_in_the_middle_is_that_error(tail: bytes, error: object) -> None:
    """In each shape, after half a text, whatever else follows."""
    assembled = assemble(events(*WHOLE[:2]) + tail + events(*WHOLE[2:]))
    assert json.loads(assembled.body)["error"] == error


def test_json_lines_instead_of_events_are_read() -> None:
    """Some servers leave out the `data:`."""
    lines = "\n".join(json.dumps(line) for line in WHOLE[:-1]).encode()
    assert body_of(assemble(lines)) == body_of(assemble(events(*WHOLE)))


def test_a_body_that_was_not_streamed_after_all_is_read() -> None:
    """Whoever asks for a stream may get the answer at once, on one line or on many."""
    answer = {"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}]}
    for body in (json.dumps(answer), json.dumps(answer, indent=1)):
        assembled = assemble(b"\n", *(body[place : place + 7].encode() for place in range(0, len(body), 7)))
        assert (json.loads(assembled.body), assembled.notes) == (answer, ("not_streamed",))


def test_what_is_neither_is_given_back_as_it_came() -> None:
    """So that it can be said what it is instead."""
    page = b"<html><title>Welcome</title></html>"
    assert assemble(page[:9], page[9:]).body == page
    assert assemble().body == b""
    assert assemble(b": processing\n\n").cut is not None


def test_a_character_that_is_cut_between_two_chunks_is_whole_again() -> None:
    """Some servers write the halves of a surrogate pair as two escapes in two events."""
    halves = [json.dumps(chunk({"content": half})) for half in ("a\ud83d", "\ude00b")]
    assembled = assemble(events(*halves, chunk({}, finish="stop"), "[DONE]"))
    assert assembled.cut is None
    assert read_completion(assembled.body).content == "a\U0001f600b"


@pytest.mark.parametrize("odd", [b'"\\ud83d"', b'"\xff"', b'"a", "logprob": NaN'])
def test_what_json_may_not_hold_costs_no_answer(odd: bytes) -> None:
    """Half a pair that stays alone, invalid UTF-8, NaN: the text was paid for."""
    stream = (
        b'data: {"choices": [{"index": 0, "finish_reason": "stop", "delta": {"content": ' + odd + b"}}]}\n\n"
    )
    assembled = assemble(stream)
    assert assembled.cut is None
    assert read_completion(assembled.body).content is not None


@pytest.mark.parametrize(
    "nesting", [b"[" * 100_000, b'{"choices":' * 100_000, b'{"choices":' + b"[" * 100_000]
)
def test_nesting_without_end_is_no_answer_and_no_exception(nesting: bytes) -> None:
    """As a body and inside an event."""
    assert assemble(b"data: " + nesting + b"\n\n").cut is not None
    assert isinstance(assemble(nesting).body, bytes)


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_no_bytes_make_the_assembler_raise(pieces: list[bytes]) -> None:
    """Whatever comes over the wire, a result comes out."""
    assert isinstance(assemble(*pieces).body, bytes)


def test_what_is_no_answer_is_shown_the_same_however_it_was_cut() -> None:
    """A blank that came before the rest is no part of it."""
    stray = b" {}\n\nretry: 8\n"
    assert assemble(stray).body == assemble(stray[:1], stray[1:]).body


def test_the_assembled_body_reads_as_a_completion() -> None:
    """The rest of the package does not know that it was streamed."""
    completion = read_completion(assemble(events(*WHOLE)).body)
    assert (completion.content, completion.finish_reason) == ("Žē\u2028lo", "stop")
    assert (completion.prompt_tokens, completion.completion_tokens) == (3, 2)
