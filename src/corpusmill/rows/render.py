"""A batch becomes requests: one a row and prompt, with its key, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from corpusmill.errors import PromptError
from corpusmill.exchange import ChatRequest, clean_text, content_text
from corpusmill.fingerprint import Fingerprint, canonical
from corpusmill.prompts.fields import is_blank
from corpusmill.prompts.prompt import Rendered, Unaskable
from corpusmill.rows.text import column_values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from corpusmill.exchange import Message
    from corpusmill.prompts.prompt import Prompt

CLEANED = "input_cleaned"
"""The note on a row whose text held NUL or what is no Unicode character."""


_OF_THE_ROW = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)
"""What is raised where a row's own data cannot become JSON: keys that are no text, nesting without end, odd objects."""


def _why(error: Exception) -> str:
    return f"no request can be made of the row ({type(error).__name__}: {str(error)[:200]})"


@dataclass(slots=True)
class Asked:
    """What one prompt asks of one batch. All lists have the length of the batch.

    `keys[row]` is None where no request is made: `unaskable` then has the reason, or else the row is blank.
    `ceilings[row]` is the most tokens that the answer may have, None where nothing bounds it. `values[row]` are the
    values of the prompt's inputs: the request is made of them when it is wanted, and the answer judged by them.
    """

    prompt: Prompt
    values: list[tuple[Any, ...]]
    keys: list[bytes | None] = field(default_factory=list)
    ceilings: list[int | None] = field(default_factory=list)
    unaskable: dict[int, str] = field(default_factory=dict)
    cleaned: frozenset[int] = frozenset()

    def part(self, start: int, stop: int) -> Asked:
        """Give what is asked of the rows from `start` on and before `stop`."""
        here = range(start, stop)
        return Asked(
            self.prompt,
            self.values[start:stop],
            self.keys[start:stop],
            self.ceilings[start:stop],
            {row - start: why for row, why in self.unaskable.items() if row in here},
            frozenset(row - start for row in self.cleaned if row in here),
        )

    def let_go(self) -> None:
        """Hold the values no longer: the batch has them."""
        self.values = []

    def take_up(self, batch: pa.RecordBatch) -> None:
        """Read values again that were let go, from the batch that they came from."""
        if not self.values:
            self.values = _read(self.prompt, batch).values

    def rendered(self, row: int) -> Rendered:
        """Make the request of a row that has a key."""
        made = self.prompt.render(self.values[row])
        assert type(made) is Rendered, f"row {row} had a request, and now it has none"
        return made


def _read(prompt: Prompt, batch: pa.RecordBatch) -> Asked:
    """Read the columns; no request is made yet."""
    columns: list[list[Any]] = []
    cleaned: frozenset[int] = frozenset()
    unaskable: dict[int, str] = {}
    for wanted in prompt.inputs:
        found = column_values(batch, wanted)
        columns.append(found.items)
        cleaned |= found.cleaned
        for row, why in found.unreadable.items():
            unaskable.setdefault(row, f"{wanted.path}: {why}")
    values = list(zip(*columns, strict=True))
    return Asked(prompt, values, cleaned=cleaned, unaskable=unaskable)


