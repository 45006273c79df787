"""The part of JSONPath that `InputFilter` and `OutputFilter` of a transform job are written in for JSON records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_STEP = re.compile(r"\.([A-Za-z_]\w*)|\[((?:'[^']*'|\"[^\"]*\")(?:\s*,\s*(?:'[^']*'|\"[^\"]*\"))*)\]")
_NAME = re.compile(r"'([^']*)'|\"([^\"]*)\"")


class FilterError(ValueError):
    """A filter that cannot be read, or that finds nothing in a record."""


def parse_filter(path: str) -> list[list[str]]:
    """Read `$`, `$.a.b`, `$['a']` and `$['a','b']` as the names taken at each step."""
    if not path.startswith("$"):
        msg = f"a filter begins with $: {path!r}"
        raise FilterError(msg)
    steps, at = [], 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            msg = f"the filter {path!r} is not understood from {path[at:]!r} on"
            raise FilterError(msg)
        names = [found[1]] if found[1] else [one or other for one, other in _NAME.findall(found[2])]
        steps.append(names)
        at = found.end()
    return steps


def apply_filter(path: str, record: Any) -> Any:
    """Take out of a record what the filter names; several names give an object of them."""
    for names in parse_filter(path):
        if not isinstance(record, Mapping) or any(name not in record for name in names):
            msg = f"the filter {path!r} finds nothing in a record"
            raise FilterError(msg)
        record = record[names[0]] if len(names) == 1 else {name: record[name] for name in sorted(names)}
    return record
