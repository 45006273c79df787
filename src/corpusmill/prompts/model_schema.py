"""The JSON schema of a Pydantic model, in which a `Decimal` stays one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic.json_schema import GenerateJsonSchema

if TYPE_CHECKING:
    from pydantic_core import core_schema

_BOUNDS: Final = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}


class _ExactDecimals(GenerateJsonSchema):
    def decimal_schema(self, schema: core_schema.DecimalSchema) -> dict[str, Any]:
        """A number marked as decimal, with its step; Pydantic itself says number or text."""
        described: dict[str, Any] = {"type": "number", "format": "decimal"}
        places = schema.get("decimal_places")
        if places is not None:
            described["multipleOf"] = 10.0**-places if places else 1
        for theirs, ours in _BOUNDS.items():
            bound = schema.get(theirs)
            if bound is not None:
                described[ours] = float(bound)  # type: ignore[arg-type]
        return described


def schema_of_model(model: Any) -> object:
    """Return the JSON schema that an answer must satisfy to become this Pydantic model."""
    return model.model_json_schema(schema_generator=_ExactDecimals)
