"""Outputs as they may come: missing, cut, mixed up, stale; what is not certain is no answer, and goes out again."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.exchange import read_completion
from corpusmill.transform.keys import KeyNumbers, LineKey, read_keys
from corpusmill.transform.lines import (
    LineAnswer,
    Tally,
    read_answer,
    read_joined,
    read_plain,
    request_id,
    split_lines,
    wrap,
)
from corpusmill.transform.settling import blame_for
from corpusmill.transform.shards import Spool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LINES = [LineKey(bytes([number]) * 20, 256, 100 + number, "Latin") for number in range(3)]
BY_ID = {line.key.hex(): [line] for line in LINES}


def completion(text: str, reason: str | None = "stop") -> dict[str, Any]:
    """A completion as the reference page shows it."""
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}]
    }


def joined(line: LineKey, output: Any) -> bytes:
    """A line that carries its id, with the keys in the service's order."""
    return json.dumps({"SageMakerOutput": output, "id": line.key.hex()}, ensure_ascii=False).encode()


GOOD = [joined(line, completion(f"answer {number}\u2028\x85")) for number, line in enumerate(LINES)]


def contents(found: Any) -> dict[int, str | None]:
    """Give the texts that were read by the number of the line; None for a line without an answer."""
    return {
        LINES.index(one.line): None if one.completion is None else one.completion.content for one in found
    }


def read(output: list[bytes], tally: Tally | None = None) -> dict[int, str | None]:
    """Read joined lines."""
    return contents(read_joined(output, BY_ID, tally or Tally(), wrapped=True))


WHOLE = {number: f"answer {number}\u2028\x85" for number in range(3)}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_joined_lines_find_their_rows_in_any_order(order: tuple[int, ...]) -> None:
    """By the id."""
    assert read([GOOD[number] for number in order]) == WHOLE


def test_short_long_and_repeated_outputs_give_what_is_certain() -> None:
    """A missing line is missing, a strange one nobody's, and of two for one line the first counts."""
    tally = Tally()
    other = joined(LineKey(b"z" * 20, None, 1, None), completion("stale"))
    again = joined(LINES[0], completion("another"))
    assert read([GOOD[0], other, again, b"no JSON", b"{}", b"[]"], tally) == {0: WHOLE[0]}
    assert (tally.strange, tally.repeated) == (4, 1)
    assert str(tally) == "4 not of this shard, 1 for a line that had its answer"
    assert str(Tally()) == ""


@pytest.mark.parametrize(
    "output",
    [
        {"error": {"message": "the worker died", "code": 500}},
        {"error": None},
        {"choices": []},
        completion("half", None),
        completion("half", "error"),
        "no JSON",
        None,
        [],
        7,
    ],
)
def test_what_is_no_answer_is_none(output: Any) -> None:
    """An error object, a completion without an end, a text that is no JSON."""
    assert read([joined(LINES[0], output)]) == {0: None}


def test_a_line_without_an_answer_says_so() -> None:
    """Only the id came back."""
    (found,) = read_joined([json.dumps({"id": LINES[0].key.hex()}).encode()], BY_ID, Tally(), wrapped=True)
    assert found == LineAnswer(LINES[0], None, "the line came back without SageMakerOutput")


def test_an_answer_within_a_text_is_an_answer() -> None:
    """Some containers say that they answer in text."""
    assert read([joined(LINES[0], json.dumps(completion("čau")))]) == {0: "čau"}


def test_the_body_of_an_answer_is_kept_as_it_came() -> None:
    """Byte for byte, unknown fields too."""
    body = b'{ "choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}], "b":1.50, "a":"\\u010d"}'
    (found,) = read_joined(
        [b'{"id":"%b","SageMakerOutput":%b}' % (LINES[0].key.hex().encode(), body)],
        BY_ID,
        Tally(),
        wrapped=True,
    )
    assert found.completion == read_completion(body)


def test_bare_requests_are_told_apart_by_their_content() -> None:
    """However the service has ordered their keys and written their numbers."""
    request = {
        "messages": [{"role": "user", "content": "Man patīk pīrāgi."}],
        "max_tokens": 256,
        "temperature": 0.0,
    }
    shuffled = {
        "SageMakerOutput": completion("I like pies."),
        "temperature": 0,
        "max_tokens": 256,
        "messages": [{"content": "Man patīk pīrāgi.", "role": "user"}],
    }
    by_id = {request_id(request): LINES[:1]}
    (found,) = read_joined([json.dumps(shuffled).encode()], by_id, Tally(), wrapped=False)
    assert found.completion is not None
    assert found.completion.content == "I like pies."


SAME = {"messages": [{"role": "user", "content": "Say it."}], "temperature": 1.0}
OTHER = {"messages": [{"role": "user", "content": "Say something else."}]}
NAMED = {name: {**completion(name), "id": f"chatcmpl-{name}"} for name in "ABCD"}
BARE = {name: completion(name) for name in "ABCD"}


