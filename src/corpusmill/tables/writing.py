"""A dataset while it is written: parts are staged, then committed all together or not at all."""

from __future__ import annotations

import secrets
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import ipc

from corpusmill.errors import CountsError, SinkError
from corpusmill.tables.commit import Staged, commit_copied, commit_file, commit_renamed, tail_digest
from corpusmill.tables.layout import REPORT_KINDS
from corpusmill.tables.manifest import Manifest, Part, schema_fingerprint
from corpusmill.tables.parts import ParquetFile, PartWriter, StagedGroups, StagedPart, Written
from corpusmill.tables.storage import failures_as, link_or_copy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from corpusmill.tables.layout import Layout
    from corpusmill.tables.storage import Place


class Writing:
    """A dataset while it is staged: nobody sees it before `commit`, and `abort` leaves no trace."""

    def __init__(
        self,
        layout: Layout,
        schema: pa.Schema,
        *,
        compression: str,
        run_key: str | None,
        job_key: str,
        staging: Place | None = None,
    ) -> None:
        # `staging` is a folder of the caller's own: what lies in it is for another writing to adopt.
        self.schema = schema
        self._layout = layout
        self._compression = compression
        self._run_key = run_key
        self._job_key = job_key
        self._created_by = f"corpusmill {metadata.version('corpusmill')}"
        self._token = secrets.token_hex(6)
        self._staging = staging or self._layout.staging(self._token)
        self._closed: dict[int, StagedPart] = {}
        self._open: set[PartWriter] = set()
        with failures_as(SinkError, "cannot write", self._layout.target):
            self._staging.make_folder()

    def part(self, index: int, first_row: int) -> PartWriter:
        """Open the part with this number, whose first row is source row `first_row`. Several may be open.

        Raises:
            SinkError: the part cannot be written.
        """
        place = self._staging / f"part-{index:06}.{'arrow' if self._single else 'parquet'}"
        with failures_as(SinkError, "cannot write", place):
            file = StagedGroups(place, self.schema) if self._single else self._file(place)
        writer = PartWriter(
            index=index, first_row=first_row, place=place, schema=self.schema, file=file, closed=self._close
        )
        self._open.add(writer)
        return writer

    @property
    def _single(self) -> bool:
        return self._layout.kind == "file"

    def _file(self, place: Place) -> ParquetFile:
        return ParquetFile(place, self.schema, self._compression)

    def _close(self, writer: PartWriter, written: Written) -> None:
        self._open.discard(writer)
        self._closed[writer.index] = StagedPart(
            index=writer.index,
            first_row=writer.first_row,
            rows=writer.rows,
            place=writer.place,
            size=written.size,
            sha256=written.sha256,
        )

    def staged(self) -> list[StagedPart]:
        """The parts that are closed, in order."""
        return [self._closed[index] for index in sorted(self._closed)]

    def adopt(self, part: StagedPart) -> None:
        """Take a part that another process staged. Its file stays where it is, whatever becomes of this writing.

        Raises:
            CountsError: there is a part of this number already.
            SinkError: the file is not there, or is not of the size that it was.
        """
        if part.index in self._closed:
            raise CountsError(f"part {part.index} comes twice")
        with failures_as(SinkError, "cannot read", part.place):
            info = part.place.info()
        if not info.is_file or (part.size and info.size != part.size):
            raise SinkError(f"{part.place.shown} is gone or was changed: run its shard again")
        if part.place.local and not self._single:
            own = self._staging / f"part-{part.index:06}.parquet"
            with failures_as(SinkError, "cannot write", own):
                link_or_copy(part.place, own)
            part = replace(part, place=own)
        self._closed[part.index] = part

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
        if not self._closed:
            self.part(0, 0).close()
        parts = self.staged()
        _check_gapless(parts)
        with failures_as(SinkError, "cannot write", self._layout.target):
            files = self._joined(parts) if self._single else _named(parts)
            manifest = Manifest(
                run_key=self._run_key,
                job_key=self._job_key,
                rows=sum(part.rows for part in files),
                parts=tuple(files),
                schema_fingerprint=schema_fingerprint(self.schema),
                created_by=self._created_by,
                failed=failed,
                extra=dict(manifest_extra or {}),
            )
            staged = Staged(
                token=self._token,
                files={part.name: place for part, place in files.items()},
                manifest=manifest,
                sidecars=sidecars or {},
            )
            if self._single:
                commit_file(self._layout, staged)
            elif self._layout.renames:
                commit_renamed(self._layout, staged)
            else:
                commit_copied(self._layout, staged)
            self._layout.failures.delete()
            for kind in REPORT_KINDS:
                self._layout.failed_report(kind).delete()
        return manifest

    def _joined(self, parts: Sequence[StagedPart]) -> dict[Part, Place]:
        """The one file: the row groups of all parts in order, one in memory at a time."""
        place = self._staging / self._layout.target.name
        file = self._file(place)
        try:
            for each in parts:
                staged = each.place
                with staged.filesystem.open_input_file(staged.path) as raw, ipc.open_file(raw) as reader:
                    for position in range(reader.num_record_batches):
                        file.write_group(pa.Table.from_batches([reader.get_batch(position)]))
            written = file.close()
        except BaseException:
            file.abandon()
            raise
        part = Part(
            name=place.name,
            first_row=0,
            rows=sum(each.rows for each in parts),
            bytes=written.size,
            sha256=written.sha256,
            tail=tail_digest(place),
        )
        return {part: place}

    def abort(self) -> None:
        """Let go of what was staged. What lay in the sink before still does."""
        for writer in list(self._open):
            writer.abandon()
        self._open.clear()
        with failures_as(SinkError, "cannot clear", self._staging):
            self._staging.delete()


def _named(parts: Sequence[StagedPart]) -> dict[Part, Place]:
    """Each part under its final name, and where it is staged."""
    return {
        Part(
            name=f"part-{part.index:06}-{part.sha256[:12]}.parquet",
            first_row=part.first_row,
            rows=part.rows,
            bytes=part.size,
            sha256=part.sha256,
        ): part.place
        for part in parts
    }


def _check_gapless(parts: Sequence[StagedPart]) -> None:
    due = 0
    for part in parts:
        if part.first_row != due:
            raise CountsError(f"part {part.index} begins at row {part.first_row}, and row {due} is due")
        due += part.rows
