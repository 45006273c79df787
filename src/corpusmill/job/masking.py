"""The content of a job file as it may be shown: in a report, in lineage, in what an orchestrator keeps of code.

What a key says decides, and what looks like a URL: a literal under a telling key, in a header, in a URL's user info
or query is or may be a secret. A reference such as `${NAME}` is none; `$${NAME}` is a literal.
"""

from __future__ import annotations

import re
from typing import Any

from corpusmill.endpoints.endpoint import masked_url
from corpusmill.endpoints.secret import MASK, is_telling

_REFERENCE = re.compile(r"((?<!\$)\$\{[A-Za-z_]\w*\})")
_SCHEME = re.compile(r"\s*(?:(?:bearer|basic)\s*)?", re.IGNORECASE)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s\"'<>]+", re.IGNORECASE)


def masked(value: Any) -> Any:
    """Give values with stars for what is or may be a secret; keys and shapes stay."""
    return _masked(value, telling=False)


def _masked(value: Any, *, telling: bool) -> Any:
    if isinstance(value, dict):
        return {key: _masked(item, telling=telling or _tells(str(key), item)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item, telling=telling) for item in value]
    if isinstance(value, str):
        return _without_literals(value) if telling else _URL.sub(lambda found: masked_url(found[0]), value)
    return MASK if telling and isinstance(value, int | float) and not isinstance(value, bool) else value


def _tells(key: str, item: Any) -> bool:
    # A mapping under a telling key is a schema of data that has such a field; headers are a mapping of secrets.
    return key == "headers" or (not isinstance(item, dict) and is_telling(key))


def _without_literals(text: str) -> str:
    """Keep references and the name of a scheme before them (`Bearer ${TOKEN}`)."""
    pieces = _REFERENCE.split(text)
    if len(pieces) > 1 and _SCHEME.fullmatch(pieces[0]):
        return pieces[0] + "".join(_piece(piece) for piece in pieces[1:])
    return "".join(map(_piece, pieces))


def _piece(piece: str) -> str:
    return piece if not piece or _REFERENCE.fullmatch(piece) else MASK
