"""Where the pieces of a sink lie: the dataset itself, its sidecars, what is staged, its lock.

- A local folder is staged in a hidden folder beside it and takes its place by one rename.
- A folder in an object store, or a local one that cannot be renamed (a mount), is staged in
  `_corpusmill/staging/<token>/`; its parts are copied (moved), and the manifest, written last, makes them count.
- One file is staged in a hidden folder beside it, or in `_<file>.corpusmill/staging/<token>/`, and takes its place by
  one rename or put.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from corpusmill.errors import SinkError
from corpusmill.tables.manifest import MANIFEST, SIDECARS, sidecars_of
from corpusmill.tables.storage import Place, place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["folder", "file"]
ReportKind = Literal["json", "html"]
REPORT_KINDS: tuple[ReportKind, ...] = ("html", "json")
"""The forms of a report, that which others go by last, so that it is written last."""
FAILED_REPORT = ".failed.report.json"
"""How the name of a report ends whose run committed nothing: it may lie among tables, and is none."""
PARQUET = (".parquet", ".pq", ".parq")
"""How the name of a Parquet file ends."""
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
TOKEN = re.compile(r"[0-9a-f]{12}")
PART_NAME = re.compile(r"part-\d{6,}-[0-9a-f]{12}\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The places of one sink. `renames`: a folder that takes its place by a rename."""

    target: Place
    kind: Kind
    renames: bool
    partition: bool = False

    @property
    def sidecars(self) -> Place:
        """The folder of manifest and report."""
        return sidecars_of(self.target, single_file=self.kind == "file")

    @property
    def manifest(self) -> Place:
        """The manifest."""
        return self.sidecars / MANIFEST

    @property
    def failures(self) -> Place:
        """Where the failures of a run lie that committed nothing; among partitions readers pass over it."""
        mark = "_" if self.partition else ""
        return self.target.beside(f"{mark}{self.target.name}.failed.jsonl")

    def failed_report(self, kind: ReportKind) -> Place:
        """Where the report of a run lies that committed nothing, beside its failures."""
        return self.failures.beside(f"{self.failures.name.removesuffix('.jsonl')}.report.{kind}")

    @property
    def hidden(self) -> str:
        """What the names of our hidden neighbours begin with."""
        return f".{self.target.name}.corpusmill"

    @property
    def inside(self) -> Place:
        """The folder within the sidecars in which attempts stage that do not stage beside the dataset."""
        return self.sidecars / "staging"

    def staging(self, token: str) -> Place:
        """The folder in which one attempt stages what it writes."""
        return self.target.beside(f"{self.hidden}-{token}") if self.beside else self.inside / token

    def aside(self, token: str) -> Place:
        """Where the old dataset waits while the new one takes its place."""
        return self.target.beside(f"{self.hidden}-{token}.old")

    @property
    def beside(self) -> bool:
        """Whether things are staged beside the dataset, and not within its sidecars."""
        return self.renames or (self.kind == "file" and self.target.local)


def layout_of(path: str | Path, partition: Mapping[str, str | None] | None) -> Layout:
    """Find out what the sink at `path` is made of, without touching it.

    Raises:
        SinkError: a partition in a single file, or a key without a name.
    """
    place = place_of(path)
    if place.local:
        # A rename must replace what a link points to, not the link.
        place = replace(place, path=os.path.realpath(place.path))
    single = place.path.lower().endswith(PARQUET) and not place.is_directory()
    if partition:
        if single:
            raise SinkError(f"{place.shown} is one file and cannot be partitioned; name a folder")
        for key, value in partition.items():
            place = place / partition_folder(key, value)
    if single:
        return Layout(target=place, kind="file", renames=False)
    movable = place.local and can_be_renamed(Path(place.path))
    # A partition may be named by its path too, and what lies beside it is then looked for in the same place.
    return Layout(target=place, kind="folder", renames=movable, partition="=" in place.name)


def can_be_renamed(folder: Path) -> bool:
    """Whether another folder can take this one's place: no mount, not our working folder, its parent writable."""
    if not folder.exists():
        return True
    if os.path.ismount(folder):
        return False
    with contextlib.suppress(FileNotFoundError):  # a working folder that is gone is in nobody's way
        if Path.cwd().is_relative_to(folder):
            return False
    return os.access(folder.parent, os.W_OK)


def partition_folder(key: str, value: str | None) -> str:
    """The folder name of a hive partition, escaped: any text comes back from it, in one level of folders."""
    if not key:
        raise SinkError("a partition key has no name")
    if value is None:
        text = HIVE_NULL
    else:
        text = quote(value, safe="")
        if text == HIVE_NULL:
            text = "%5F" + text[1:]
    return f"{quote(key, safe='')}={text}"


def is_ours(name: str) -> bool:
    """Whether a name inside a folder is that of our sidecars or of a part."""
    return name == SIDECARS or PART_NAME.fullmatch(name) is not None
