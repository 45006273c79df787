"""The values of a column, as a prompt takes them.

Text is data: only what no wire and no file can carry is touched, which is NUL and what is no Unicode character
(invalid UTF-8, lone surrogates). Both become U+FFFD, and the rows concerned are named. A value that Python cannot hold
costs its own row and no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.exchange import REPLACEMENT, clean_text, clean_value
from corpusmill.prompts.columns import find_column, is_text
from corpusmill.rows.scalars import scalar_writer

if TYPE_CHECKING:
    from corpusmill.prompts.prompt import Input

UNREADABLE = (ValueError, TypeError, OverflowError, RecursionError, ArithmeticError, pa.ArrowException)
"""What Arrow raises for a value of which it can make no Python object: nanoseconds, years beyond 9999, deep nesting."""


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a column, one a row; rows whose text had to be cleaned; rows without a value, and why."""

    items: list[Any]
    cleaned: frozenset[int] = frozenset()
    unreadable: dict[int, str] = field(default_factory=dict)


def column_at(batch: pa.RecordBatch, path: str) -> pa.Array[Any]:
    """Give the column that a dotted path names; null where a struct on the way is null."""
    (top, *below), _ = find_column(batch.schema, path)
    column: pa.Array[Any] = batch.column(top)
    for name in below:
        column = pc.struct_field(column, [column.type.get_field_index(name)])
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def column_values(batch: pa.RecordBatch, wanted: Input) -> Values:
    """Give the values of the column that an input names."""
    column = column_at(batch, wanted.path)
    if _is_text(column.type):
        texts, cleaned = column_text(column)
        return Values(texts, cleaned)
    if wanted.kind == "text":
        return _written(column)
    try:
        items = column.to_pylist()
    except UNREADABLE:
        return _one_by_one(column)
    return Values(items) if wanted.kind == "binary" else _cleaned(items)


def column_text(column: pa.Array[Any]) -> tuple[list[str | None], frozenset[int]]:
    """Give the texts of a string-like array, one a row, and the rows whose text had to be cleaned."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_string_view(column.type):
        column = column.view(pa.binary_view()).cast(pa.large_binary()).view(pa.large_string())
    try:
        texts: list[str | None] = column.to_pylist()
    except UnicodeDecodeError:
        return _repair(column)
    cleaned = [row for row, text in enumerate(texts) if text and "\0" in text]
    for row in cleaned:
        texts[row] = (texts[row] or "").replace("\0", REPLACEMENT)
    return texts, frozenset(cleaned)


def _written(column: pa.Array[Any]) -> Values:
    """Give the texts of an array of scalars."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    plain, write = scalar_writer(column)
    items: list[Any] = plain.to_pylist()
    if write is None:
        return Values(items)
    unreadable = {}
    for row, item in enumerate(items):
        if item is None:
            continue
        try:
            items[row] = write(item)
        except UNREADABLE as error:
            items[row], unreadable[row] = None, _why(error)
    return Values(items, unreadable=unreadable)


def _is_text(type_: pa.DataType) -> bool:
    return is_text(type_.value_type if pa.types.is_dictionary(type_) else type_)


def _repair(column: pa.Array[Any]) -> tuple[list[str | None], frozenset[int]]:
    binary = pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
    texts: list[str | None] = []
    cleaned = set()
    for row, data in enumerate(column.cast(binary).to_pylist()):
        if data is None:
            texts.append(None)
            continue
        text = _decoded(data)
        if text.encode() != data:
            cleaned.add(row)
        texts.append(text)
    return texts, frozenset(cleaned)


def _decoded(data: bytes) -> str:
    try:
        # Surrogates that were written as if they were characters: one mark each, not three.
        return clean_text(data.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        return clean_text(data.decode("utf-8", "replace"))


def _cleaned(items: list[Any]) -> Values:
    cleaned = set()
    unreadable = {}
    for row, item in enumerate(items):
        try:
            kept = clean_value(item)
        except RecursionError as error:
            items[row], unreadable[row] = None, _why(error)
            continue
        if kept is not item:
            items[row] = kept
            cleaned.add(row)
    return Values(items, frozenset(cleaned), unreadable)


def _one_by_one(column: pa.Array[Any]) -> Values:
    items: list[Any] = []
    repaired = set()
    unreadable = {}
    for row in range(len(column)):
        item = None
        try:
            item = column[row].as_py()
        except UnicodeDecodeError:
            try:
                item = _repaired(column[row])
                repaired.add(row)
            except UNREADABLE as error:
                unreadable[row] = _why(error)
        except UNREADABLE as error:
            unreadable[row] = _why(error)
        items.append(item)
    found = _cleaned(items)
    return Values(items, found.cleaned | repaired, found.unreadable | unreadable)


def _repaired(scalar: Any) -> Any:
    """Give a nested value whose text is no UTF-8 somewhere."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StringScalar | pa.LargeStringScalar | pa.StringViewScalar):
        return _decoded(scalar.as_buffer().to_pybytes())
    if isinstance(scalar, pa.DictionaryScalar | pa.ExtensionScalar | pa.RunEndEncodedScalar | pa.UnionScalar):
        return _repaired(scalar.value)
    if isinstance(scalar, pa.StructScalar):
        # By position: two members may have the same name.
        members: Any = scalar
        return {member.name: _repaired(members[place]) for place, member in enumerate(scalar.type)}
    if isinstance(scalar, pa.ListScalar):
        return [_repaired(item) for item in scalar.values or ()]
    return scalar.as_py()


def _why(error: BaseException) -> str:
    return f"the value cannot be read ({type(error).__name__}: {str(error)[:200]})"
