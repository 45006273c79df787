"""What makes two requests the same: canonical bytes, and the request key over them.

A key covers the endpoint's identity and the content of the request, field by field, each field through a digest of
its own, so that a miss can be explained by naming the fields that differ without keeping any text.

Left out, because they change how an answer is fetched and not what it is: `stream` and `stream_options` (the same
answer in pieces), `max_tokens` and `max_completion_tokens` (ceilings; see the store), headers, keys and time-outs
(they never enter a `ChatRequest`). Everything else is in, fields that nobody here knows included.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

import msgspec

from corpusmill.exchange import CEILINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from corpusmill.exchange import ChatRequest, Message

LEFT_OUT = frozenset({"stream", "stream_options", *CEILINGS})

ORDERED = frozenset({"json_schema", "tools", "chat_template_kwargs"})
"""Inside these the order of keys reaches the model and changes its answers, so it is content."""

KEY_BYTES = 20

_USUAL = len(("role", "content"))

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def canonical(value: object, *, ordered: bool = False) -> bytes:
    """Give the canonical JSON bytes of a value: keys sorted unless `ordered`, 0 for 0.0, null members dropped."""
    return _encode(_canonical(value, ordered=ordered))


def _canonical(value: object, *, ordered: bool) -> object:
    if isinstance(value, float):
        if math.isfinite(value):
            return int(value) if value.is_integer() else value
        return {"nonfinite": repr(value)}
    if isinstance(value, dict):
        names = list(value) if ordered else sorted(value)
        return {
            str(name): _canonical(value[name], ordered=ordered or name in ORDERED)
            for name in names
            if value[name] is not None
        }
    if isinstance(value, list | tuple):
        return [_canonical(item, ordered=ordered) for item in value]
    return value


def _is_usual(message: Message) -> bool:
    """Tell whether a message is a role and a string: nothing to drop or to keep in order, canonical once sorted.

    Every row of a corpus comes by here.
    """
    return len(message) == _USUAL and type(message.get("content")) is str


def digest(data: bytes) -> bytes:
    """Hash bytes to the length of a request key (20 bytes, BLAKE2b)."""
    return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()


class Fingerprint:
    """The keys of all requests that share an identity and parameters; only the messages are hashed by row."""

    __slots__ = ("_parts", "_prefix", "fields")

    def __init__(self, identity: str, parameters: Mapping[str, Any]) -> None:
        """Hash what the rows have in common: `fields` maps each field's name to the hex digest of its value."""
        self.fields: dict[str, str] = {"identity": digest(identity.encode()).hex()}
        for name in sorted(parameters):
            value = parameters[name]
            if name in LEFT_OUT or value is None:
                continue
            self.fields[name] = digest(canonical(value, ordered=name in ORDERED)).hex()
        self._prefix = hashlib.blake2b(canonical(self.fields), digest_size=KEY_BYTES)

    def key(self, messages: Sequence[Message], vary: str | None = None) -> bytes:
        """Give the request key (20 bytes)."""
        state = self._prefix.copy()
        for message in messages:
            if (
                len(message) != _USUAL or type(message.get("content")) is not str
            ):  # `_is_usual`, without its call
                state.update(canonical(list(messages)))
                break
        else:
            state.update(_encode_sorted(messages))
        if vary is not None:
            state.update(b"vary:" + vary.encode("utf-8", "surrogatepass"))
        return state.digest()

    def frame(self, fixed: Sequence[Message], role: str, before: str, after: str) -> Frame:
        """Hash all but the text of requests that have `fixed` messages and then one with the text in it.

        `Frame.key(text)` is `key((*fixed, {"role": role, "content": before + text + after}))`, several times as fast.
        """
        # JSON escapes each character by itself, so that the pieces may be written one by one.
        end = b'","role":' + _encode(role) + b"}]"
        begun = _encode_sorted([*fixed, {"role": role, "content": before}])
        state = self._prefix.copy()
        state.update(begun.removesuffix(end))
        return Frame(state, _encode(after)[1:-1] + end)

    def fields_of(self, messages: Sequence[Message], vary: str | None = None) -> dict[str, str]:
        """Name every field that the key covers, each message by itself, with the hex digest of its value."""
        return {**self.fields, **self.fields_of_messages(messages, vary)}

    @staticmethod
    def fields_of_messages(messages: Sequence[Message], vary: str | None = None) -> dict[str, str]:
        """Name the fields that differ from row to row, with their digests."""
        fields = {}
        for position, message in enumerate(messages):
            written = _encode_sorted(message) if _is_usual(message) else canonical(message)
            fields[f"messages[{position}]"] = digest(written).hex()
        if vary is not None:
            fields["vary_by"] = digest(vary.encode("utf-8", "surrogatepass")).hex()
        return fields


class Frame:
    """The keys of requests that differ in one text."""

    __slots__ = ("_begun", "_end")

    def __init__(self, begun: hashlib.blake2b, end: bytes) -> None:
        """`begun` has hashed what stands before the text, `end` is what stands after it."""
        self._begun = begun
        self._end = end

    def key(self, text: str) -> bytes:
        """Give the key of the request with this text (20 bytes)."""
        state = self._begun.copy()
        state.update(_encode(text)[1:-1])
        state.update(self._end)
        return state.digest()


def request_key(identity: str, request: ChatRequest) -> bytes:
    """Give the key of one request (20 bytes); for many rows of one prompt keep a `Fingerprint`."""
    return Fingerprint(identity, request.parameters).key(request.messages, request.vary)
