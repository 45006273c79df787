"""What a server says is wrong, out of the many shapes in which servers say it."""

# ruff: noqa: PLR2004 - a status of HTTP is its own name

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Any

import msgspec

SHOWN = 300
"""Characters of a server's text that are kept."""

READ = 20_000
"""Characters of a server's text that are looked at."""

_FINDINGS = 20
"""Findings of a validation that are told."""

_STEPS = 20
"""Steps of the place of a finding that are told."""

_SAID = ("msg", "message", "detail", "error", "reason", "title")

_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_HIDDEN = re.compile(r"<(script|style)\b.*?</\1>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_HTML = re.compile(
    r"\s*(?:<!--.*?-->\s*)?<(?:!doctype\s+html|html|head|body|title|h1|center)\b", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A server's complaint.

    `message` is its text, "" when it gave none. `code` is lower case, a number written as digits. `status`
    is a code that is an HTTP status. `output` is model output that the server could not parse. `declared`
    tells that the body says of itself that it is an error. `html` and `json` tell what kind of text the
    body is.
    """

    message: str = ""
    code: str = ""
    kind: str = ""
    param: str = ""
    status: int | None = None
    request_id: str | None = None
    output: str | None = None
    declared: bool = False
    html: bool = False
    json: bool = False

    @property
    def text(self) -> str:
        """Everything that was said, in lower case, for recognising what has no code."""
        return f"{self.code} {self.kind} {self.message}".lower()


def read_problem(body: bytes) -> Problem:
    """Read a response body as a complaint; a body that is none becomes the message itself."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _from_text(body)
    while isinstance(document, list) and document:
        document = document[0]
    if isinstance(document, str):
        return Problem(message=document[:READ], json=True)
    return _from_object(document) if isinstance(document, dict) else Problem(json=True)


def _from_text(body: bytes) -> Problem:
    text = body[: READ * 4].decode("utf-8", "replace").lstrip("\ufeff")
    if not _HTML.match(text):
        return Problem(message=_squeezed(text))
    title = _TITLE.search(text)
    visible = title[1] if title and title[1].strip() else _TAG.sub(" ", _HIDDEN.sub(" ", text))
    return Problem(message=_squeezed(html.unescape(visible)), html=True)


def _from_object(document: dict[str, Any]) -> Problem:
    inner = document.get("error")
    if inner is None and isinstance(document.get("errors"), list) and document["errors"]:
        inner = document["errors"][0]
    details = inner if isinstance(inner, dict) else {}
    message = inner if isinstance(inner, str) else _first_text(details, ("message", "detail", "error", "msg"))
    message = message or _first_text(document, ("message", "detail", "error_description", "msg", "title"))
    code = _first_code(details, ("code", "status_code", "status")) or _first_code(
        document, ("code", "error_code", "status_code", "status")
    )
    kind = _first_text(details, ("type",)) or _first_text(document, ("error_type", "type"))
    output = _first_text(details, ("error_model_output",)) or _first_text(document, ("error_model_output",))
    raw_output = details.get("error_model_output", document.get("error_model_output"))
    return Problem(
        message=_squeezed(message),
        code=code.lower(),
        kind=kind.lower(),
        param=_first_text(details, ("param",)),
        status=int(code) if code.isdecimal() and 300 <= int(code) <= 599 else None,
        request_id=_first_text(document, ("request_id", "requestId"))
        or _first_text(details, ("request_id",))
        or None,
        output=output if isinstance(raw_output, str) else None,
        declared="error" in document or "errors" in document or document.get("object") == "error",
        json=True,
    )


def _first_text(document: dict[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        value = document.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if name == "detail" and (found := _findings(value)):
            return found
    return ""


def _findings(detail: object) -> str:
    """Give what a validation found and where, as FastAPI lists it; what it was given (`input`, `ctx`) stays out."""
    if isinstance(detail, list):
        return "; ".join(filter(None, map(_finding, detail[:_FINDINGS])))
    return _finding(detail)


def _finding(detail: object) -> str:
    if isinstance(detail, str):
        return detail
    if not isinstance(detail, dict):
        return ""
    text = next((said for name in _SAID if isinstance(said := detail.get(name), str) and said.strip()), "")
    place = detail.get("loc")
    if not isinstance(place, list) or not text:
        return text
    where = ".".join(str(step) for step in place[:_STEPS] if isinstance(step, str | int))
    return f"{where}: {text}" if where else text


def _first_code(document: dict[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        value = document.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, int | float) and not isinstance(value, bool) and value == int(value):
            return str(int(value))
    return ""


def _squeezed(text: str) -> str:
    return " ".join(text[:READ].split())
