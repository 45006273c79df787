"""The reference of the job file in Markdown, made from its JSON schema, so that the two cannot differ."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

INTRODUCTION = """\
# The job file

A job file is YAML 1.2 (JSON is YAML too), UTF-8. `corpusmill run job.yaml` runs it, `corpusmill plan job.yaml` says
what it would do and cost. This page is made from the schema that `corpusmill schema` prints.

- `${NAME}` within a text is replaced from the environment, which is where keys belong. `$${NAME}` is the text
  `${NAME}`.
- `no`, `on` and `2024-01-01` are texts: only `true`, `false`, `null` and plain numbers are anything else.
- A key that is not known is an error that names its line and the nearest key.
- Paths are relative to the working directory.

```yaml
source: corpus.parquet
sink: out/
prompts:
  - translate: {column: text, into: text_lv, from: en, to: lv}
endpoint:
  sambanova: {model: gpt-oss-120b}
```
"""

COLUMNS = """\
## Columns and templates

Where a key takes a column, it takes the name of any column that the table has, such as `Text Body (orig.)`, `2024` or
`text/en`, and a path into structs, such as `doc.body`. Where both could be meant, the column of that very name is. A
name whose accents are encoded in another way than the table's (NFC, NFD) is found too, where only one column can be
meant; requests do not depend on it. A name that the table does not have is refused with the nearest one.

The templates of `ask` name columns in braces, and so do the messages that it is given; here in Python:

```python
Ask("Title: {title}. Name the topic of: {column:Text Body (orig.)}", "theme", system="Answer in one word.")
```

- `{text}`, `{doc.body}`: a name or a path of letters, digits, `_`, `-` and dots that begins with a letter or `_`.
- `{column:Text Body (orig.)}`: any name or path, up to the closing brace. It may hold no braces, and not begin with a
  blank or a quotation mark: `{column: 1}` and `{column:"a"}` are text, as they are in code.
- `{literal:name}`: the text `{name}`, likewise for any name.
- All other braces are text, as in JSON. What stands in such braces and is a column of the table is refused.

The columns are strings (dictionary-encoded ones, too). The templates of `ask` take numbers, booleans, dates, times and
timestamps as well, and so does `vary_by`: `42`, `19.90` (a decimal keeps its scale), `0.1`, `true`, `2026-11-30`,
`14:05:00`, `2026-11-30T14:05:00.25`, and with a time zone, in UTC, `2026-11-30T12:05:00+00:00`. A whole float is
written as an integer is, and NaN is blank as null is, for pandas makes both of integers and nulls. Such a text follows
from the value alone, so that the request is the same whichever tool wrote the table.

A new column (`into`) may have any name from which no column of the source differs only by case or in how its accents
are encoded; a dot in it makes no struct.
"""

_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "mapping",
    "null": "null",
}


def reference(schema: Mapping[str, Any]) -> str:
    """Give the page; `schema` is what `job_schema` gives."""
    definitions: Mapping[str, Any] = schema["$defs"]
    pieces = [INTRODUCTION, _table(schema, definitions)]
    for key, field in schema["properties"].items():
        for name in _references(field):
            pieces.extend(_section(key, name, definitions, level=2))
    pieces.append(COLUMNS)
    return "\n".join(pieces)


def _section(key: str, name: str, definitions: Mapping[str, Any], *, level: int) -> Iterator[str]:
    model = definitions[name]
    yield f"{'#' * level} `{key}`\n"
    yield f"{model['description'].strip()}\n"
    inner = {
        inner_key: found
        for inner_key, field in model["properties"].items()
        for found in _references(field)
        if "properties" in definitions[found]
    }
    choices = bool(inner) and set(inner) == set(model["properties"])
    shared: dict[str, Any] = {}
    told: dict[str, str] = {}
    if choices:
        # What one choice may hold within another is told once, where it is a choice itself.
        told = {found: inner_key for inner_key, found in inner.items()}
        required = set.intersection(
            *(set(definitions[found].get("required", ())) for found in inner.values())
        )
        shared = _common([definitions[found] for found in inner.values()])
        yield f"Keys: {', '.join(f'`{each}`' for each in inner)}.\n"
        if shared:
            yield "Each of them takes these keys, besides its own:\n"
            yield _rows(shared, required, definitions)
    else:
        yield _table(model, definitions)
    for inner_key, found in inner.items():
        if not choices and found in (name, *_simple(definitions)):
            continue
        yield from _inner(inner_key, found, definitions, left_out=set(shared), told=told, level=level + 1)


def _inner(
    key: str,
    name: str,
    definitions: Mapping[str, Any],
    *,
    left_out: set[str],
    told: Mapping[str, str],
    level: int,
) -> Iterator[str]:
    model = definitions[name]
    fields = {each: field for each, field in model["properties"].items() if each not in left_out}
    yield f"{'#' * level} `{key}`\n"
    yield f"{model['description'].strip()}\n"
    if fields:
        yield _rows(fields, set(model.get("required", ())), definitions, told)


def _common(models: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Give the fields that all models have, take alike, and demand alike."""

    def alike(key: str) -> bool:
        return (
            len({json.dumps(model["properties"].get(key), sort_keys=True) for model in models}) == 1
            and len({key in model.get("required", ()) for model in models}) == 1
        )

    return {key: field for key, field in models[0]["properties"].items() if alike(key)}


