"""Server-sent events, however they are cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.chat import fuzzing

from corpusmill.chat import sse
from corpusmill.chat.sse import Event, EventParser, OversizedEventError


def parse(*pieces: bytes) -> list[tuple[str, bytes]]:
    """Give names and data of all events."""
    parser = EventParser()
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.close()
    return [(event.name, event.data) for event in events]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\ndata: b\ndata:\ndata: c\n\n", [b"a\nb\n\nc"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b": keep-alive\n\n:\n\ndata: a\n\n", [b"a"]),
        (b"data:\n\n", [b""]),
        (b"data\n\n", [b""]),
        (b"id: 1\nretry: 5\nunknown: x\ndata: a\n\n", [b"a"]),
        (b"id: 1\n\n", []),
        (b"\n\n\n\r\r\r\n", []),
        (b"data: a: b:c\n\n", [b"a: b:c"]),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        (b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
        (b"", []),
    ],
    ids=repr,
)
def test_each_form_of_an_event_is_read(stream: bytes, events: list[bytes]) -> None:
    """Line ends of all kinds, comments, a BOM, several data lines, no blank line at the end, bare JSON."""
    assert [data for _, data in parse(stream)] == events


def test_an_event_has_the_name_that_the_stream_gives_it() -> None:
    """And the next one does not inherit it."""
    stream = b"event: response.completed\ndata: a\n\ndata: b\n\nevent: x\n\ndata: c\n\n"
    assert parse(stream) == [("response.completed", b"a"), ("message", b"b"), ("message", b"c")]


def test_a_field_called_error_is_an_event() -> None:
    """Some servers write `error:` where `data:` belongs; the standard would ignore it."""
    assert parse(b'data: a\n\nerror: {"code": 500}\n\n') == [("message", b"a"), ("error", b'{"code": 500}')]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"])
def test_lines_end_at_line_feeds_only(separator: str) -> None:
    """What Unicode calls a line end is text."""
    data = f"a{separator}b".encode()
    assert parse(b"data: " + data + b"\n\n") == [("message", data)]


STREAM = (
    "\ufeff: hello\r\nevent: m\ndata: žņ\u2028\U0001f600\r\rdata:1\ndata: 2\r\n\r\nid: 7\n"
    'error: {"x":"ā"}\n\n{"bare": "ö"}\ndata: [DONE]\n\ndata: tail'
).encode()


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=40))
def test_any_split_of_a_stream_parses_the_same(cuts: list[int]) -> None:
    """In a character, between CR and LF, inside a name of a field, empty reads: nothing changes."""
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in itertools.pairwise(places)]
    assert parse(*pieces) == parse(STREAM)


@given(
    stream=st.lists(
        st.sampled_from([b"data", b":", b" ", b"\r", b"\n", b"x", b"{", b"event", b"\xef\xbb\xbf"])
    )
)
def test_byte_by_byte_parses_the_same_as_at_once(stream: list[bytes]) -> None:
    """For any mixture of what the grammar is made of."""
    whole = b"".join(stream)
    assert parse(*(whole[place : place + 1] for place in range(len(whole)))) == parse(whole)


def test_an_event_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line or in many: memory is bounded."""
    monkeypatch.setattr(sse, "LARGEST_EVENT", 100)
    for piece in (b"x" * 10, b"data: x\n"):
        parser = EventParser()
        pieces = [piece] * 200
        with pytest.raises(OversizedEventError):
            list(map(parser.feed, pieces))


def test_many_small_events_are_no_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is on one event, not on the stream."""
    monkeypatch.setattr(sse, "LARGEST_EVENT", 100)
    assert len(parse(*[b"data: xxxxxxxxxx\n\n"] * 100)) == 100


def test_what_a_search_for_odd_bytes_has_kept_is_read_by_the_grammar_whatever_the_cuts_are() -> None:
    """And comes to the same answer, or to none; nothing is raised."""
    found = fuzzing.kept("sse")
    assert len(found) > 50
    for data in found:
        fuzzing.check_sse(data)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_by_the_grammar_whatever_the_cuts_are(data: bytes) -> None:
    """The same oracle, over bytes that nobody has chosen."""
    fuzzing.check_sse(data)
