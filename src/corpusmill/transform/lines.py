"""One line of a shard, there and back: pure.

There is `{"id": key, "request": {...}}`, or the bare request. Back come joined lines in any order, with the answer
under `SageMakerOutput` beside the id or beside the request itself, or bare answers in the order of the input. Joined
objects are written anew by the service, with their keys in another order, so that bytes of input and output are never
compared. Lines end at line feeds only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from corpusmill.chat.problem import SHOWN, read_problem
from corpusmill.exchange import Completion, NotACompletionError, read_completion, read_object
from corpusmill.fingerprint import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from corpusmill.transform.keys import LineKey

OUTPUT: Final = "SageMakerOutput"

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def wrap(key: bytes, request: bytes) -> bytes:
    """Give the line of a request: its key as the id, and the request as it is."""
    return b'{"id":"%b","request":%b}' % (key.hex().encode(), request)


def split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Give the lines of a body that comes in pieces, without their line feeds; blank ones are left out."""
    rest: list[bytes] = []
    for chunk in chunks:
        first, found, behind = chunk.partition(b"\n")
        rest.append(first)
        if not found:
            continue
        lines = behind.split(b"\n")
        yield from _kept(b"".join(rest))
        for line in lines[:-1]:
            yield from _kept(line)
        rest = [lines[-1]]
    yield from _kept(b"".join(rest))


def _kept(line: bytes) -> Iterator[bytes]:
    if line and not line.isspace():
        yield line


@dataclass(frozen=True, slots=True)
class LineAnswer:
    """What came back for one line: a completion, or the reason why there is none."""

    line: LineKey
    completion: Completion | None
    reason: str | None = None


@dataclass(slots=True)
class Tally:
    """What was odd about an output: lines that belong to no line of the shard, and second answers to the same one."""

    strange: int = 0
    repeated: int = 0

    def __str__(self) -> str:
        """Say what was odd, "" when nothing was."""
        counts = (("not of this shard", self.strange), ("for a line that had its answer", self.repeated))
        return ", ".join(f"{count:,} {what}" for what, count in counts if count)


@dataclass(slots=True)
class _Turns:
    """The lines of one request: how many have had their turn, and what may yet turn out to be a repetition.

    `over` counts answers that are for none of them, since they came before or all have theirs.
    """

    lines: Sequence[LineKey]
    taken: int = 0
    seen: set[bytes] = field(default_factory=set)
    held: list[tuple[LineKey, bytes]] = field(default_factory=list)
    spare: list[bytes] = field(default_factory=list)
    over: int = 0

    @property
    def repeats(self) -> bool:
        """Whether there was a repetition, or more than there are lines."""
        return bool(self.over or self.spare)

    def take(self, body: bytes) -> LineKey | None:
        """Give the line whose answer this is; None where it is none, or is known at the end only."""
        mark = digest(body)
        new = mark not in self.seen
        self.seen.add(mark)
        left = self.taken < len(self.lines)
        if left and (new or not _has_id(body)):
            line = self.lines[self.taken]
            self.taken += 1
            if new:
                return line
            self.held.append((line, body))
        elif new and len(self.spare) < len(self.held):
            self.spare.append(body)
        else:
            self.over += 1
        return None

    def late(self, *, repeats: bool) -> list[tuple[LineKey, bytes]]:
        """Give what had to wait for the end, which has told whether the output `repeats` lines."""
        if not repeats:
            return self.held
        return [(line, body) for (line, _), body in zip(self.held, self.spare, strict=False)]


def read_joined(
    output: Iterable[bytes], by_id: Mapping[str, Sequence[LineKey]], tally: Tally, *, wrapped: bool
) -> Iterator[LineAnswer]:
    """Read lines that carry their input, in whatever order; those of one input are for its lines, turn by turn.

    `by_id` maps the hexadecimal key of each line of the shard to it; where lines are not `wrapped`, it maps the
    `request_id` of each request to all lines that ask it, in their order.

    An answer that came before, byte for byte, is a repetition and no other line's where it has an id, which no two
    completions share. One without an id is the answer of another line, unless the output has more lines of some input
    than were sent: then it repeats lines, and equal ones are taken for one. That is known at the end only.
    """
    alone: set[str] = set()
    several: dict[str, _Turns] = {}
    repeats = False
    for text in output:
        try:
            members = _decode_members(text)
            name = _id_of(members, wrapped=wrapped)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            tally.strange += 1
            continue
        lines = by_id.get(name, ())
        body = bytes(members.get(OUTPUT, b""))
        if not lines:
            tally.strange += 1
        elif len(lines) > 1:
            turns = several.setdefault(name, _Turns(lines))
            if (line := turns.take(body)) is not None:
                yield read_answer(line, body)
        elif name not in alone:
            alone.add(name)
            yield read_answer(lines[0], body)
        else:
            repeats = True
            tally.repeated += 1
    repeats = repeats or any(turns.repeats for turns in several.values())
    for turns in several.values():
        tally.repeated += turns.over + (len(turns.held) if repeats else 0)
        for line, body in turns.late(repeats=repeats):
            yield read_answer(line, body)


def _has_id(body: bytes) -> bool:
    """Whether an answer has an id of its own, by which it can be told from another one that says the same."""
    try:
        document = read_object(_body_of(body))
    except NotACompletionError:
        return False
    name = document.get("id")
    return isinstance(name, str) and bool(name)


def _id_of(members: dict[str, msgspec.Raw], *, wrapped: bool) -> str:
    if wrapped:
        return _decode_text(members["id"]) if "id" in members else ""
    rest = {name: msgspec.json.decode(value) for name, value in members.items() if name != OUTPUT}
    return request_id(rest)


def request_id(request: Mapping[str, Any]) -> str:
    """Give a name to a bare request that does not depend on how its numbers are written and its keys are ordered.

    At any depth: the service knows of no member within which order is content.
    """
    return digest(_encode_sorted(_plain(request))).hex()


def _plain(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def read_plain(output: Iterable[bytes], lines: Sequence[LineKey]) -> list[LineAnswer] | None:
    """Read bare answers, one a line of the shard; None when there are more or fewer: nobody knows whose they are."""
    found = list(output)
    if len(found) != len(lines):
        return None
    return [read_answer(line, body) for line, body in zip(lines, found, strict=True)]


def read_answer(line: LineKey, body: bytes) -> LineAnswer:
    """Read what the container said to one line, also when it says it as a text within JSON; b"" is nothing at all."""
    if not body:
        return LineAnswer(line, None, f"the line came back without {OUTPUT}")
    try:
        body = _body_of(body)
        completion = read_completion(body)
    except NotACompletionError as error:
        said = read_problem(body)
        reason = (
            f"the container answered with an error: {said.message[:SHOWN]}" if said.declared else str(error)
        )
        return LineAnswer(line, None, reason)
    if completion.finish_reason is None or completion.finish_reason == "error":
        return LineAnswer(line, None, "the answer has no finish reason")
    return LineAnswer(line, completion)


def _body_of(body: bytes) -> bytes:
    """Take an answer out of a text within JSON, where it is one."""
    if body.lstrip()[:1] != b'"':
        return body
    try:
        return _decode_text(body).encode("utf-8", "surrogatepass")
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise NotACompletionError("the answer is not JSON") from None
