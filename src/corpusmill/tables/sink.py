"""Sinks: a dataset that is all there or not there, written by one run at a time."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyarrow import fs as pafs

from corpusmill.errors import SinkError
from corpusmill.tables.commit import current_manifest, has_leftovers, recover
from corpusmill.tables.layout import Layout, is_ours, layout_of
from corpusmill.tables.lock import locked
from corpusmill.tables.parts import COMPRESSIONS
from corpusmill.tables.storable import check_storable
from corpusmill.tables.storage import failures_as, refusals_as
from corpusmill.tables.writing import Writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from corpusmill.tables.locate import FileState
    from corpusmill.tables.manifest import Manifest

Decision = Literal["skip", "write", "rebuild"]

MARKERS = frozenset({"_SUCCESS", ".DS_Store", "Thumbs.db", "desktop.ini"})
"""What other programs leave in a folder of their own accord; nobody misses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """Where the output goes, and in which shape.

    `path` is a folder, or one file when it ends in `.parquet`. `columns` names the passed-through columns to
    keep (None: all). `partition` makes the sink one hive partition, such as `{"lang": "lv"}`: the folder
    `lang=lv` with a manifest of its own; a value of None is hive's null. A part holds `rows_per_part` source
    rows.
    """

    path: str | Path
    columns: Sequence[str] | None = None
    partition: Mapping[str, str | None] | None = None
    rows_per_part: int = 65_536
    compression: str = "zstd"

    def __post_init__(self) -> None:
        """Refuse what could not mean anything."""
        if self.rows_per_part < 1:
            raise SinkError(f"sink.rows_per_part is {self.rows_per_part}; it must be at least 1")
        if isinstance(self.columns, str):
            raise SinkError(f"sink.columns is the text {self.columns!r}; it must be a list of names")
        if self.compression not in COMPRESSIONS:
            raise SinkError(f"sink.compression is {self.compression!r}; known are {', '.join(COMPRESSIONS)}")


SinkLike = SinkSpec | str | Path


