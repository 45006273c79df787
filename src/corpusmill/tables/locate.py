"""From a path, a folder or a glob to the files of a table, in a fixed order.

Names that begin with `_` or `.` are passed over, as every dataset reader does. A folder that one of our sinks
wrote is read by its manifest, at whatever depth it lies. `key=value` folders give columns; the values are
text.
"""

from __future__ import annotations

import fnmatch
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyarrow import fs as pafs

from corpusmill.errors import SourceChangedError, SourceError
from corpusmill.tables import manifest
from corpusmill.tables.layout import FAILED_REPORT, HIVE_NULL, PARQUET
from corpusmill.tables.storage import Place, failures_as, refusals_as

Keys = tuple[tuple[str, str | None], ...]
_Found = tuple[Place, Keys]

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

IPC = (".arrow", ".feather", ".ipc", ".arrows")
_OTHER_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".orc", ".avro", ".csv.gz", ".jsonl.gz")
_WILD = re.compile(r"[*?\[]")
_KEY = re.compile(r"([^=/]+)=(.*)", re.DOTALL)
_LOOKS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """A file as it was when it was first looked at. `keys` are its hive keys, in the order of the folders."""

    place: Place
    size: int
    mtime_ns: int | None
    etag: str | None
    keys: Keys = ()

    @property
    def shown(self) -> str:
        """The file as the user knows it."""
        return self.place.shown


def find_files(place: Place) -> list[FileState]:
    """The files of the table at `place`, sorted by path, parts of a sink in the order of its manifest.

    Raises:
        SourceError: nothing lies there, a glob matches nothing, a folder holds no table or an unfinished one.
    """
    with failures_as(SourceError, "cannot read", place):
        info = place.info()
        if info.type == pafs.FileType.File:
            found: list[_Found] = [(place, ())]
        elif _WILD.search(place.path) and info.type == pafs.FileType.NotFound:
            found = _matching(place)
        elif info.type == pafs.FileType.Directory:
            found = _inside(place)
        else:
            raise SourceError(f"{place.shown} does not exist")
        if not found:
            raise SourceError(f"{place.shown} holds no Parquet or Arrow file")
        _same_keys(found)
        return look_at([where for where, _ in found], keys=[keys for _, keys in found])


def look_at(places: Sequence[Place], *, keys: Sequence[Keys] | None = None) -> list[FileState]:
    """The present state of files: size and modification time, and the ETag in an object store."""

    def look(position: int) -> FileState:
        place = places[position]
        info = place.info()
        if info.type != pafs.FileType.File:
            raise SourceError(f"{place.shown} does not exist")
        etag = None
        if not place.local:
            with place.filesystem.open_input_file(place.path) as file:
                about: Any = file.metadata() or {}
            tag = about.get("ETag")
            etag = tag.decode("ascii", "replace") if isinstance(tag, bytes) else tag
        return FileState(
            place=place,
            size=info.size,
            mtime_ns=info.mtime_ns,
            etag=etag,
            keys=keys[position] if keys else (),
        )

    if all(place.local for place in places):
        return [look(position) for position in range(len(places))]
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        return list(pool.map(look, range(len(places))))


def check_state(state: FileState) -> None:
    """Compare one file with what it was.

    Raises:
        SourceChangedError: it has another size, time or ETag, or is gone.
    """
    try:
        (now,) = look_at([state.place])
    except (SourceError, OSError) as error:
        raise SourceChangedError(f"{state.shown} cannot be found any more: {error}") from error
    if (now.size, now.mtime_ns, now.etag) != (state.size, state.mtime_ns, state.etag):
        raise SourceChangedError(
            f"{state.shown} changed while it was being read ({state.size:,} bytes then, {now.size:,} now); "
            "run again"
        )


def _inside(root: Place) -> list[_Found]:
    """The files of a folder: by its manifest, or by listing it."""
    parts = _by_manifest(root)
    if parts is not None:
        return [(part, ()) for part in parts]
    infos = root.children(recursive=True)
    if root.local:
        infos = _each_once(infos)
    sinks = _sinks_below(root, infos)
    found: list[_Found] = []
    for info in infos:
        below = info.path[len(root.path.rstrip("/")) + 1 :]
        pieces = PurePosixPath(below).parts
        if info.type != pafs.FileType.File or _hidden(pieces):
            continue
        if any("/".join(pieces[:depth]) in sinks for depth in range(1, len(pieces))):
            continue
        if _is_table(root, below):
            found.append((root / below, hive_keys(pieces[:-1])))
    for below, parts in sinks.items():
        found += [(part, hive_keys(PurePosixPath(below).parts)) for part in parts]
    # Parts keep the order of their manifest: within one folder it is the order of their names in any case.
    return sorted(found, key=lambda item: item[0].path)


def _hidden(names: Iterable[str]) -> bool:
    return any(name[0] in "_." for name in names)


def _each_once(infos: Iterable[pafs.FileInfo]) -> list[pafs.FileInfo]:
    """Leave out what is reached a second time through a link: a link to a folder above would never end."""
    seen: set[str] = set()
    kept = []
    # The shortest path comes first, so that it is the one that stays.
    for info in sorted(infos, key=lambda info: (info.path.count("/"), info.path)):
        real = os.path.realpath(info.path)
        if real not in seen:
            seen.add(real)
            kept.append(info)
    return sorted(kept, key=lambda info: str(info.path))


