"""Where tables lie: a local disk, S3, or Google Cloud Storage, behind the few verbs that we need.

A local path is made absolute (symbolic links are kept: `latest` stays `latest`). The address of an object
never carries credentials; they come from the environment, as the clouds' own tools have it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs as pafs

from corpusmill.errors import CorpusmillError, SourceError, SourceUnreachableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_REMOTE = ("s3", "gs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One path of one file system. `shown` is how the user knows it; `path` is how the file system does."""

    filesystem: pafs.FileSystem
    path: str
    shown: str
    local: bool

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def address(self) -> str:
        """What leads here from anywhere: the absolute path, or the URL."""
        return self.path if self.local else self.shown

    @property
    def parent(self) -> Place:
        """The folder that holds this place."""
        above, slash, _ = self.shown.rstrip("/").rpartition("/")
        return self._at(self.path.rstrip("/").rpartition("/")[0] or "/", above or slash)

    def __truediv__(self, name: str) -> Place:
        """A place below this one; below the working folder, which is shown as nothing, just the name."""
        shown = f"{self.shown.rstrip('/')}/{name}" if self.shown else name
        return self._at(f"{self.path.rstrip('/')}/{name}", shown)

    def beside(self, name: str) -> Place:
        """A place in the same folder."""
        return self.parent / name

    def _at(self, path: str, shown: str) -> Place:
        return Place(filesystem=self.filesystem, path=path, shown=shown, local=self.local)

    def info(self) -> pafs.FileInfo:
        """Kind, size and time of what lies here."""
        (found,) = self.filesystem.get_file_info([self.path])
        return found

    def is_file(self) -> bool:
        """Whether a file or an object lies here."""
        return self.info().type == pafs.FileType.File

    def is_directory(self) -> bool:
        """Whether a folder (or, in an object store, a prefix of objects) lies here."""
        return self.info().type == pafs.FileType.Directory

    def children(self, *, recursive: bool = False) -> list[pafs.FileInfo]:
        """What lies below, sorted by path; nothing when there is no such folder."""
        selector = pafs.FileSelector(self.path, allow_not_found=True, recursive=recursive)
        return sorted(self.filesystem.get_file_info(selector), key=lambda info: str(info.path))

    def read_bytes(self) -> bytes:
        """The whole content of a small file."""
        with self.filesystem.open_input_stream(self.path) as stream:
            return bytes(stream.read())

    def write_bytes(self, data: bytes) -> None:
        """Put a small file here, whole and durable: a reader sees the old content or the new one."""
        if not self.local:
            with self.filesystem.open_output_stream(self.path) as stream:
                stream.write(data)
            return
        target = Path(self.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f".{target.name}.new")
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(target)
        sync_folder(target.parent)

    def move_to(self, target: Place) -> None:
        """Give a file its place: one durable rename or, in an object store, a copy and a deletion."""
        if self.local:
            Path(target.path).parent.mkdir(parents=True, exist_ok=True)
            Path(self.path).replace(target.path)
            sync_folder(Path(target.path).parent)
        else:
            self.filesystem.copy_file(self.path, target.path)
            self.filesystem.delete_file(self.path)

    def copy_to(self, target: Place) -> None:
        """Copy an object within its store."""
        self.filesystem.copy_file(self.path, target.path)

    def delete(self) -> None:
        """Remove the file or the folder that lies here; nothing here is fine."""
        kind = self.info().type
        if kind == pafs.FileType.Directory:
            if self.local:
                shutil.rmtree(self.path)
            else:
                self.filesystem.delete_dir(self.path)
        elif kind != pafs.FileType.NotFound:
            self.filesystem.delete_file(self.path)

    def make_folder(self) -> None:
        """Make the folder and those above it; object stores need none."""
        if self.local:
            Path(self.path).mkdir(parents=True, exist_ok=True)