def read_equal(
    answers: list[dict[str, Any]], *, equal: int = 3, before: int = 0
) -> tuple[dict[int, str], Tally]:
    """Read answers to one request that several lines ask, with `before` answers to another one ahead of them."""
    tally = Tally()
    by_id = {request_id(SAME): LINES[:equal], request_id(OTHER): [LineKey(b"o" * 20, None, 1, None)]}
    output = [
        *[{**OTHER, "SageMakerOutput": completion("other")}] * before,
        *({**SAME, "SageMakerOutput": answer} for answer in answers),
    ]
    found = read_joined(
        [json.dumps(line, sort_keys=True).encode() for line in output], by_id, tally, wrapped=False
    )
    given = [(one.line, one.completion) for one in found if one.line in LINES]
    assert len({line.key for line, _ in given}) == len(given)
    return {LINES.index(line): made.content or "" for line, made in given if made is not None}, tally


@pytest.mark.parametrize(
    ("written", "expected", "repeated"),
    [
        ("ABC", "ABC", 0),
        ("CAB", "CAB", 0),
        ("AB", "AB", 0),
        ("", "", 0),
        ("AA", "A", 1),
        ("AAB", "AB", 1),
        ("ABAB", "AB", 2),
        ("ABCABC", "ABC", 3),
        ("ABCD", "ABC", 1),
    ],
)
def test_lines_that_ask_the_same_get_an_answer_each_in_turn(
    written: str, expected: str, repeated: int
) -> None:
    """Also where some are missing; an answer that stands there twice is one answer, and no other line's."""
    found, tally = read_equal([NAMED[name] for name in written])
    assert found == dict(enumerate(expected))
    assert (tally.repeated, tally.strange) == (repeated, 0)


@pytest.mark.parametrize(
    ("written", "before", "expected", "repeated"),
    [
        ("AAB", 1, {0: "A", 1: "A", 2: "B"}, 0),
        ("AA", 1, {0: "A", 1: "A"}, 0),
        ("AA", 2, {0: "A"}, 2),
        ("AAB", 2, {0: "A", 2: "B"}, 2),
        ("ABAB", 0, {0: "A", 1: "B"}, 2),
        ("AABC", 0, {0: "A", 1: "C", 2: "B"}, 1),
        ("AABCD", 0, {0: "A", 1: "C", 2: "B"}, 2),
    ],
)
def test_equal_answers_without_ids_are_answers_unless_the_output_repeats_lines(
    written: str, before: int, expected: dict[int, str], repeated: int
) -> None:
    """More lines of some input than were sent, the same one or another, show that it does."""
    found, tally = read_equal([BARE[name] for name in written], before=before)
    assert found == expected
    assert tally.repeated == repeated


@given(written=st.lists(st.sampled_from("ABCD"), max_size=8), equal=st.integers(1, 3), named=st.booleans())
def test_no_answer_is_given_twice_or_kept_from_a_line_without_one(
    written: list[str], equal: int, *, named: bool
) -> None:
    """Whatever is repeated or missing: as many lines get one as there are different answers, or all."""
    found, tally = read_equal([(NAMED if named else BARE)[name] for name in written], equal=equal)
    if named or len(written) > equal:
        assert len(set(found.values())) == len(found) == min(equal, len(set(written)))
        assert tally.repeated == len(written) - len(found)
    else:
        assert found == dict(enumerate(written))
        assert tally.repeated == 0


def test_a_request_is_known_however_deep_the_service_has_ordered_its_keys() -> None:
    """A schema too, though the order of its keys is content for the model."""
    schema = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"minimum": 1.0}}}
    request = {
        **SAME,
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema, "name": "x"}},
    }
    line = json.dumps({**request, "SageMakerOutput": completion("{}")}, sort_keys=True).replace("1.0", "1")
    (found,) = read_joined([line.encode()], {request_id(request): LINES[:1]}, Tally(), wrapped=False)
    assert found.completion is not None


@pytest.mark.parametrize("number", [0, 1, 2, 4])
def test_bare_answers_of_another_number_are_nobodys(number: int) -> None:
    """A line too few or too many shifts all others."""
    output = [json.dumps(completion(str(row))).encode() for row in range(4)]
    assert read_plain(output[:number], LINES) is None
    assert contents(read_plain(output[:3], LINES)) == {0: "0", 1: "1", 2: "2"}


@given(
    lines=st.lists(st.text().map(lambda text: json.dumps(text, ensure_ascii=False).encode())),
    sizes=st.lists(st.integers(1, 9), min_size=1),
    terminated=st.booleans(),
)
def test_lines_end_at_line_feeds_only(lines: list[bytes], sizes: list[int], *, terminated: bool) -> None:
    """Wherever the pieces are cut, and whether the last line has its line feed or not."""
    body = b"\n".join(lines) + (b"\n" if terminated else b"")
    pieces, at = [], 0
    for size in itertools.cycle(sizes):
        if at >= len(body):
            break
        pieces.append(body[at : at + size])
        at += size
    assert list(split_lines(pieces)) == lines