def _simple(definitions: Mapping[str, Any]) -> list[str]:
    """Name the models of a single key, which are told where they are used."""
    return [name for name, model in definitions.items() if len(model.get("properties", ())) == 1]


def _table(model: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    return _rows(model["properties"], set(model.get("required", ())), definitions)


def _rows(
    fields: Mapping[str, Any],
    required: set[str],
    definitions: Mapping[str, Any],
    told: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Write the table of some keys; `told` names the sections of models that are told elsewhere."""
    lines = ["| key | what it takes | default | meaning |", "|---|---|---|---|"]
    # What must be given comes first; the rest keeps its order.
    for key in sorted(fields, key=lambda each: each not in required):
        field = fields[key]
        default = "required" if key in required else _default(field)
        meaning = field.get("description", "") or _described(field, definitions)
        kind = _type(field, definitions)
        homes = [told[name] for name in _references(field) if name in told]
        if homes:
            kind = f"mapping with the keys of `{homes[0]}`"
        cells = (f"`{key}`", kind, default, meaning)
        lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    if value is None or isinstance(value, dict):
        return ""
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _described(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    for name in _references(field):
        return str(definitions[name]["description"]).strip().split("\n")[0].rstrip(".")
    return ""


def _references(field: Mapping[str, Any]) -> Iterator[str]:
    """Name the models that a field may hold, also in a list."""
    if "$ref" in field:
        yield str(field["$ref"]).rpartition("/")[2]
    for inner in (
        *field.get("anyOf", ()),
        *([field["items"]] if isinstance(field.get("items"), dict) else []),
    ):
        yield from _references(inner)


def _type(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if any("pattern" in inner for inner in field.get("anyOf", ())):
        return "seconds, or a text such as 90s, 15m, 1h30m"
    if "anyOf" in field:
        kinds = [_type(inner, definitions) for inner in field["anyOf"] if inner.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in field:
        name = str(field["$ref"]).rpartition("/")[2]
        properties = definitions[name]["properties"]
        return f"`{{{next(iter(properties))}: …}}`" if name in _simple(definitions) else "mapping, see below"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        if "prefixItems" in field:
            return (
                f"list of {len(field['prefixItems'])} {_plural(_type(field['prefixItems'][0], definitions))}"
            )
        inner = field.get("items") or {}
        return f"list of {_plural(_type(inner, definitions))}" if inner else "list"
    kind = _TYPES.get(str(field.get("type")), "anything")
    return kind + _range(field)


def _plural(kind: str) -> str:
    return {
        "text": "texts",
        "number": "numbers",
        "whole number": "whole numbers",
        "mapping": "mappings",
        "mapping, see below": "mappings, see below",
        "list": "lists",
        "anything": "anything",
    }.get(kind, kind)


def _range(field: Mapping[str, Any]) -> str:
    bounds = [
        f"{words} {field[name]:g}"
        for name, words in (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"))
        if name in field
    ]
    return f" {' '.join(bounds)}" if bounds else ""
