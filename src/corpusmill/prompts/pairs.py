"""Pairs of texts, source and target, from a mapping, a list, or a CSV, TSV or Parquet file.

A file's first line names its columns when they are called `source` and `target` (or `term` and
`translation`, or by the two languages, or anything else said with `columns`); otherwise its first two
columns are meant and every line is a pair. Values are text, whatever they look like. What is broken is
named with its line.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from corpusmill.errors import PromptError

Pairs = Mapping[str, str] | Sequence[tuple[str, str]] | str | Path
"""What a glossary or examples may be given as."""

_HEADERS: Final = (
    frozenset({"source", "term", "from", "src"}),
    frozenset({"target", "translation", "to", "tgt"}),
)


def read_pairs(given: object, *, field: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs in their order. `field` is what errors call them, such as `glossary`.

    Raises `PromptError` for a file that cannot be read, a line without two texts, and a pair with an empty
    side.
    """
    if isinstance(given, Mapping):
        return tuple(_pair(source, target, f"{field}[{source!r}]") for source, target in given.items())
    if isinstance(given, str | Path):
        return _from_file(Path(given), field)
    if isinstance(given, Sequence):
        return tuple(_listed(pair, f"{field}[{position}]") for position, pair in enumerate(given))
    raise PromptError(
        f"{field} is {given!r}; it must be a mapping, a list of pairs, or a CSV, TSV or Parquet file"
    )


def _listed(pair: object, where: str) -> tuple[str, str]:
    if isinstance(pair, Mapping) and set(pair) == {"source", "target"}:
        return _pair(pair["source"], pair["target"], where)
    if isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2:  # noqa: PLR2004 - a pair
        return _pair(pair[0], pair[1], where)
    raise PromptError(f"{where} is {pair!r}; it must be a pair of texts, or {{source, target}}")


def _pair(source: object, target: object, where: str) -> tuple[str, str]:
    for side, text in (("source", source), ("target", target)):
        if not isinstance(text, str):
            hint = "; in YAML, quote it" if isinstance(text, bool | int | float) else ""
            raise PromptError(f"{where}: its {side} is {text!r}, which is no text{hint}")
        if not text.strip():
            raise PromptError(f"{where}: its {side} is empty")
    return str(source), str(target)


def _from_file(path: Path, field: str) -> tuple[tuple[str, str], ...]:
    suffix = path.suffix.lower()
    if suffix in {".csv", ".tsv", ".tab", ".txt"}:
        return _from_lines(path, field, delimiter="," if suffix == ".csv" else "\t")
    if suffix in {".parquet", ".pq"}:
        return _from_parquet(path, field)
    raise PromptError(f"{field} is the file {str(path)!r}; it must end in .csv, .tsv or .parquet")


def _from_lines(path: Path, field: str, *, delimiter: str) -> tuple[tuple[str, str], ...]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PromptError(f"{field} {str(path)!r} cannot be read: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PromptError(f"{field} {str(path)!r}, line {line}: it is not UTF-8") from error
    # A tab-separated file rarely quotes, and a term may hold a quotation mark; so there a mark is a
    # character.
    lines = io.StringIO(text, newline="")
    if delimiter == ",":
        reader = csv.reader(lines, strict=True)
    else:
        reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE, strict=True)
    pairs: list[tuple[str, str]] = []
    places = (0, 1)
    first, began = True, 0
    try:
        for row in reader:
            line, began = began + 1, reader.line_num
            if not any(cell.strip() for cell in row):
                continue
            if first:
                first = False
                named = _header(row)
                if named is not None:
                    places = named
                    continue
            if len(row) <= max(places):
                raise PromptError(
                    f"{field} {str(path)!r}, line {line}: it has {len(row)} column(s), "
                    f"and needs a source and a target, between {'commas' if delimiter == ',' else 'tabs'}"
                )
            where = f"{field} {str(path)!r}, line {line}"
            pairs.append(_pair(row[places[0]].strip(), row[places[1]].strip(), where))
    except csv.Error as error:
        raise PromptError(f"{field} {str(path)!r}, line {reader.line_num}: {error}") from error
    return tuple(pairs)


def _header(row: Sequence[str]) -> tuple[int, int] | None:
    names = [cell.strip().casefold() for cell in row]
    found = [[place for place, name in enumerate(names) if name in words] for words in _HEADERS]
    return (found[0][0], found[1][0]) if found[0] and found[1] else None


def _from_parquet(path: Path, field: str) -> tuple[tuple[str, str], ...]:
    import pyarrow as pa
    from pyarrow import dataset

    try:
        source = dataset.dataset(str(path), format="parquet")
        names = _header(source.schema.names) or (0, 1)
        if len(source.schema.names) <= max(names):
            raise PromptError(f"{field} {str(path)!r} has one column; a pair needs a source and a target")
        columns = [source.schema.names[place] for place in names]
        table = source.to_table(columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise PromptError(f"{field} {str(path)!r} cannot be read: {error}") from error
    sides = (table.column(0).to_pylist(), table.column(1).to_pylist())
    return tuple(
        _pair(one, other, f"{field} {str(path)!r}, row {row}")
        for row, (one, other) in enumerate(zip(*sides, strict=True), start=1)
    )
