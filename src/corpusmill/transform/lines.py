"""One line of a shard, there and back: pure.

There is `{"id": key, "request": {...}}`, or the bare request. Back come joined lines in any order, with the answer
under `SageMakerOutput` beside the id or beside the request itself, or bare answers in the order of the input. Joined
objects are written anew by the service, with their keys in another order, so that bytes are never compared. Lines end
at line feeds only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from corpusmill.chat.problem import SHOWN, read_problem
from corpusmill.exchange import Completion, NotACompletionError, read_completion
from corpusmill.fingerprint import canonical, digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from corpusmill.transform.keys import LineKey

OUTPUT: Final = "SageMakerOutput"

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


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


def read_joined(
    output: Iterable[bytes], by_id: Mapping[str, LineKey], tally: Tally, *, wrapped: bool
) -> Iterator[LineAnswer]:
    """Read lines that carry their input, in whatever order; of several for one line the first counts.

    `by_id` maps the hexadecimal key of each line of the shard to it; where lines are not `wrapped`, it maps the
    `request_id` of each request.
    """
    seen: set[str] = set()
    for text in output:
        try:
            members = _decode_members(text)
            name = _id_of(members, wrapped=wrapped)
        except (msgspec.DecodeError, UnicodeDecodeError):
            tally.strange += 1
            continue
        line = by_id.get(name)
        if line is None:
            tally.strange += 1
            continue
        if name in seen:
            tally.repeated += 1
            continue
        seen.add(name)
        answer = members.get(OUTPUT)
        yield (
            LineAnswer(line, None, f"the line came back without {OUTPUT}")
            if answer is None
            else read_answer(line, bytes(answer))
        )


def _id_of(members: dict[str, msgspec.Raw], *, wrapped: bool) -> str:
    if wrapped:
        return _decode_text(members["id"]) if "id" in members else ""
    rest = {name: msgspec.json.decode(value) for name, value in members.items() if name != OUTPUT}
    return request_id(rest)


def request_id(request: Mapping[str, Any]) -> str:
    """Give a name to a bare request that does not depend on the order of its keys."""
    return digest(canonical(dict(request))).hex()


def read_plain(output: Iterable[bytes], lines: Sequence[LineKey]) -> list[LineAnswer] | None:
    """Read bare answers, one a line of the shard; None when there are more or fewer: nobody knows whose they are."""
    found = list(output)
    if len(found) != len(lines):
        return None
    return [read_answer(line, body) for line, body in zip(lines, found, strict=True)]


def read_answer(line: LineKey, body: bytes) -> LineAnswer:
    """Read what the container said to one line, also when it says it as a text within JSON."""
    if body.lstrip()[:1] == b'"':
        try:
            body = _decode_text(body).encode("utf-8", "surrogatepass")
        except (msgspec.DecodeError, UnicodeDecodeError):
            return LineAnswer(line, None, "the answer is not JSON")
    try:
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
