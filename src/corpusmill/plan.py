"""What a run will do, worked out before anything is sent: columns, schema, and what makes two runs the same.

Everything that can be refused is refused here: an unknown column, a clash of names, a type that no prompt takes or
that Parquet cannot hold, a parameter that the endpoint does not know.
"""

from __future__ import annotations

import unicodedata
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from corpusmill.errors import PromptError, SinkError, SourceError, placed
from corpusmill.fingerprint import canonical, digest
from corpusmill.prompts.columns import find_column, is_scalar, is_text, named, resolve_column
from corpusmill.prompts.prompt import Rendered
from corpusmill.prompts.template import as_column, as_literal, check_closed, in_braces, unnamed
from corpusmill.rows.columns import new_fields
from corpusmill.store.urls import sqlite_file
from corpusmill.tables import check_storable, open_sink, open_source
from corpusmill.tables.locate import would_find
from corpusmill.tables.storage import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from corpusmill.endpoints import Endpoint
    from corpusmill.prompts.prompt import Input, Prompt
    from corpusmill.tables import Sink, SinkLike, SinkSpec, Source, SourceLike


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The shape of a run's output, and its keys.

    `kept` are the source's columns in the output, `schema` is that of the output. `run_key` names this very run,
    None when the source cannot be told again (a reader); `job_key` is the same for any state of the source.
    """

    kept: tuple[str, ...]
    schema: pa.Schema
    run_key: str | None
    job_key: str


def plan_run(
    source: SourceLike,
    sink: SinkLike,
    prompts: Sequence[Prompt],
    endpoint: Endpoint,
    *,
    telemetry: bool,
    store: object,
) -> tuple[Source, Sink, Plan]:
    """Open source and sink, and give both with the plan of a run from one to the other.

    `store` is one that is open or its URL; None for a run without one. Raises the `UsageError` kinds for all that can
    be refused before anything is sent or written.
    """
    opened = open_source(source)
    target = open_sink(sink)
    plan = make_plan(
        schema=opened.schema,
        prompts=prompts,
        endpoint=endpoint,
        kept=target.spec.columns,
        telemetry=telemetry,
        source=opened,
        sink=target.spec,
    )
    check_storable(plan.schema)
    check_apart(opened, target, asked=source, store=store)
    return opened, target, plan


def make_plan(
    *,
    schema: pa.Schema,
    prompts: Sequence[Prompt],
    endpoint: Endpoint,
    kept: Sequence[str] | None,
    telemetry: bool,
    source: Source | None = None,
    sink: SinkSpec | None = None,
) -> Plan:
    """Check the prompts against the table and the endpoint, and give the plan; raises `UsageError` kinds.

    Without a `source` or a `sink`, as of a stream, there is nothing by which the run could be told again.
    """
    if not prompts:
        raise PromptError("no prompt is given; enrich needs at least one")
    for position, prompt in enumerate(prompts):
        with placed("prompts", position):
            for wanted in prompt.inputs:
                check_input(schema, prompt, wanted)
            check_braces(schema, prompt)
            check_endpoint(prompt, endpoint)
    with placed("sink", "columns"):
        columns = check_kept(schema, kept)
    filled = [new_fields(prompt, telemetry=telemetry) for prompt in prompts]
    check_clashes(schema, columns, filled, prompts)
    added = [field for fields in filled for field in fields]
    with placed("sink", "partition"):
        check_partition(schema, prompts, added, sink)
    output = pa.schema([*(schema.field(name) for name in columns), *added])
    if schema.metadata:
        output = output.with_metadata(schema.metadata)
    shape = {
        "prompts": [prompt.content() for prompt in prompts],
        "columns": list(columns),
        "telemetry": telemetry,
        "identity": endpoint.identity,
        "rows_per_part": sink.rows_per_part if sink else None,
        "compression": sink.compression if sink else None,
        "partition": dict(sink.partition) if sink and sink.partition else None,
    }
    description = source.description() if source else None
    state = source.identity() if source else None
    return Plan(
        kept=columns,
        schema=output,
        run_key=None if state is None else _key({"shape": shape, "source": state}),
        job_key=_key({"shape": shape, "source": description}),
    )


def _key(content: dict[str, Any]) -> str:
    return digest(canonical(content, ordered=True)).hex()


def throwaway_key() -> str:
    """Give a run key for a run that can never be told again."""
    return f"once-{uuid.uuid4().hex}"


def check_input(schema: pa.Schema, prompt: Prompt, wanted: Input) -> None:
    """Raise `PromptError` unless the table has the column, of a type that the prompt can take."""
    try:
        found = resolve_column(schema, wanted.path)
    except SourceError as error:
        braced = next(filter(None, (in_braces(wanted.path, text) for _, text in _templates(prompt))), None)
        raise PromptError(
            f"the prompt into {prompt.into!r} names {wanted.path!r}: {error}{as_literal(braced) if braced else ''}"
        ) from None
    # What a type of somebody's own means by a number is not known: of such types text alone is taken.
    scalar = wanted.scalars and is_scalar(found.value_type if pa.types.is_dictionary(found) else found)
    if isinstance(found, pa.BaseExtensionType):
        found = found.storage_type
    value = found.value_type if pa.types.is_dictionary(found) else found
    if wanted.kind == "text" and not (scalar or is_text(value)):
        raise PromptError(
            f"the prompt into {prompt.into!r} takes text from {wanted.path!r}, whose type is {found}; "
            "cast the column to string first"
        )
    binary = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    )
    if wanted.kind == "binary" and not any(is_kind(found) for is_kind in binary):
        raise PromptError(
            f"the prompt into {prompt.into!r} takes bytes from {wanted.path!r}, whose type is {found}"
        )


def check_braces(schema: pa.Schema, prompt: Prompt) -> None:
    """Raise `PromptError` for a column in braces that are sent as they stand.

    Braces alone do not take its name, or they are not closed.
    """
    for what, text in _templates(prompt):
        for name, place in unnamed(text):
            if named(name, schema.names) is not None:
                raise PromptError(
                    f"the prompt into {prompt.into!r} has {'{' + name + '}'!r} at {place} of a text, which would "
                    f"be sent as it stands, though {name!r} is a column: {as_column(name)}{as_literal(name)}"
                )
        check_closed(text, f"{what} of the prompt into {prompt.into!r}", schema.names)


def _templates(prompt: Prompt) -> Iterator[tuple[str, str]]:
    """Give the texts in which a prompt names columns in braces, each with what it is."""
    content = prompt.content()
    for key, what in (
        ("system", "the system message"),
        ("template", "the template"),
        ("messages", "a message"),
    ):
        for text in _texts(content.get(key)):
            yield what, text


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


_MEDIA = {"image": "images", "audio": "audio", "video": "video"}


def check_endpoint(prompt: Prompt, endpoint: Endpoint) -> None:
    """Raise `PromptError` for what the endpoint would refuse of every row."""
    capabilities = endpoint.capabilities
    for kind in sorted(prompt.media):
        if not getattr(capabilities, _MEDIA[kind]):
            raise PromptError(
                f"the prompt into {prompt.into!r} sends {kind} parts, which the endpoint does not take"
            )
    known = capabilities.languages
    for language in prompt.languages:
        if known is not None and language not in known:
            raise PromptError(
                f"the prompt into {prompt.into!r} needs the language {language!r}, which the endpoint does not know; "
                f"it knows {', '.join(sorted(known))}"
            )
    messages = None
    if all(wanted.kind == "text" for wanted in prompt.inputs):
        # What is fixed in the messages is seen on a row that says next to nothing.
        sample = prompt.render(["-"] * len(prompt.inputs))
        messages = sample.messages if isinstance(sample, Rendered) else None
    parameters = prompt.parameters
    if prompt.tools_column is not None:
        parameters = {**parameters, "tools": [{"type": "function", "function": {"name": "of_the_row"}}]}
    endpoint.check(parameters, messages)


def check_apart(source: Source, sink: Sink, *, asked: object, store: object) -> None:
    """Raise `SinkError` when the output would be written over source or store, or to where the source is read."""
    sink.refuse_source(source.files)
    path = getattr(asked, "path", asked)
    if isinstance(path, str | Path) and would_find(place_of(path), sink.layout.target):
        raise SinkError(
            f"the sink {sink.shown} lies inside the source {path}, so that the next run would read it as a part of "
            "its source; write the output to a folder of its own"
        )
    kept = sqlite_file(store) if isinstance(store, str) else getattr(store, "path", None)
    if kept is not None and sink.holds(kept):
        raise SinkError(
            f"the sink {sink.shown} holds the store {kept}, which would go with what is replaced there; write the "
            "output to a folder of its own, or name another store"
        )


def check_partition(
    schema: pa.Schema, prompts: Sequence[Prompt], added: Sequence[pa.Field[Any]], sink: SinkSpec | None
) -> None:
    """Raise `SinkError` when a hive key has the name of a new column, or of one that a prompt reads.

    Readers of hive folders take the folder's value for the whole column. For a column that says in which partition a
    row belongs, that is what is meant.
    """
    names = {field.name for field in added}
    names |= {find_column(schema, wanted.path)[0][0] for prompt in prompts for wanted in prompt.inputs}
    for key in (sink.partition or {}) if sink else {}:
        if key in names:
            raise SinkError(
                f"sink.partition has the key {key!r}, which is also a column that is read or filled; readers of hive "
                "folders would lose the column. Choose another key"
            )


def check_kept(schema: pa.Schema, kept: Sequence[str] | None) -> tuple[str, ...]:
    """Give the names of the columns that pass through; raise `SinkError` for one that the source does not have."""
    if kept is None:
        return tuple(schema.names)
    wanted: set[str] = set()
    for name in kept:
        meant = named(name, schema.names)
        if meant is None:
            raise SinkError(
                f"sink.columns names {name!r}, which the source does not have; it has {', '.join(schema.names)}"
            )
        if meant in wanted:
            raise SinkError(f"sink.columns names a column twice: {', '.join(kept)}")
        wanted.add(meant)
    return tuple(name for name in schema.names if name in wanted)


def check_clashes(
    schema: pa.Schema,
    kept: Sequence[str],
    filled: Sequence[Sequence[pa.Field[Any]]],
    prompts: Sequence[Prompt],
) -> None:
    """Raise `PromptError` when a new column has the name of another one, or one that looks the same but for case.

    `filled` are the columns that each prompt fills.
    """
    taken = {_folded(name): (name, "a column of the source") for name in schema.names}
    for position, (prompt, fields) in enumerate(zip(prompts, filled, strict=True)):
        with placed("prompts", position):
            if not prompt.into.strip():
                raise PromptError("the name of a new column (into) is blank")
            for field in fields:
                _check_clash(field.name, taken, kept)
                taken[_folded(field.name)] = (field.name, "a new column of this run")


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())


def _check_clash(name: str, taken: Mapping[str, tuple[str, str]], kept: Sequence[str]) -> None:
    clash = taken.get(_folded(name))
    if clash is None:
        return
    same = "exists already"
    if clash[0] != name:
        how = "by case" if clash[0].casefold() == name.casefold() else "in how its accents are encoded"
        same = f"differs only {how} from {clash[0]!r}"
    where = "" if clash[0] in kept or "source" not in clash[1] else " (not even one that is left out)"
    raise PromptError(f"the new column {name!r} {same}, {clash[1]}{where}; choose another name for into")
