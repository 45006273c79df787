"""`Extract`: typed data out of a text column, by a JSON schema that the answer has to satisfy."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from corpusmill.errors import PromptError
from corpusmill.prompts.checks.json_answer import NotJsonError, parse_json
from corpusmill.prompts.checks.schema import SchemaError, checked_schema, violation
from corpusmill.prompts.checks.wrapping import without_reasoning
from corpusmill.prompts.fields import (
    check_ceiling,
    check_column,
    check_text,
    is_blank,
    set_fields,
)
from corpusmill.prompts.judging import SHOWN, nothing_left, refused
from corpusmill.prompts.prompt import Judgement, Rendered
from corpusmill.prompts.shapes import DoesNotFitError, Shape, shape_of
from corpusmill.prompts.worded import Worded, shared_fields
from corpusmill.prompts.wording import Layout, read_wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from corpusmill.exchange import Completion
    from corpusmill.prompts.sampling import Sampling

Enforced = Literal["json_schema", "json_object", "wording"]

_ENFORCED: Final = ("json_schema", "json_object", "wording")
_NAMES: Final = frozenset({"text", "instruction", "schema"})


@dataclass(frozen=True, slots=True, init=False)
class Extract(Worded):
    """Extract data from a text column.

    `column` is read, `into` is filled with the Arrow type that the schema gives (see `shapes`). `schema` is
    a JSON schema, the path of a file that holds one, or a Pydantic model. `enforced` says who sees to it
    that the answer is JSON: the endpoint by the schema (`json_schema`, with `strict`), the endpoint without
    the schema (`json_object`), or the instruction alone (`wording`); in the last two the schema is written
    into the message.

    An answer is always validated here. One that is no JSON, violates the schema or cannot be held exactly
    is `invalid`, and `error` is the first violation, followed by the raw answer (2,000 characters of it).
    For the other arguments see `Translate`.
    """

    column: str
    schema: Mapping[str, Any]
    strict: bool
    enforced: Enforced
    _shape: Shape = field(repr=False, compare=False)
    _schema_text: str = field(repr=False, compare=False)

    def __init__(
        self,
        column: str,
        into: str,
        *,
        schema: Mapping[str, Any] | str | Path | type[Any],
        strict: bool = True,
        enforced: Enforced = "json_schema",
        instruction: str | None = None,
        wording: str | Path | Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        escalate_to: int | None = None,
        returns: Mapping[str, str] | None = None,
        vary_by: str | None = None,
        **sampling: Unpack[Sampling],
    ) -> None:
        """Read schema and wording; raise `PromptError` for what can never be asked or answered."""
        check_ceiling("extract", max_tokens, escalate_to)
        if enforced not in _ENFORCED:
            raise PromptError(f"extract.enforced is {enforced!r}; it must be one of {', '.join(_ENFORCED)}")
        if "response_format" in sampling:
            raise PromptError("extract.response_format is made from the schema; say enforced instead")
        described = _schema(schema)
        words = read_wording(wording, task="extract", names=_NAMES, needed=frozenset({"text"}))
        instruction = check_text("extract", "instruction", instruction)
        written = None if enforced == "json_schema" else json.dumps(described, ensure_ascii=False)
        if written is not None and "schema" not in words.names():
            raise PromptError(
                f"extract.enforced is {enforced!r}, and the wording has no place for {{schema}}"
            )
        layout = Layout(
            words, constants={"instruction": instruction, "schema": written}, by_row=frozenset({"text"})
        )
        column = check_column("extract", "column", column)
        shared = shared_fields(
            "extract",
            into=into,
            reads=(column,),
            instruction=instruction,
            wording=words,
            layout=layout,
            max_tokens=max_tokens,
            escalate_to=escalate_to,
            returns=returns,
            vary_by=vary_by,
            sampling=sampling,
        )
        parameters = shared["parameters"]
        if enforced == "json_schema":
            named = {"name": _name(described, into), "schema": described, "strict": strict}
            parameters["response_format"] = {"type": "json_schema", "json_schema": named}
        elif enforced == "json_object":
            parameters["response_format"] = {"type": "json_object"}
        set_fields(
            self,
            {
                **shared,
                "column": column,
                "schema": described,
                "strict": strict,
                "enforced": enforced,
                "_shape": shape_of(described),
                "_schema_text": json.dumps(described),
            },
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """No language is stated."""
        return ()

    @property
    def value_type(self) -> pa.DataType:
        """The Arrow type that the schema gives."""
        return self._shape.arrow()

    def content(self) -> dict[str, Any]:
        """Everything that the run key covers."""
        return {
            "prompt": "extract",
            "column": self.column,
            # The order of a schema's members reaches the model, so that it is content.
            "json_schema": self.schema,
            "strict": self.strict,
            "enforced": self.enforced,
            **self._shared_content(),
        }

    def render(self, values: Sequence[Any]) -> Rendered | None:
        """Ask for the data in the row's text; None when it is blank."""
        text: str | None = values[0]
        if text is None or is_blank(text):
            return None
        return self._filled({"text": text}, size=len(text), values=values)

    def judge(self, values: Sequence[Any], completion: Completion) -> Judgement:
        """Take a valid answer as a typed value; any other is `invalid`, `refused` or `failed`."""
        given: str = values[0] or ""
        raw = completion.content or ""
        text, notes = without_reasoning(raw, given)
        if is_blank(text):
            return nothing_left(notes)
        try:
            return self._read(text, raw, given, notes)
        except RecursionError:
            return _invalid("the answer is nested too deeply", raw, notes)

    def _read(self, text: str, raw: str, given: str, reasoned: tuple[str, ...]) -> Judgement:
        try:
            parsed, notes = parse_json(text)
        except NotJsonError as error:
            return refused(text, given=given) or _invalid(str(error), raw, reasoned)
        found = violation(self._schema_text, parsed)
        if found is not None:
            inner = _unwrapped(parsed, self.schema)
            if inner is None or violation(self._schema_text, inner[0]) is not None:
                return _invalid(found, raw, reasoned + notes)
            parsed = inner[0]
            notes += ("json_wrapper_removed",)
        try:
            value = self._shape.value(parsed)
        except DoesNotFitError as error:
            return _invalid(str(error), raw, reasoned + notes)
        return Judgement(status="completed", value=value, notes=reasoned + notes)