class Sink:
    """A place for one dataset. Made by `open_sink`; nothing is touched before `lock`."""

    def __init__(self, spec: SinkSpec, layout: Layout) -> None:
        self.spec = spec
        self.layout = layout

    def __repr__(self) -> str:
        return f"<Sink {self.layout.kind} {self.shown}>"

    @property
    def shown(self) -> str:
        """The sink as the user knows it."""
        return self.layout.target.shown

    def manifest(self) -> Manifest | None:
        """The manifest of what lies there; None when nothing of ours does.

        Raises:
            SinkError: there is one that cannot be read.
        """
        with refusals_as(SinkError), failures_as(SinkError, "cannot read", self.layout.target):
            return current_manifest(self.layout)

    def decide(self, run_key: str | None, job_key: str, *, overwrite: bool = False) -> Decision:
        """What a run has to do: nothing, write, or rebuild and replace. Reads manifest and sizes, no rows.

        Raises:
            SinkError: something else lies there and `overwrite` is not set; says what.
        """
        found = self.manifest()
        if found is not None:
            if run_key is not None and found.run_key == run_key and not found.failed and self.is_whole(found):
                return "skip"
            if found.job_key != job_key and not overwrite:
                raise SinkError(
                    f"{self.shown} holds the output of another job (run {(found.run_key or 'without a key')[:12]}, "
                    f"{found.rows:,} rows), or of this one before it was changed; choose another place, or pass "
                    "--overwrite (in Python overwrite=True), which removes all that lies there, and nothing from the "
                    "store"
                )
        strangers = self._strangers(ours=found is not None)
        if not strangers:
            return "write" if found is None else "rebuild"
        if overwrite:
            self._refuse_precious()
            return "rebuild"
        if found is None:
            raise SinkError(
                f"{self.shown} already holds {strangers}; choose another place, or pass --overwrite (in Python "
                "overwrite=True), which removes all of that"
            )
        raise SinkError(
            f"{self.shown} is to be written anew, and holds {strangers} besides; put them elsewhere, or pass "
            "--overwrite (in Python overwrite=True), which removes all that lies there"
        )

    def _strangers(self, *, ours: bool) -> str:
        """What lies in the way, in words; nothing when the way is free. `ours`: a dataset of ours lies there."""
        target = self.layout.target
        if ours and self.layout.kind == "file":
            return ""
        with failures_as(SinkError, "cannot read", target):
            kind = target.info().type
            if kind == pafs.FileType.File:
                return "a file that no run of corpusmill wrote"
            if kind == pafs.FileType.NotFound:
                return ""
            found = [info.base_name for info in target.children()]
            names = [name for name in found if not is_ours(name) and name not in MARKERS]
        if self.layout.kind == "file":
            return "a folder"
        return (
            f"files or folders that no run of corpusmill wrote ({len(names)}, {names[0]!r} among them)"
            if names
            else ""
        )

    def refuse_source(self, files: Iterable[FileState]) -> None:
        """Refuse a sink that would replace what is being read.

        Raises:
            SinkError: one of the source's files is the sink, or lies inside it; names the file.
        """
        target = self.layout.target
        for file in files:
            if file.place.local != target.local:
                continue
            if self.holds(file.place.path) if target.local else _within(file.place.path, target.path):
                raise SinkError(f"{self.shown} holds {file.shown}, which is read; write to another place")

    def holds(self, path: str | Path) -> bool:
        """Whether a local path is the sink or lies in it, whether or not anything is there."""
        return self.layout.target.local and _within(os.path.realpath(path), self.layout.target.path)

    def _refuse_precious(self) -> None:
        """Overwriting removes all that lies there, which nobody means of these places."""
        target = self.layout.target
        if target.local and any(place.is_relative_to(target.path) for place in _precious()):
            raise SinkError(
                f"{self.shown} is (or holds) the working or the home folder and is not overwritten"
            )
        if not target.local and "/" not in target.path:
            raise SinkError(f"{self.shown} is a whole bucket and is not overwritten; name a folder in it")

    def is_whole(self, manifest: Manifest) -> bool:
        """Whether all parts that the manifest names are there, with their sizes."""
        target = self.layout.target
        with failures_as(SinkError, "cannot read", target):
            if self.layout.kind == "file":
                return True  # `current_manifest` has compared the file with it.
            sizes = {info.base_name: info.size for info in target.children()}
        return all(sizes.get(part.name) == part.bytes for part in manifest.parts)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the sink against other runs, and first clear what dead ones left behind.

        Raises:
            SinkHeldError: another run holds it; names the holder.
            SinkError: the place cannot be written.
        """
        with locked(self.layout):
            self.recover()
            yield

    def recover(self) -> None:
        """Finish or undo an interrupted commit and remove leftovers. Only under `lock`, which calls it."""
        with refusals_as(SinkError), failures_as(SinkError, "cannot write", self.layout.target):
            recover(self.layout)

    def tidy(self) -> None:
        """Clear what an interrupted commit left beside a whole dataset, unless a run holds the sink just now."""
        with failures_as(SinkError, "cannot read", self.layout.target):
            found = has_leftovers(self.layout)
        if found:
            with contextlib.suppress(SinkError), self.lock():
                pass

    def begin(self, schema: pa.Schema, *, run_key: str | None, job_key: str) -> Writing:
        """Start to stage a dataset of the schema. Only under `lock`.

        Raises:
            UsageError: a column is of a type that Parquet cannot hold.
            SinkError: the place cannot be written.
        """
        check_storable(schema)
        return Writing(
            self.layout, schema, compression=self.spec.compression, run_key=run_key, job_key=job_key
        )

    def write_failures(self, lines: Iterable[bytes]) -> str:
        """Write `<sink>.failed.jsonl`, the lines as they come, and tell its path."""
        place = self.layout.failures
        with failures_as(SinkError, "cannot write", place):
            place.parent.make_folder()
            staged = place.beside(f".{place.name}.new") if place.local else place
            with staged.filesystem.open_output_stream(staged.path) as stream:
                for line in lines:
                    stream.write(line if line.endswith(b"\n") else line + b"\n")
            if place.local:
                staged.move_to(place)
        return place.shown


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _precious() -> list[Path]:
    """The working and the home folder, by their real paths, as a sink has one; without those that are not there."""
    found = []
    for place in (Path.cwd, Path.home):
        with contextlib.suppress(OSError, RuntimeError):
            found.append(place().resolve())
    return found


def open_sink(spec: SinkLike) -> Sink:
    """Name a place for a dataset; nothing is touched yet.

    Raises:
        SinkError: the place or its shape makes no sense.
    """
    if not isinstance(spec, SinkSpec):
        spec = SinkSpec(path=spec)
    try:
        with refusals_as(SinkError):
            return Sink(spec, layout_of(spec.path, spec.partition))
    except OSError as error:
        raise SinkError(f"cannot write {spec.path}: {error.strerror or error}") from error
