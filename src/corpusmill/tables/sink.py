"""Sinks: a dataset that is all there or not there, written by one run at a time."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyarrow import dataset as pads
from pyarrow import fs as pafs
from pyarrow import ipc

from corpusmill.errors import CountsError, SinkError, SourceError, UsageError
from corpusmill.tables import manifest as manifests
from corpusmill.tables.commit import (
    commit_copied,
    commit_file,
    commit_renamed,
    current_manifest,
    recover,
    tail_digest,
)
from corpusmill.tables.layout import Layout, is_ours, layout_of
from corpusmill.tables.lock import locked
from corpusmill.tables.manifest import Manifest, Part
from corpusmill.tables.parts import COMPRESSIONS, ParquetFile, PartWriter, StagedGroups
from corpusmill.tables.storable import check_storable
from corpusmill.tables.storage import failures_as, sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Decision = Literal["skip", "write", "rebuild"]


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
        try:
            with failures_as(SinkError, "cannot read", self.layout.target):
                return current_manifest(self.layout)
        except SinkError:
            raise
        except UsageError as error:
            raise SinkError(str(error)) from error

    def decide(self, run_key: str | None, job_key: str, *, overwrite: bool = False) -> Decision:
        """What a run has to do: nothing, write, or rebuild and replace. Reads manifest and sizes, no rows.

        Raises:
            SinkError: something else lies there and `overwrite` is not set; says what.
        """
        found = self.manifest()
        if found is None:
            strangers = self._strangers()
            if not strangers:
                return "write"
            if overwrite:
                return "rebuild"
            raise SinkError(f"{self.shown} already holds {strangers}; choose another place, or overwrite it")
        if run_key is not None and found.run_key == run_key and not found.failed and self.is_whole(found):
            return "skip"
        if found.job_key == job_key or overwrite:
            return "rebuild"
        raise SinkError(
            f"{self.shown} holds the output of another job (run {(found.run_key or 'without a key')[:12]}, "
            f"{found.rows:,} rows); choose another place, or overwrite it"
        )

    def _strangers(self) -> str:
        """What lies in the way, in words; nothing when the way is free."""
        target = self.layout.target
        with failures_as(SinkError, "cannot read", target):
            kind = target.info().type
            if kind == pafs.FileType.File:
                return "a file that no run of corpusmill wrote"
            if kind == pafs.FileType.NotFound:
                return ""
            names = [info.base_name for info in target.children() if not is_ours(info.base_name)]
        if self.layout.kind == "file":
            return "a folder"
        return f"{len(names)} files or folders that are not ours, {names[0]!r} among them" if names else ""

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
            SinkError: another run holds it; names the holder. Or the place cannot be written.
        """
        with locked(self.layout):
            self.recover()
            yield

    def recover(self) -> None:
        """Finish or undo an interrupted commit and remove leftovers. Only under `lock`, which calls it."""
        try:
            with failures_as(SinkError, "cannot write", self.layout.target):
                recover(self.layout)
        except SinkError:
            raise
        except UsageError as error:
            raise SinkError(str(error)) from error

    def begin(self, schema: pa.Schema, *, run_key: str | None, job_key: str) -> Writing:
        """Start to stage a dataset of the schema. Only under `lock`.

        Raises:
            UsageError: a column is of a type that Parquet cannot hold.
            SinkError: the place cannot be written.
        """
        check_storable(schema)
        return Writing(self, schema, run_key=run_key, job_key=job_key)

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


