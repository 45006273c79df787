"""Commit: what was staged becomes the dataset, at once for whoever goes by the manifest.

Every step may be the last: what stands half done is finished or undone by `recover`, which the next run calls
while it holds the sink's lock. Leftovers of an attempt that had not begun to commit are removed, never taken
up.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyarrow import fs as pafs

from corpusmill.killpoints import reach
from corpusmill.tables import manifest as manifests
from corpusmill.tables.layout import PART_NAME, TOKEN, Layout
from corpusmill.tables.storage import Place, sync_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corpusmill.tables.manifest import Manifest

_NEXT = "next"
_TAIL = 64 << 10
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """All that a commit needs: the attempt's token, the files by their names to be, the sidecars."""

    token: str
    files: Mapping[str, Place]
    manifest: Manifest
    sidecars: Mapping[str, bytes]


def commit_renamed(layout: Layout, staged: Staged) -> None:
    """A local folder: sidecars and manifest are staged too, then the folder takes the target's place."""
    staging, target = layout.staging(staged.token), layout.target
    inner = staging / manifests.SIDECARS
    for name, file in staged.files.items():
        Path(file.path).rename((staging / name).path)
    for name, data in staged.sidecars.items():
        (inner / name).write_bytes(data)
    reach("sink.staged")
    (inner / manifests.MANIFEST).write_bytes(manifests.encode(staged.manifest))
    sync_folder(Path(staging.path))
    reach("sink.manifest")
    old, new, parent = Path(target.path), Path(staging.path), Path(target.path).parent
    if old.is_dir() and not any(old.iterdir()):
        old.rmdir()
    if not old.exists():
        new.rename(old)
        sync_folder(parent)
        reach("sink.renamed")
        return
    if exchange(new, old):
        sync_folder(parent)
        reach("sink.exchanged")
        _clear(staging)
    else:
        aside = layout.aside(staged.token)
        old.rename(aside.path)
        sync_folder(parent)
        reach("sink.aside")
        new.rename(old)
        sync_folder(parent)
        reach("sink.renamed")
        _clear(aside)
    reach("sink.old-removed")


def _clear(place: Place) -> None:
    """Remove what the commit made superfluous. The dataset stands; what resists is left to the next run."""
    with contextlib.suppress(OSError):
        place.delete()


def exchange(one: Path, other: Path) -> bool:
    """Swap two paths in one step, so that no reader finds nothing. False where the system cannot."""
    if sys.platform != "linux":
        return False
    swap = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if swap is None:
        return False
    if swap(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}:
        return False
    raise OSError(code, os.strerror(code), str(other))


def commit_copied(layout: Layout, staged: Staged) -> None:
    """A folder that knows no rename: parts into place, the manifest, then old parts go."""
    target = layout.target
    reach("sink.staged")
    for name, file in staged.files.items():
        # In an object store a move is a copy and a deletion, and what is staged is deleted in the end, all of it.
        (file.move_to if file.local else file.copy_to)(target / name)
        reach("sink.moved")
    for name, data in staged.sidecars.items():
        (layout.sidecars / name).write_bytes(data)
    layout.manifest.write_bytes(manifests.encode(staged.manifest))
    reach("sink.manifest")
    for info in target.children():
        if info.base_name not in {manifests.SIDECARS, *staged.files}:
            _clear(target / info.base_name)
    reach("sink.old-removed")
    _clear(layout.inside)


def commit_file(layout: Layout, staged: Staged) -> None:
    """One file: the sidecars to come, then the file by one rename or put, then the sidecars in place."""
    coming = layout.sidecars / _NEXT
    coming.delete()
    for name, data in staged.sidecars.items():
        (coming / name).write_bytes(data)
    (coming / manifests.MANIFEST).write_bytes(manifests.encode(staged.manifest))
    reach("sink.staged")
    if layout.target.is_directory():
        layout.target.delete()
    (file,) = staged.files.values()
    file.move_to(layout.target)
    reach("sink.renamed")
    _promote(layout)
    reach("sink.manifest")
    _clear(layout.staging(staged.token))
    reach("sink.old-removed")


