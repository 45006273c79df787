"""Where an SQLite store must not lie: its locks do not hold across a network, and the file would be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import Protocol

    class Mount(Protocol):
        """One line of the table of mounts, as psutil gives it."""

        @property
        def mountpoint(self) -> str:
            """The folder at which it is mounted."""

        @property
        def fstype(self) -> str:
            """The kind of file system, in the system's own word."""

        @property
        def opts(self) -> str:
            """Options, separated by commas."""


NETWORK = frozenset(
    {
        *(
            "9p",
            "afpfs",
            "afs",
            "beegfs",
            "ceph",
            "cifs",
            "gfs2",
            "glusterfs",
            "gpfs",
            "lustre",
            "ncpfs",
            "nfs",
        ),
        *("nfs3", "nfs4", "ocfs2", "orangefs", "panfs", "smb", "smb2", "smb3", "smbfs", "webdav"),
        *("fuse.ceph", "fuse.davfs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs", "fuse.mfs"),
        *("fuse.mount-s3", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "fuse.blobfuse2", "fuse.goofys"),
    }
)


def refuse_network(path: Path, mounts: Iterable[Mount]) -> None:
    """Raise `StoreError` when the path, which is absolute and resolved, lies on a network file system."""
    mount = mount_of(path, mounts)
    if mount is None:
        return
    kind = mount.fstype.lower()
    if kind in NETWORK or "remote" in mount.opts.split(","):
        raise StoreError(
            f"store {path} lies on a network file system ({mount.fstype} at {mount.mountpoint}), where "
            "SQLite cannot lock: name a file on a local disk, or use a PostgreSQL store"
        )


def mount_of(path: Path, mounts: Iterable[Mount]) -> Mount | None:
    """Find the mount that a path lies on: the longest that contains it, and the last of equal ones."""
    best: Mount | None = None
    for mount in mounts:
        if path.is_relative_to(mount.mountpoint) and (
            best is None or len(mount.mountpoint) >= len(best.mountpoint)
        ):
            best = mount
    return best
