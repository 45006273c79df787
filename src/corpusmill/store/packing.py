"""How bodies and digests are laid down in a row: small, and without loss where losing would cost money."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKED_FROM = 1024
"""Bodies of so many bytes are packed with zstd; below that it costs more time than it saves space."""

DIGEST_BYTES = 8
"""So much of a field's digest is kept by entry: enough to tell fields apart, not to identify a request."""

_INT64 = 1 << 63


def pack(body: bytes) -> tuple[bytes, int | None]:
    """Give the bytes to keep and, when they are packed, the length of what was packed."""
    if len(body) < PACKED_FROM:
        return body, None
    import pyarrow as pa

    packed: bytes = pa.compress(body, codec="zstd", asbytes=True)
    return (packed, len(body)) if len(packed) < len(body) else (body, None)


def unpack(body: bytes, unpacked: int) -> bytes:
    """Undo `pack`."""
    import pyarrow as pa

    plain: bytes = pa.decompress(body, decompressed_size=unpacked, codec="zstd", asbytes=True)
    return plain


def pack_digests(fields: Mapping[str, str]) -> tuple[str, bytes]:
    """Give the names of the fields, joined by line feeds, and the beginnings of their digests, joined."""
    return "\n".join(fields), b"".join(bytes.fromhex(value)[:DIGEST_BYTES] for value in fields.values())


def unpack_digests(names: str | None, digests: bytes | None) -> dict[str, str]:
    """Undo `pack_digests`: the beginnings of the digests, hexadecimal, by name."""
    if not names or not digests:
        return {}
    return {
        name: digests[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES].hex()
        for at, name in enumerate(names.split("\n"))
    }


def whole(value: int | None) -> int | None:
    """Keep a number that a server made up from spoiling a group: what 64 bits cannot hold is unknown."""
    return value if value is None or -_INT64 <= value < _INT64 else None


def text(value: str | None) -> str | None:
    """Replace the halves of surrogate pairs, which have no UTF-8."""
    if value is None or value.isascii():
        return value
    return value.encode("utf-8", "replace").decode("utf-8")