class Writing:
    """A dataset while it is staged: nobody sees it before `commit`, and `abort` leaves no trace."""

    def __init__(self, sink: Sink, schema: pa.Schema, *, run_key: str | None, job_key: str) -> None:
        self.schema = schema
        self._sink = sink
        self._layout = sink.layout
        self._run_key = run_key
        self._job_key = job_key
        self._token = secrets.token_hex(6)
        self._staging = self._layout.staging(self._token)
        self._parts: dict[int, Part] = {}
        self._open: set[PartWriter] = set()
        with failures_as(SinkError, "cannot write", self._layout.target):
            self._staging.make_folder()

    def part(self, index: int, first_row: int) -> PartWriter:
        """Open the part with this number, whose first row is source row `first_row`. Several may be open.

        Raises:
            SinkError: the part cannot be written.
        """
        kind = StagedGroups if self._layout.kind == "file" else ParquetFile
        place = self._staging / self._name(index)
        with failures_as(SinkError, "cannot write", place):
            file = kind(place, self.schema, self._sink.spec.compression)
        writer = PartWriter(
            index=index, first_row=first_row, place=place, schema=self.schema, file=file, closed=self._closed
        )
        self._open.add(writer)
        return writer

    def _name(self, index: int) -> str:
        if self._layout.kind == "file":
            return f"part-{index:06}.arrow"
        # Where old and new parts lie side by side for a while their names must differ.
        return (
            f"part-{index:06}.parquet" if self._layout.renames else f"part-{index:06}-{self._token}.parquet"
        )

    def _closed(self, writer: PartWriter, size: int) -> None:
        self._open.discard(writer)
        self._parts[writer.index] = Part(
            name=writer.place.name, first_row=writer.first_row, rows=writer.rows, bytes=size
        )

    def commit(
        self,
        *,
        failed: int = 0,
        manifest_extra: Mapping[str, Any] | None = None,
        sidecars: Mapping[str, bytes] | None = None,
    ) -> Manifest:
        """Make what was staged the dataset, with a manifest that says that `failed` rows failed.

        `manifest_extra` is kept in the manifest; `sidecars` are files beside it, by name.

        Raises:
            CountsError: a part is still open, or the parts leave a gap.
            SinkError: the place cannot be written.
        """
        if self._open:
            raise CountsError(f"{len(self._open)} parts are still open at the commit")
        if not self._parts:
            self.part(0, 0).close()
        parts = tuple(part for _, part in sorted(self._parts.items()))
        self._check_gapless(parts)
        with failures_as(SinkError, "cannot write", self._layout.target):
            if self._layout.kind == "file":
                parts = (self._joined(parts),)
            manifest = Manifest(
                run_key=self._run_key,
                job_key=self._job_key,
                rows=sum(part.rows for part in parts),
                parts=parts,
                schema_fingerprint=manifests.schema_fingerprint(self.schema),
                created_by=f"corpusmill {metadata.version('corpusmill')}",
                failed=failed,
                extra=dict(manifest_extra or {}),
            )
            commit = commit_renamed if self._layout.renames else commit_copied
            if self._layout.kind == "file":
                commit = commit_file
            commit(self._layout, self._token, manifest, sidecars or {})
            self._layout.failures.delete()
        return manifest

    @staticmethod
    def _check_gapless(parts: Sequence[Part]) -> None:
        due = 0
        for part in parts:
            if part.first_row != due:
                raise CountsError(f"{part.name} begins at row {part.first_row}, row {due} is due")
            due += part.rows

    def _joined(self, parts: Sequence[Part]) -> Part:
        """The one file: the row groups of all parts in order, one in memory at a time."""
        place = self._staging / self._layout.target.name
        file = ParquetFile(place, self.schema, self._sink.spec.compression)
        try:
            for part in parts:
                staged = self._staging / part.name
                with (
                    staged.filesystem.open_input_file(staged.path) as raw,
                    ipc.open_file(raw) as reader,
                ):
                    for position in range(reader.num_record_batches):
                        file.write_group(pa.Table.from_batches([reader.get_batch(position)]))
            size = file.close()
        except BaseException:
            file.abandon()
            raise
        if place.local:
            sync_folder(Path(self._staging.path))
        return Part(
            name=self._layout.target.name,
            first_row=0,
            rows=sum(part.rows for part in parts),
            bytes=size,
            digest=tail_digest(place),
        )

    def abort(self) -> None:
        """Let go of what was staged. What lay in the sink before still does."""
        for writer in list(self._open):
            writer.abandon()
        self._open.clear()
        with failures_as(SinkError, "cannot clear", self._staging):
            self._staging.delete()


def open_sink(spec: SinkLike) -> Sink:
    """Name a place for a dataset; nothing is touched yet.

    Raises:
        SinkError: the place or its shape makes no sense.
    """
    if not isinstance(spec, SinkSpec):
        spec = SinkSpec(path=spec)
    try:
        return Sink(spec, layout_of(spec.path, spec.partition))
    except SinkError:
        raise
    except UsageError as error:
        raise SinkError(str(error)) from error


def read(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    partition: Mapping[str, str | None] | None = None,
) -> pads.Dataset:
    """The dataset that a sink holds, by its manifest: all of it, or an error.

    Raises:
        SourceError: no finished sink lies there, or a part is missing or has another size.
    """
    sink = open_sink(SinkSpec(path=path, partition=partition))
    target = sink.layout.target
    try:
        found = sink.manifest()
    except SinkError as error:
        raise SourceError(str(error)) from error
    if found is None:
        raise SourceError(f"{sink.shown} holds no finished output of corpusmill")
    with failures_as(SourceError, "cannot read", target):
        if not sink.is_whole(found):
            raise SourceError(f"{sink.shown}: parts are missing or have another size than the manifest says")
        single = sink.layout.kind == "file"
        files = [target.path if single else (target / part.name).path for part in found.parts]
        dataset = pads.dataset(files, filesystem=target.filesystem, format="parquet")
        if columns is None:
            return dataset
        return dataset
