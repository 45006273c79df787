"""The values of a column, as a prompt takes them.

Text is data: only what no wire and no file can carry is touched, which is NUL and what is no Unicode character
(invalid UTF-8, lone surrogates). Both become U+FFFD, and the rows concerned are named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from corpusmill.prompts.prompt import Input

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean_text(text: str) -> str:
    """Replace NUL and lone surrogates by U+FFFD; anything else stays as it is."""
    if "\0" in text:
        text = text.replace("\0", REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text


def column_at(batch: pa.RecordBatch, path: str) -> pa.Array[Any]:
    """Give the column at a dotted path; a top-level column whose whole name is the path comes first."""
    names = batch.schema.names
    if path in names:
        return batch.column(names.index(path))
    name, _, rest = path.partition(".")
    column: pa.Array[Any] = batch.column(names.index(name))
    for step in rest.split("."):
        column = pc.struct_field(column, step)
    return column


def column_values(batch: pa.RecordBatch, wanted: Input) -> tuple[list[Any], frozenset[int]]:
    """Give the values of a column, one a row, and the rows whose text had to be cleaned."""
    column = column_at(batch, wanted.path)
    if wanted.kind == "text":
        return column_text(column)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.to_pylist(), frozenset()


def column_text(column: pa.Array[Any]) -> tuple[list[str | None], frozenset[int]]:
    """Give the texts of a string-like array, one a row, and the rows whose text had to be cleaned."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    try:
        texts: list[str | None] = column.to_pylist()
    except UnicodeDecodeError:
        return _repair(column)
    if pc.any(pc.match_substring(column, "\0")).as_py():
        cleaned = frozenset(row for row, text in enumerate(texts) if text is not None and "\0" in text)
        for row in cleaned:
            texts[row] = (texts[row] or "").replace("\0", REPLACEMENT)
        return texts, cleaned
    return texts, frozenset()


def _repair(column: pa.Array[Any]) -> tuple[list[str | None], frozenset[int]]:
    binary = pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
    texts: list[str | None] = []
    cleaned = set()
    for row, data in enumerate(column.cast(binary).to_pylist()):
        if data is None:
            texts.append(None)
            continue
        text = data.decode("utf-8", "replace").replace("\0", REPLACEMENT)
        if text.encode() != data:
            cleaned.add(row)
        texts.append(text)
    return texts, frozenset(cleaned)