def place_of(path: str | Path) -> Place:
    """The place that a user's path or URL names: a local path, `s3://bucket/key`, `gs://bucket/key`.

    For S3 the endpoint may be set in `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`, with path-style addresses.

    Raises:
        UsageError: an unknown scheme, credentials written into the address, or nothing that a path could be.
    """
    text = os.fspath(path)
    scheme, mark, rest = text.partition("://")
    if not mark:
        if not text or "\0" in text:
            raise UsageError(f"the path {text!r} names nothing; the working folder is written as a dot")
        try:
            absolute = os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - `resolve` would follow links
        except FileNotFoundError:
            raise UsageError(f"{text} cannot be found: the working folder is gone") from None
        return Place(filesystem=pafs.LocalFileSystem(), path=absolute, shown=text, local=True)
    if scheme == "file":
        host, slash, below = rest.partition("/")
        if host not in ("", "localhost"):
            raise UsageError(
                f"{text} names a host, {host!r}; write file:///{rest}, or a path without a scheme"
            )
        return place_of(slash + unquote(below))
    if scheme not in _REMOTE:
        raise UsageError(
            f"{scheme}:// is not a scheme that can be read or written; use a path, s3:// or gs://"
        )
    bucket = rest.partition("/")[0]
    if "@" in bucket:
        raise UsageError(
            f"an address of {scheme}:// carries credentials; put them in the environment instead"
        )
    if not bucket:
        raise UsageError(f"{text} names no bucket")
    if {"", ".", ".."} & {*rest.rstrip("/").split("/")}:
        raise UsageError(f"{text} holds '//', '.' or '..' between its slashes, which an object's name cannot")
    filesystem = _s3(bucket) if scheme == "s3" else pafs.GcsFileSystem()
    return Place(filesystem=filesystem, path=rest.rstrip("/"), shown=text.rstrip("/"), local=False)


def _s3(bucket: str) -> pafs.S3FileSystem:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint:
        parts = urlsplit(endpoint)
        return pafs.S3FileSystem(
            endpoint_override=f"{parts.netloc}{parts.path.rstrip('/')}",
            scheme="http" if parts.scheme == "http" else "https",
            region=region or "us-east-1",
            force_virtual_addressing=False,
        )
    try:
        return pafs.S3FileSystem(region=region or pafs.resolve_s3_region(bucket))
    except OSError as error:
        # A network that is away for a moment is worth another try of a task, a bucket that is not there is not.
        kind = UsageError if "not found" in str(error) else CorpusmillError
        raise kind(
            f"the region of the bucket {bucket!r} cannot be told: {_reason(error)}; set AWS_REGION, or mend the name"
        ) from error


def link_or_copy(source: Place, target: Place) -> None:
    """Give a local file a second name or, where the file system cannot, a copy; what has the name goes."""
    Path(target.path).unlink(missing_ok=True)
    try:
        os.link(source.path, target.path)
    except OSError:
        shutil.copyfile(source.path, target.path)
        sync_file(target.path)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable, where the platform can open a folder."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: str) -> None:
    """Make what was written into a file durable."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def failures_as(kind: type[UsageError], what: str, place: Place) -> Iterator[None]:
    """Turn what the system, the object store or Arrow refuses into one error that names the place."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        missing = _no_bucket(place, error)
        if kind is SourceError and isinstance(error, OSError) and not (missing or _forbidden(error)):
            kind = SourceUnreachableError
        reason = missing or f"{_reason(error)}{_room(place, error)}"
        raise kind(f"{what} {place.shown}: {reason}") from error


@contextlib.contextmanager
def refusals_as(kind: type[UsageError]) -> Iterator[None]:
    """Turn what is refused, by whatever kind of `UsageError`, into an error of this kind with the same words."""
    try:
        yield
    except kind:
        raise
    except UsageError as error:
        raise kind(str(error)) from error


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error).strip() or type(error).__name__).partition("\n")[0]


def _no_bucket(place: Place, error: BaseException) -> str | None:
    """Say which bucket is missing, where the service says of many words of its own that one is."""
    if place.local or "NO_SUCH_BUCKET" not in str(error):
        return None
    return f"there is no bucket {place.path.partition('/')[0]!r}; create it, or mend its name"


def _forbidden(error: OSError) -> bool:
    """Whether it is a matter of rights, which somebody has to give first; S3 says so in words alone."""
    return error.errno in {errno.EACCES, errno.EPERM} or "ACCESS_DENIED" in str(error)


def _room(place: Place, error: BaseException) -> str:
    """The free space, when that is what may be missing."""
    short = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    if not place.local or not short:
        return ""
    folder = Path(place.path)
    while not folder.exists():
        folder = folder.parent
    return f" ({shutil.disk_usage(folder).free:,} bytes are free there; make room and run again)"
