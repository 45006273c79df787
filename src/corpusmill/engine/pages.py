"""Open rows: a chunk of the source whose answers are being gathered, until all of them are there.

A chunk settles when its last answer arrives, whatever other chunks do. It then becomes a batch of the output; a
batch that has to wait for an earlier one is shelved, and the shelf puts batches on disk when they weigh too much.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corpusmill.engine.tally import SHOWN
from corpusmill.outcome import Outcome
from corpusmill.quoting import texts_in
from corpusmill.report import Sample
from corpusmill.rows.columns import Filling
from corpusmill.rows.judge import Answer, judge
from corpusmill.rows.prompt_cut import is_prompt_cut, long_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from corpusmill.engine.ladder import Rung
    from corpusmill.engine.tally import Ledger
    from corpusmill.prompts.prompt import Prompt, Rendered
    from corpusmill.rows.render import Asked

HEAVY_BYTES = 1 << 20
"""Weight from which on an open chunk is held in one form only."""

SHELF_BYTES = 64 << 20
"""Weight of the batches that wait in memory for an earlier one; what is above goes to disk."""


@dataclass(slots=True)
class OpenChunk:
    """A chunk of the source, what is asked of it, and the answers so far; `missing` counts those to come.

    `to_ask` are the requests of which the store has no answer, by prompt and row, until the run takes them up. `rungs`
    say, by prompt and row, under which ceiling a request goes on that stored answers have led upwards.
    """

    first_row: int
    batch: pa.RecordBatch
    asked: list[Asked]
    answers: list[list[Answer | None]] = field(default_factory=list)
    to_ask: list[tuple[int, int, Rendered]] = field(default_factory=list)
    missing: int = 0
    rungs: dict[tuple[int, int], Rung] = field(default_factory=dict)

    @property
    def weight(self) -> int:
        """The bytes of its rows."""
        return self.batch.nbytes

    def hits(self) -> int:
        """Count the answers that were stored before this run."""
        return sum(
            answer is not None and answer.origin == "cached" for answers in self.answers for answer in answers
        )

    def pieces(self, rows: int) -> Iterator[OpenChunk]:
        """Cut into chunks of at most so many rows."""
        for start in range(0, self.batch.num_rows, rows):
            stop = min(start + rows, self.batch.num_rows)
            here = range(start, stop)
            to_ask = [(prompt, row - start, made) for prompt, row, made in self.to_ask if row in here]
            yield OpenChunk(
                self.first_row + start,
                self.batch.slice(start, rows),
                [asked.part(start, stop) for asked in self.asked],
                [answers[start:stop] for answers in self.answers],
                to_ask,
                len(to_ask),
                {(prompt, row - start): rung for (prompt, row), rung in self.rungs.items() if row in here},
            )

    def rest(self) -> None:
        """Let go, while its answers are waited for, of what can be read from the rows again: Python's copy of them."""
        if self.weight >= HEAVY_BYTES:
            for asked in self.asked:
                asked.let_go()

    def complete(self) -> dict[int, None]:
        """Give the rows, in order, that no answer is missing to."""
        return dict.fromkeys(
            row
            for row in range(self.batch.num_rows)
            if all(
                asked.keys[row] is None or answers[row] is not None
                for asked, answers in zip(self.asked, self.answers, strict=True)
            )
        )

    def settle(self, prompt: int, row: int, answer: Answer) -> bool:
        """Put an answer in its place; True when it was the last one."""
        self.answers[prompt][row] = answer
        self.missing -= 1
        return self.missing == 0


