"""The corpus that is measured with: real texts that every machine has, after `make`.

They are the paragraphs of Python's help topics, the docstrings of its standard library, and the messages of Django's
catalogues in all their languages: 20,000 distinct texts of 40 to 1,500 characters, about 150 in the mean.
"""

from __future__ import annotations

import ast
import gettext
import importlib.util
import itertools
import pydoc_data.topics
import random
import sysconfig
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator

DISTINCT = 20_000
GROUP = 20_000
NO_LIBRARY = frozenset({"test", "tests", "idlelib", "lib2to3", "site-packages", "turtledemo"})


def texts() -> list[str]:
    """Give 20,000 distinct texts, in one order for one Python and one Django."""
    found = dict.fromkeys(text for text in _all_texts() if 40 <= len(text) <= 1_500)
    chosen = list(itertools.islice(found, DISTINCT))
    random.Random(0).shuffle(chosen)
    return chosen


def _all_texts() -> Iterator[str]:
    for topic in pydoc_data.topics.topics.values():
        yield from (paragraph.strip() for paragraph in topic.split("\n\n"))
    yield from _docstrings(Path(sysconfig.get_paths()["stdlib"]))
    found = importlib.util.find_spec("django")
    assert found is not None
    assert found.origin is not None
    for catalogue in sorted(Path(found.origin).parent.rglob("*.mo")):
        with catalogue.open("rb") as file:
            messages = vars(gettext.GNUTranslations(file))["_catalog"]
        yield from (message for message in messages.values() if isinstance(message, str))


def _docstrings(library: Path) -> Iterator[str]:
    for path in sorted(library.rglob("*.py")):
        if NO_LIBRARY & set(path.relative_to(library).parts):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield ast.get_docstring(node) or ""


def write(*, path: str) -> None:
    """Write the texts as Parquet: `id` and `text`."""
    chosen = texts()
    pq.write_table(pa.table({"id": range(len(chosen)), "text": chosen}), path)


def grow(*, texts: str, path: str, rows: int, distinct: int) -> None:
    """Write a corpus of many rows: the texts again and again, numbered, so that `distinct` of them differ.

    Row r has the text that row r + `distinct` has, so that equal texts are far apart.
    """
    kept = pq.read_table(texts).column("text").to_pylist()
    fields: list[pa.Field[Any]] = [pa.field("id", pa.int64()), pa.field("text", pa.string())]
    schema = pa.schema(fields)
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, GROUP):
            numbers = range(start, min(start + GROUP, rows))
            columns = {
                "id": list(numbers),
                "text": [f"{n % distinct}. {kept[n % distinct % len(kept)]}" for n in numbers],
            }
            writer.write_table(pa.table(columns, schema=schema))