def test_a_line_is_one_line_whatever_the_text() -> None:
    """Line feeds are escaped within JSON."""
    body = json.dumps({"messages": [{"role": "user", "content": "a\nb\u2028c"}]}).encode()
    line = wrap(LINES[1].key, body)
    assert b"\n" not in line
    assert json.loads(line) == {"id": LINES[1].key.hex(), "request": json.loads(body)}
    assert read_answer(LINES[1], b"<html>").completion is None


@given(
    st.dictionaries(st.binary(min_size=20, max_size=20), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.integers(0, 2_000),
)
def test_numbers_of_keys_are_found_again(numbers: dict[bytes, int], expected: int) -> None:
    """And other keys have none, however many were expected."""
    found = KeyNumbers(expected)
    for key, number in numbers.items():
        found.put(key, 0)
        found.put(key, number)
    assert {key: found.get(key) for key in numbers} == numbers
    assert len(found) == len(numbers)
    assert found.get(b"\xfe" * 20) is None or b"\xfe" * 20 in numbers


def test_a_table_of_numbers_grows_when_it_has_to() -> None:
    """Many more keys than were expected are all found again."""
    found = KeyNumbers(expected=10)
    keys = [number.to_bytes(8, "little") + bytes(12) for number in range(1, 5_000)]
    for number, key in enumerate(keys):
        found.put(key, -number)
    assert [found.get(key) for key in keys] == [-number for number in range(len(keys))]
    assert len(found) == len(keys)


@given(
    st.builds(
        LineKey,
        st.binary(min_size=20, max_size=20),
        st.none() | st.integers(1, 1 << 30),
        st.integers(0, 1 << 31),
        st.none() | st.sampled_from(["Latin", "Devanagari"]),
    )
)
def test_a_packed_key_is_read_back(line: LineKey) -> None:
    """With ceiling, size and script."""
    assert list(read_keys(line.pack() * 2)) == [line, line]


@pytest.mark.parametrize(
    ("reason", "blame"),
    [
        ("ClientError: See job logs for more information", "lines"),
        ("AlgorithmError: See job logs for more information", "lines"),
        ("Bad HTTP status received from algorithm: 400", "lines"),
        ("ClientError: Too much data for max payload size", "lines"),
        ("the job ended as Failed", "lines"),
        ("CapacityError: Unable to provision requested ML compute capacity", "passing"),
        ("InternalServerError: We encountered an internal error. Please try again.", "passing"),
        ("The primary container for production variant did not pass the ping health check", "passing"),
        ("ClientError: Access denied to s3://bucket", "lasting"),
        ("ResourceLimitExceeded: The account-level service limit is 0", "lasting"),
        ("ClientError: KMS key is disabled", "lasting"),
    ],
)
def test_a_reason_is_read_before_anything_is_halved(reason: str, blame: str) -> None:
    """Only what the lines caused counts against them."""
    assert blame_for(reason) == blame


def spooled(
    folder: Path, put: Callable[[Spool], None], **limits: int
) -> tuple[list[list[bytes]], list[int], list[str]]:
    """Spool lines; give shards, their failures, and the reasons of lines that failed alone."""
    spool = Spool(folder, **{"rows": 100, "size": 1 << 20, **limits})
    put(spool)
    failed = [reason for _, reason in spool.finish()]
    shards = [one.lines.read_bytes().split(b"\n")[:-1] for one in spool.shards]
    for one, lines in zip(spool.shards, shards, strict=True):
        assert one.shard.rows == len(lines) == len(list(read_keys(one.keys.read_bytes())))
        assert one.shard.size == one.lines.stat().st_size
    return shards, [one.shard.fails for one in spool.shards], failed


def test_shards_are_sized_by_rows_and_by_bytes(tmp_path: Path) -> None:
    """Whichever comes first; a line that is larger than a shard has one for itself."""

    def put(spool: Spool) -> None:
        for size in (10, 10, 10, 50, 10, 10):
            spool.add(b"x" * size, LINES[0])

    shards, _, _ = spooled(tmp_path, put, rows=2, size=40)
    assert [[len(line) for line in shard] for shard in shards] == [[10, 10], [10], [50], [10, 10]]


@pytest.mark.parametrize(
    ("fails", "rows", "expected"),
    [(1, 4, [4]), (2, 4, [2, 2]), (3, 5, [2, 3]), (2, 1, []), (1, 1, [1])],
)
def test_what_failed_together_goes_out_whole_once_then_in_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int, rows: int, expected: list[int]
) -> None:
    """Until a line has failed alone; also where the lines did not fit into memory."""
    monkeypatch.setattr("corpusmill.transform.shards.BUFFERED", 3)

    def put(spool: Spool) -> None:
        for row in range(rows):
            spool.add_again(7, b"%d" % row, LINES[0], fails=fails, reason="why")

    shards, counts, failed = spooled(tmp_path, put)
    assert [len(shard) for shard in shards] == expected
    assert [line for shard in shards for line in shard] == [b"%d" % row for row in range(sum(expected))]
    assert counts == [fails] * len(expected)
    assert failed == ([] if expected else ["why"])
