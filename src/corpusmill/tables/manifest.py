"""The manifest of a sink: which parts make up the dataset, and which run wrote them.

A dataset is what its manifest says, no more and no less. It lies in `_corpusmill/manifest.json` inside a
folder, and in `_<file>.corpusmill/manifest.json` beside a single file; dataset readers pass over such names.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from corpusmill.tables.storage import Place

VERSION = 1
SIDECARS = "_corpusmill"
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One file of the dataset: name inside the folder, source rows, size in bytes and SHA-256.

    The name of a part in a folder ends in the beginning of its hash, so that a reader that holds on to the
    parts of one dataset never gets one of another's under the same name.

    `tail` is the SHA-256 of the last 64 KiB of a single-file sink, by which a reader can tell quickly whether
    a manifest is that of the file that lies there. Hashes are hexadecimal.
    """

    name: str
    first_row: int
    rows: int
    bytes: int
    sha256: str
    tail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a commit wrote. `failed` counts the rows that failed; `extra` is the caller's own."""

    run_key: str | None
    job_key: str
    rows: int
    parts: tuple[Part, ...]
    schema_fingerprint: str
    created_by: str
    failed: int = 0
    extra: dict[str, Any] = field(default_factory=dict)
    version: int = VERSION


def sidecars_of(place: Place, *, single_file: bool) -> Place:
    """The folder of the sidecars of the sink at `place`."""
    return place.beside(f"_{place.name}.corpusmill") if single_file else place / SIDECARS


def encode(manifest: Manifest) -> bytes:
    """The manifest as indented JSON, keys in the order of the fields."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def load(place: Place) -> Manifest | None:
    """The manifest that lies at `place`; None when there is none. Unreadable is not absent.

    Raises:
        UsageError: it is there and cannot be read, or was written by a newer version.
    """
    try:
        data = place.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"cannot read the manifest {place.shown}: {error}") from error
    try:
        version = msgspec.json.decode(data, type=dict[str, Any]).get("version")
        if version != VERSION:
            raise UsageError(
                f"the manifest {place.shown} has version {version!r}, and this corpusmill knows {VERSION}; "
                "use a newer one"
            )
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise UsageError(f"the manifest {place.shown} is damaged: {error}") from error


def schema_fingerprint(schema: pa.Schema) -> str:
    """SHA-256 over names, types, nullability and metadata of a schema, hexadecimal."""
    lines: list[str] = [_metadata_line(schema.metadata)]
    lines += [f"{f.name!r} {f.type} {f.nullable} {_metadata_line(f.metadata)}" for f in schema]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def _metadata_line(metadata: Mapping[bytes, bytes] | None) -> str:
    return repr(sorted((metadata or {}).items()))
