"""Shards on their way to S3: written to local files first, so that a job's name can be made from all of its content.

Memory does not grow with their number. A shard whose lines failed together is written again as it was, and from its
second failure on in two halves, until the bad line stands alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from corpusmill.transform.keys import RECORD_BYTES
from corpusmill.transform.records import Shard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from corpusmill.transform.keys import LineKey

HALVED_FROM: Final = 2
"""Failures from which on a shard is halved."""

BUFFERED: Final = 8 << 20
"""Bytes of lines that wait in memory for their files, over all groups."""


@dataclass(slots=True)
class Spooled:
    """A shard in local files: its lines, and its packed keys."""

    shard: Shard
    lines: Path
    keys: Path


@dataclass(slots=True, kw_only=True)
class _Group:
    """Lines that failed together, gathered again: how often that has happened, why, and what of them is not on disk."""

    fails: int
    reason: str
    lines: list[bytes] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)

    def read(self, folder: Path, number: int) -> tuple[list[bytes], list[bytes]]:
        """Give lines and packed keys, from file and memory."""
        path = folder / f"group-{number}"
        lines, keys = [], []
        if path.exists():
            lines = path.read_bytes().split(b"\n")[:-1]
            packed = path.with_suffix(".keys").read_bytes()
            keys = [packed[at : at + RECORD_BYTES] for at in range(0, len(packed), RECORD_BYTES)]
        return lines + self.lines, keys + self.keys


class Spool:
    """Takes lines, gives shards of at most `rows` lines and about `size` bytes."""

    def __init__(self, folder: Path, *, rows: int, size: int) -> None:
        """Write into a folder that is there for nothing else."""
        self._folder = folder
        self._rows = rows
        self._bytes = size
        self._open: tuple[list[bytes], list[bytes], int] = ([], [], 0)
        self._groups: dict[int, _Group] = {}
        self._buffered = 0
        self.shards: list[Spooled] = []

    def add(self, line: bytes, key: LineKey) -> None:
        """Take a line that has not failed before."""
        lines, keys, size = self._open
        if lines and (len(lines) >= self._rows or size + len(line) >= self._bytes):
            self._write(lines, keys, fails=0)
            lines, keys, size = [], [], 0
        lines.append(line)
        keys.append(key.pack())
        self._open = (lines, keys, size + len(line) + 1)

    def add_again(self, number: int, line: bytes, key: LineKey, *, fails: int, reason: str) -> None:
        """Take a line of the group of this number, whose lines have failed together so often."""
        group = self._groups.get(number)
        if group is None:
            group = self._groups[number] = _Group(fails=fails, reason=reason)
        group.lines.append(line)
        group.keys.append(key.pack())
        self._buffered += len(line)
        if self._buffered > BUFFERED:
            self._flush()

    def _flush(self) -> None:
        for number, group in self._groups.items():
            path = self._folder / f"group-{number}"
            with path.open("ab") as lines, path.with_suffix(".keys").open("ab") as keys:
                lines.writelines(line + b"\n" for line in group.lines)
                keys.writelines(group.keys)
            group.lines.clear()
            group.keys.clear()
        self._buffered = 0

    def finish(self) -> Iterator[tuple[bytes, str]]:
        """Write what is open; give each line that has failed alone: its packed key, and the reason."""
        lines, keys, _ = self._open
        if lines:
            self._write(lines, keys, fails=0)
        self._open = ([], [], 0)
        for number in sorted(self._groups):
            group = self._groups[number]
            lines, keys = group.read(self._folder, number)
            if group.fails < HALVED_FROM:
                self._write(lines, keys, fails=group.fails)
            elif len(lines) == 1:
                yield keys[0], group.reason
            else:
                half = len(lines) // 2
                self._write(lines[:half], keys[:half], fails=group.fails)
                self._write(lines[half:], keys[half:], fails=group.fails)
        self._groups.clear()

    def _write(self, lines: list[bytes], keys: list[bytes], *, fails: int) -> None:
        name = f"s{len(self.shards):06}"
        paths = self._folder / f"{name}.jsonl", self._folder / f"{name}.keys"
        body = b"".join(line + b"\n" for line in lines)
        paths[0].write_bytes(body)
        paths[1].write_bytes(b"".join(keys))
        self.shards.append(Spooled(Shard(name=name, rows=len(lines), size=len(body), fails=fails), *paths))

    def all_keys(self) -> Path:
        """Write the packed keys of all shards into one file, and give it."""
        path = self._folder / "keys"
        with path.open("wb") as whole:
            for spooled in self.shards:
                whole.write(spooled.keys.read_bytes())
        return path

    def digest(self, place: str) -> str:
        """Hash where the job lies, which lines it has, in which shards, and how often they have failed.

        32 hexadecimal digits. The place is in it because names are an account's, and answers lie under one prefix.
        """
        state = hashlib.blake2b(place.encode(), digest_size=16)
        for spooled in self.shards:
            state.update(f"{spooled.shard.rows} {spooled.shard.fails} ".encode())
            state.update(spooled.keys.read_bytes())
        return state.hexdigest()