def _sinks_below(root: Place, infos: Iterable[pafs.FileInfo]) -> dict[str, list[Place]]:
    """Folders below the root that a sink wrote, with the parts that their manifests name."""
    sinks: dict[str, list[Place]] = {}
    for info in infos:
        below = info.path[len(root.path.rstrip("/")) + 1 :]
        pieces = PurePosixPath(below).parts
        if manifest.SIDECARS in pieces[1:]:
            above = pieces[: pieces.index(manifest.SIDECARS)]
            folder = "/".join(above)
            # A run beside this one stages in a hidden folder what will be there twice otherwise.
            if folder not in sinks and not _hidden(above):
                sinks[folder] = _by_manifest(root / folder) or []
    return sinks


def _by_manifest(folder: Place) -> list[Place] | None:
    """The parts that the manifest in a folder names; None when no sink wrote the folder."""
    sidecars = folder / manifest.SIDECARS
    with refusals_as(SourceError):
        found = manifest.load(sidecars / manifest.MANIFEST)
    if found is None:
        if sidecars.is_directory():
            raise SourceError(
                f"{folder.shown} is a sink that was never finished; run the job that writes it again"
            )
        return None
    return [folder / part.name for part in found.parts]


def would_find(place: Place, sink: Place) -> bool:
    """Whether a dataset at `sink`, of which nothing is there yet, would be found the next time at `place`."""
    if place.local != sink.local:
        return False
    root, pattern = place, list[str]()
    if _WILD.search(place.path) and place.info().type == pafs.FileType.NotFound:
        root, pattern = _parted(place)
    above = (os.path.realpath(root.path) if root.local else root.path).rstrip("/") + "/"
    names = sink.path.removeprefix(above).split("/")
    if not sink.path.startswith(above) or _hidden(names):
        return False
    # The pattern may name the sink, a folder that holds it, or the parts in it.
    ways = (names[:depth] for depth in range(1, len(names) + 1))
    return not pattern or any(_glob_matches(way, pattern) for way in (*ways, [*names, "part-0.parquet"]))


def _parted(place: Place) -> tuple[Place, list[str]]:
    """The fixed part of a glob, and the names that it matches below."""
    pieces = place.path.split("/")
    fixed = next(position for position, piece in enumerate(pieces) if _WILD.search(piece))
    root_path = "/".join(pieces[:fixed]) or "/"
    shown_root = place.shown[: len(place.shown) - len("/".join(pieces[fixed:]))].rstrip("/") or root_path
    root = Place(filesystem=place.filesystem, path=root_path, shown=shown_root, local=place.local)
    return root, pieces[fixed:]


def _matching(place: Place) -> list[_Found]:
    """The files that a glob matches; only `**` crosses a slash. Hive keys count below the fixed part."""
    root, pattern = _parted(place)
    root_path = root.path
    found: list[_Found] = []
    for info in root.children(recursive=len(pattern) > 1 or "**" in pattern):
        below = info.path[len(root_path.rstrip("/")) + 1 :]
        names = below.split("/")
        if _hidden(names) or not _glob_matches(names, pattern):
            continue
        match = root / below
        if info.type == pafs.FileType.Directory:
            found += [(file, (*hive_keys(names), *keys)) for file, keys in _inside(match)]
        elif _is_table(root, below):
            found.append((match, hive_keys(names[:-1])))
    if not found:
        raise SourceError(f"{place.shown} matches no Parquet or Arrow file")
    unique = {file.path: (file, keys) for file, keys in found}
    return [unique[path] for path in sorted(unique)]


def _glob_matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not names
    if pattern[0] == "**":
        return any(_glob_matches(names[skip:], pattern[1:]) for skip in range(len(names) + 1))
    return bool(names) and fnmatch.fnmatchcase(names[0], pattern[0]) and _glob_matches(names[1:], pattern[1:])


def _is_table(root: Place, below: str) -> bool:
    name = below.lower()
    if name.endswith(_OTHER_TABLES) and not name.endswith(FAILED_REPORT):
        raise SourceError(
            f"{root.shown} also holds {below}, which is no Parquet or Arrow file; name the files with a glob"
        )
    return name.endswith(PARQUET + IPC)


def hive_keys(folders: Iterable[str]) -> Keys:
    """The keys and values that `key=value` folder names hold, unescaped, as text."""
    keys: list[tuple[str, str | None]] = []
    for folder in folders:
        match = _KEY.fullmatch(folder)
        if match:
            # Escaped, the word for null is a word.
            keys.append((unquote(match[1]), None if match[2] == HIVE_NULL else unquote(match[2])))
    return tuple(keys)


def _same_keys(found: Sequence[_Found]) -> None:
    first, first_keys = found[0]
    names = [name for name, _ in first_keys]
    for place, keys in found:
        if [name for name, _ in keys] != names:
            raise SourceError(
                f"{place.shown} lies in folders of other keys than {first.shown}: "
                f"{', '.join(name for name, _ in keys) or 'none'}, not {', '.join(names) or 'none'}"
            )
    if len(set(names)) != len(names):
        raise SourceError(f"{first.shown}: a key appears twice in its folders")