def _invalid(why: str, raw: str, notes: tuple[str, ...]) -> Judgement:
    return Judgement(status="invalid", error=f"{why}; the answer was: {raw[:SHOWN]}", notes=notes)


def _unwrapped(parsed: Any, schema: Mapping[str, Any]) -> tuple[Any] | None:
    """Look into an object with one member that the schema does not know, and into JSON within a string."""
    if isinstance(parsed, dict) and len(parsed) == 1:
        ((name, inner),) = parsed.items()
        properties = schema.get("properties")
        return None if isinstance(properties, Mapping) and name in properties else (inner,)
    if isinstance(parsed, str):
        try:
            return (parse_json(parsed)[0],)
        except NotJsonError:
            return None
    return None


def _schema(given: object) -> dict[str, Any]:
    if isinstance(given, str | Path):
        described = _from_file(Path(given))
    elif isinstance(given, type) and hasattr(given, "model_json_schema"):
        from corpusmill.prompts.model_schema import schema_of_model

        described = schema_of_model(given)
    else:
        described = given
    try:
        return checked_schema(described)
    except SchemaError as error:
        raise PromptError(f"extract.schema {error}") from error


def _from_file(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise PromptError(f"extract.schema {str(path)!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise PromptError(f"extract.schema {str(path)!r} is no JSON: {error}") from error


def _name(schema: Mapping[str, Any], into: str) -> str:
    # Servers take letters, digits, underscores and hyphens here, at most 64.
    title = schema.get("title")
    return re.sub(r"[^A-Za-z0-9_-]+", "_", title if isinstance(title, str) and title else into)[:64] or "data"