class Renderer:
    """Renders the rows of one prompt for one endpoint; what all rows share is hashed once."""

    def __init__(
        self,
        prompt: Prompt,
        *,
        identity: str,
        check: Callable[[Mapping[str, Any], Sequence[Message]], None] | None = None,
    ) -> None:
        """Take the prompt and the identity of the endpoint that will be asked.

        `check` raises `PromptError` for messages that the endpoint would refuse. It is called for rows whose messages
        come from their own data; what templates make of text is checked once, before the run.
        """
        self.prompt = prompt
        self._check = check if any(wanted.kind != "text" for wanted in prompt.inputs) else None
        self._identity = identity
        self._shared = Fingerprint(identity, prompt.parameters)
        plain = prompt.plain
        self._frame = plain and self._shared.frame(plain.fixed, plain.role, plain.before, plain.after)
        self._others: dict[bytes, Fingerprint] = {}

    def ask(self, batch: pa.RecordBatch) -> Asked:
        """Make the requests of a batch; a row of which none can be made fails, and no other."""
        asked = _read(self.prompt, batch)
        plain = self.prompt.plain
        if plain is not None and self._frame is not None and not asked.unaskable:
            # No request is made of what may be in the store: its key is told from the text.
            key_of = self._frame.key
            asked.keys = [None if is_blank(text) else key_of(text) for (text,) in asked.values]
            asked.ceilings = [plain.ceiling] * len(asked.keys)
            return asked
        self._render(asked)
        return asked

    def _render(self, asked: Asked) -> None:
        unreadable = frozenset(asked.unaskable)
        render, key_of, check = self.prompt.render, self._shared.key, self._check is not None
        add_key, add_ceiling = asked.keys.append, asked.ceilings.append
        for row, row_values in enumerate(asked.values):
            made: Rendered | Unaskable | None = None
            key: bytes | None = None
            try:
                if row not in unreadable:
                    made = render(row_values)
                    if check and type(made) is Rendered:
                        made = self._checked(made)
                if type(made) is Rendered:
                    if made.parameters is None:
                        key = key_of(made.messages, made.vary)
                    else:
                        key = self._fingerprint(made.parameters).key(made.messages, made.vary)
            except _OF_THE_ROW as error:
                made = Unaskable(reason=_why(error))
            if type(made) is Rendered:
                add_key(key)
                add_ceiling(made.ceiling)
                continue
            if type(made) is Unaskable:
                asked.unaskable[row] = clean_text(made.reason)
            add_key(None)
            add_ceiling(None)

    def _checked(self, made: Rendered) -> Rendered | Unaskable:
        assert self._check is not None
        try:
            self._check({**self.prompt.parameters, **(made.parameters or {})}, made.messages)
        except PromptError as error:
            return Unaskable(reason=str(error))
        return made

    def fields(self, rendered: Rendered) -> dict[str, str]:
        """Name the fields that the key of a request covers, with their digests."""
        fingerprint = self._shared if rendered.parameters is None else self._fingerprint(rendered.parameters)
        return fingerprint.fields_of(rendered.messages, rendered.vary)

    def message_fields(self, rendered: Rendered) -> dict[str, str]:
        """Name the fields in which the requests of the prompt differ, with their digests."""
        return self._shared.fields_of_messages(rendered.messages, rendered.vary)

    @property
    def shared_fields(self) -> Mapping[str, str]:
        """The fields that all requests of the prompt share, with their digests."""
        return self._shared.fields

    def request(self, rendered: Rendered, *, ceiling: int | None) -> ChatRequest:
        """Make the request to send, under a ceiling that may have been raised."""
        parameters = self.prompt.parameters
        if rendered.parameters is not None:
            parameters = {**parameters, **rendered.parameters}
        return ChatRequest(
            messages=rendered.messages, parameters=parameters, ceiling=ceiling, vary=rendered.vary
        )

    def _fingerprint(self, parameters: Mapping[str, Any]) -> Fingerprint:
        # Rows that bring parameters of their own usually bring one of a few; the bound keeps a corpus of tools flat.
        name = canonical(parameters, ordered=True)
        found = self._others.get(name)
        if found is None:
            if len(self._others) >= 1_000:  # noqa: PLR2004
                self._others.clear()
            found = self._others[name] = Fingerprint(self._identity, {**self.prompt.parameters, **parameters})
        return found


def characters(messages: Sequence[Mapping[str, Any]]) -> int:
    """Count the characters of the text in messages, from which tokens are estimated."""
    count = 0
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            count += len(content)
        elif isinstance(content, list):
            count += len(content_text(content) or "")
    return count