def _promote(layout: Layout) -> None:
    """The sidecars to come take their place, the manifest last."""
    coming = layout.sidecars / _NEXT
    names = [info.base_name for info in coming.children() if info.type == pafs.FileType.File]
    for info in layout.sidecars.children():
        if info.type == pafs.FileType.File and info.base_name not in {*names, manifests.MANIFEST}:
            (layout.sidecars / info.base_name).delete()
    for name in sorted(names, key=lambda name: name == manifests.MANIFEST):
        (coming / name).move_to(layout.sidecars / name)
    coming.delete()


def recover(layout: Layout) -> None:
    """Finish or undo what an earlier attempt left. Only for whoever holds the lock."""
    if layout.renames:
        _recover_renamed(layout)
    elif layout.kind == "file":
        _recover_file(layout)
    else:
        layout.inside.delete()
        for stray in _strays(layout):
            stray.delete()


def has_leftovers(layout: Layout) -> bool:
    """Whether `recover` would find anything to do: a look at names, and no lock is needed for it."""
    if layout.beside and _hidden(layout):
        return True
    if layout.kind == "file":
        return (layout.sidecars / _NEXT).is_directory()
    if layout.renames:
        return False
    return bool(_strays(layout)) or layout.inside.is_directory()


def _strays(layout: Layout) -> list[Place]:
    """The parts in a folder that its manifest does not name."""
    current = manifests.load(layout.manifest)
    named = {part.name for part in current.parts} if current is not None else set()
    names = (info.base_name for info in layout.target.children())
    return [layout.target / name for name in names if PART_NAME.fullmatch(name) and name not in named]


def _hidden(layout: Layout) -> list[tuple[str, bool]]:
    """Tokens of what lies hidden beside the sink, and whether it is an old dataset put aside."""
    found = []
    parent = Path(layout.target.path).parent
    for name in sorted(path.name for path in parent.iterdir()) if parent.is_dir() else ():
        prefix, _, rest = name.partition(f"{layout.hidden}-")
        token, _, ending = rest.partition(".")
        if not prefix and TOKEN.fullmatch(token) and ending in {"", "old"}:
            found.append((token, ending == "old"))
    return found


def _recover_renamed(layout: Layout) -> None:
    target = Path(layout.target.path)
    hidden = _hidden(layout)
    for token in (token for token, old in hidden if old):
        if not target.exists():
            # It stopped between two renames: the new dataset was whole, or else the old one still is.
            whole = (layout.staging(token) / manifests.SIDECARS / manifests.MANIFEST).is_file()
            Path((layout.staging(token) if whole else layout.aside(token)).path).rename(target)
            sync_folder(target.parent)
        layout.aside(token).delete()
    for token in (token for token, old in hidden if not old):
        layout.staging(token).delete()


def _recover_file(layout: Layout) -> None:
    coming = manifests.load(layout.sidecars / _NEXT / manifests.MANIFEST)
    if coming is not None and describes(coming, layout.target):
        _promote(layout)
    else:
        (layout.sidecars / _NEXT).delete()
    layout.inside.delete()
    if layout.beside:
        for token, _ in _hidden(layout):
            layout.staging(token).delete()


def current_manifest(layout: Layout) -> Manifest | None:
    """The manifest of the dataset as it stands; None when there is none, or when it is that of another file.

    For a single file that was replaced a moment ago this may be the one still to come.
    """
    if layout.kind == "folder":
        return manifests.load(layout.manifest)
    for place in (layout.manifest, layout.sidecars / _NEXT / manifests.MANIFEST):
        found = manifests.load(place)
        if found is not None and describes(found, layout.target):
            return found
    return None


def describes(manifest: Manifest, file: Place) -> bool:
    """Whether the manifest is that of the file which lies there, by size and by the digest of its end."""
    (part,) = manifest.parts
    info = file.info()
    return info.type == pafs.FileType.File and info.size == part.bytes and tail_digest(file) == part.tail


def tail_digest(file: Place) -> str:
    """SHA-256 of the last 64 KiB of a file, hexadecimal."""
    with file.filesystem.open_input_file(file.path) as stream:
        size = stream.size()
        stream.seek(max(0, size - _TAIL))
        return hashlib.sha256(stream.read(_TAIL)).hexdigest()