class Binder:
    """Turns settled chunks into batches of the output, and counts every row exactly once."""

    def __init__(
        self,
        *,
        prompts: Sequence[Prompt],
        kept_columns: Sequence[str],
        schema: pa.Schema,
        telemetry: bool,
        ledger: Ledger,
        failed: Callable[[int, str, str, Outcome, Iterable[str]], None],
    ) -> None:
        """`schema` is that of the output; `kept_columns` are the source's columns in it.

        `failed` hears of errors, of which kind they are, and which texts they may quote.
        """
        self._prompts = prompts
        self._kept = kept_columns
        self._schema = schema
        self._telemetry = telemetry
        self._ledger = ledger
        self._failed = failed

    def bind(self, chunk: OpenChunk) -> pa.RecordBatch:
        """Build the output batch of a chunk: its own columns, then those of each prompt."""
        arrays: list[pa.Array[Any]] = [chunk.batch.column(name) for name in self._kept]
        for position, prompt in enumerate(self._prompts):
            arrays.extend(self._fill(chunk, position, prompt).arrays())
        self._ledger.rows += chunk.batch.num_rows
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def count(self, chunk: OpenChunk) -> None:
        """Count the rows of a chunk that have all their answers, where the others will never come."""
        complete = chunk.complete()
        for position, prompt in enumerate(self._prompts):
            self._fill(chunk, position, prompt, only=complete)
        self._ledger.rows += len(complete)

    def _fill(
        self, chunk: OpenChunk, position: int, prompt: Prompt, *, only: Collection[int] | None = None
    ) -> Filling:
        filling = Filling(prompt, self._telemetry)
        asked, answers = chunk.asked[position], chunk.answers[position]
        asked.take_up(chunk.batch)
        long = long_rows(asked)
        for row, (key, values, answer) in enumerate(zip(asked.keys, asked.values, answers, strict=True)):
            if only is not None and row not in only:
                continue
            if key is None:
                filling.add(_not_asked(asked.unaskable.get(row)), None, None)
            elif answer is None:
                raise AssertionError(f"row {chunk.first_row + row} was bound before its answer came")
            else:
                cut = (
                    row in long
                    and answer.completion is not None
                    and is_prompt_cut(asked, row, answer.completion.prompt_tokens)
                )
                outcome, value = judge(prompt, values, answer, key, cleaned=row in asked.cleaned, cut=cut)
                filling.add(outcome, value, answer.completion)
        quiet = self._ledger.prompts[position].add(filling.outcomes)
        if not quiet or self._ledger.has_room(prompt.into):
            self._note(chunk, position, prompt, filling, range(len(answers)) if only is None else only)
        return filling

    def _note(
        self, chunk: OpenChunk, position: int, prompt: Prompt, filling: Filling, rows: Iterable[int]
    ) -> None:
        """Log the rows that failed, and show those that the report wants; `rows` are those of the filling."""
        ledger, asked, answers = self._ledger, chunk.asked[position], chunk.answers[position]
        errors = ledger.prompts[position].errors
        for row, outcome, value in zip(rows, filling.outcomes, filling.values, strict=True):
            if outcome.error is not None:
                answer = answers[row]
                kind = (answer.kind if answer else None) or outcome.status
                errors[kind] += 1
                own = _own(asked.values[row], answer)
                self._failed(chunk.first_row + row, prompt.into, kind, outcome, own)
            if ledger.wants(prompt.into, outcome):
                values = asked.values[row]
                ledger.show(_sample(chunk.first_row + row, prompt, values, outcome, value), outcome)


_SKIPPED = Outcome(status="skipped", origin="skipped")


def _not_asked(reason: str | None) -> Outcome:
    return _SKIPPED if reason is None else Outcome(status="failed", error=reason)


def _own(values: Sequence[Any], answer: Answer | None) -> Iterator[str]:
    """Give the texts that an error about a row may quote."""
    yield from texts_in(values)
    if answer is not None and answer.completion is not None:
        # With all its choices and refusals, and as one text, of which a word that is in no list, say, is no quotation.
        yield answer.completion.body.decode("utf-8", "replace")


def _sample(row: int, prompt: Prompt, values: Sequence[Any], outcome: Outcome, value: object) -> Sample:
    inputs = {
        wanted.path: _shown(item)
        for wanted, item in zip(prompt.inputs, values, strict=True)
        if item is not None
    }
    return Sample(
        row=row,
        into=prompt.into,
        inputs=inputs,
        output=None if value is None else _shown(value),
        status=outcome.status,
        error=outcome.error,
        seconds=outcome.seconds,
        attempts=outcome.attempts,
        notes=outcome.notes,
    )


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


class Shelves:
    """What all shelves of a run share: how much memory they take together, and where the rest lies."""

    def __init__(self, *, limit: int = SHELF_BYTES) -> None:
        """Hold at most `limit` bytes in memory."""
        self.weight = 0
        self._limit = limit
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files = 0

    def has_room(self, weight: int) -> bool:
        """Tell whether a batch of this weight may stay in memory."""
        return self.weight + weight <= self._limit

    def put_on_disk(self, batch: pa.RecordBatch) -> Path:
        """Write a batch to a file of its own."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="corpusmill-")
        self._files += 1
        path = Path(self._folder.name, f"{self._files}.arrow")
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        return path

    @staticmethod
    def take_from_disk(path: Path) -> pa.RecordBatch:
        """Read a batch back and remove its file."""
        with pa.OSFile(str(path), "rb") as file:
            batch = pa.ipc.open_file(file).get_batch(0)
        path.unlink()
        return batch

    def close(self) -> None:
        """Remove what lies on disk."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


@dataclass(slots=True)
class Shelf:
    """Batches that came before their turn, by first row."""

    next_row: int
    shelves: Shelves
    held: dict[int, pa.RecordBatch | Path] = field(default_factory=dict)

    def put(self, first_row: int, batch: pa.RecordBatch) -> None:
        """Shelve a batch."""
        weight = batch.nbytes
        if first_row != self.next_row and not self.shelves.has_room(weight):
            self.held[first_row] = self.shelves.put_on_disk(batch)
            return
        self.shelves.weight += weight
        self.held[first_row] = batch

    def take(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Give the batches whose turn it is, in order of rows."""
        while (found := self.held.pop(self.next_row, None)) is not None:
            first_row = self.next_row
            if isinstance(found, Path):
                batch = self.shelves.take_from_disk(found)
            else:
                batch = found
                self.shelves.weight -= batch.nbytes
            self.next_row += batch.num_rows
            yield first_row, batch
