"""Image, audio and video parts, each in the shape that the service's OpenAPI document gives.

`ImageContent` carries a data URL under `image_url.url`, `AudioContent` bare base64 under `audio_content.content`,
`VideoContent` a data URL under `video_url.url`. Types are told from the bytes, never from a name.
"""

from __future__ import annotations

import base64
from typing import Any

# Containers that may hold only sound or moving pictures, so that either kind of part may carry them.
_EITHER = frozenset({"audio", "video"})


def sniff(data: bytes) -> str | None:
    """Tell the media type from the first bytes; None when they are of no known kind."""
    import puremagic

    if data.startswith(b"ID3"):
        return "audio/mpeg"
    try:
        return puremagic.from_string(data[:4096], mime=True) or None
    except (puremagic.PureError, ValueError):
        return None


def media_part(kind: str, data: bytes) -> dict[str, Any] | str:
    """Make the part for bytes of `kind` (`image`, `audio`, `video`); a text instead says what they are."""
    found = sniff(data)
    if found is None:
        return f"bytes of no known {kind} type (they begin with {data[:8].hex()})"
    family = found.partition("/")[0]
    if family != kind and {family, kind} != _EITHER:
        return f"{found} where {kind} is asked for"
    encoded = base64.b64encode(data).decode("ascii")
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": f"data:{found};base64,{encoded}"}}
    if kind == "audio":
        return {"type": "audio_content", "audio_content": {"content": encoded}}
    return {"type": "video_url", "video_url": {"url": f"data:{found};base64,{encoded}"}}
