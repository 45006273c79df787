from __future__ import annotations

import math
import pickle
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow as pa
import pydantic
import pytest

from corpusmill.errors import PromptError
from corpusmill.exchange import Completion, read_completion
from corpusmill.prompts.extract import Extract
from corpusmill.prompts.prompt import Judgement, Prompt
from corpusmill.testing.answers import expected_answer

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: dict[str, Any] = {
    "title": "Order form",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "code": {"type": "string"},
        "price": {"type": ["number", "null"]},
        "paid": {"type": "boolean"},
        "kind": {"enum": ["a", "b", None]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "buyer": {"anyOf": [{"$ref": "#/$defs/buyer"}, {"type": "null"}]},
        "more": {},
    },
    "required": ["id"],
    "$defs": {"buyer": {"type": "object", "properties": {"name": {"type": "string"}}}},
}


def struct(members: dict[str, pa.DataType]) -> pa.DataType:
    """An Arrow struct with these members."""
    return pa.struct(list(members.items()))


def answered(content: str | None) -> Completion:
    """A completion with this content."""
    body = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    return read_completion(msgspec.json.encode(body))


def judged(content: str | None, schema: Any = SCHEMA, given: str = "text") -> Judgement:
    """The judgement of this content; a value must go into an Arrow array of the stated type."""
    prompt = Extract("t", "u", schema=schema)
    judgement = prompt.judge([given], answered(content))
    if judgement.status == "completed":
        pa.array([judgement.value, None], type=prompt.value_type)
    return judgement


def test_it_is_a_prompt_and_sends_the_schema() -> None:
    """The schema goes out as response_format, under a name that servers take."""
    prompt = Extract("t", "u", schema=SCHEMA)
    assert isinstance(prompt, Prompt)
    assert prompt.parameters == {
        "temperature": 0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "Order_form", "schema": SCHEMA, "strict": True},
        },
    }


def test_the_fake_endpoint_gives_what_fits() -> None:
    """An answer of the fake endpoint is a completed row."""
    prompt = Extract("t", "u", schema=SCHEMA)
    rendered = prompt.render(["An order."])
    assert rendered is not None
    content = expected_answer(list(rendered.messages), prompt.parameters["response_format"])
    assert prompt.judge(["An order."], answered(content)).status == "completed"


def test_the_schema_becomes_an_arrow_type() -> None:
    """Objects, lists, enumerations, nullable and untyped members each have their type."""
    assert Extract("t", "u", schema=SCHEMA).value_type == struct(
        {
            "id": pa.int64(),
            "code": pa.string(),
            "price": pa.float64(),
            "paid": pa.bool_(),
            "kind": pa.string(),
            "tags": pa.list_(pa.string()),
            "buyer": struct({"name": pa.string()}),
            "more": pa.string(),
        }
    )


def test_values_keep_their_exactness() -> None:
    """Integers above 2^53, leading zeros and untyped fractions arrive digit by digit."""
    judgement = judged('{"id": 9007199254740993, "code": "007", "more": {"x": 0.10000000000000000001}}')
    assert judgement.value["id"] == 9007199254740993
    assert judgement.value["code"] == "007"
    assert judgement.value["more"] == '{"x":0.10000000000000000001}'
    assert judgement.value["price"] is None


def test_decimals_are_exact_and_what_does_not_fit_is_invalid() -> None:
    """A Pydantic Decimal and a decimal format become decimal128, and nothing is rounded."""

    class Bill(pydantic.BaseModel):
        total: Decimal
        kind: Literal["a", "b"] = "a"
        note: str | None = None

    prompt = Extract("t", "u", schema=Bill)
    assert prompt.value_type == struct(
        {"total": pa.decimal128(38, 18), "kind": pa.string(), "note": pa.string()}
    )
    assert judged('{"total": 0.1}', Bill).value["total"] == Decimal("0.1")
    assert judged('{"total": "12.50"}', Bill).status == "invalid"
    cents = {"type": "number", "format": "decimal", "multipleOf": 0.01}
    assert Extract("t", "u", schema=cents).value_type == pa.decimal128(38, 2)
    assert judged("0.3", cents).value == Decimal("0.3")
    assert judged("0.305", cents).status == "invalid"
    narrow = {"type": "string", "format": "decimal", "multipleOf": 0.01}
    assert judged('"1.255"', narrow).status == "invalid"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"id": NaN}', "NaN"),
        ('{"id": 1, "price": Infinity}', "Infinity"),
        ('{"id": 1, "price": 1e999}', "too large"),
        ('{"id": 9223372036854775808}', "64 bits"),
        ('{"id": "1"}', r"\$\.id"),
        ("{}", "'id' is a required property"),
        ('{"id": 1} or so', "no JSON"),
        ('Here it is: {"id": 1}', "no JSON"),
        ('{"id": 1', "no JSON"),
        ("[" * 100_000, "no JSON|nested"),
        ('{"id": ' + "1" * 5000 + "}", "no JSON|64 bits"),
        ('{"id": 1, "kind": "c"}', r"\$\.kind"),
    ],
)
def test_an_answer_that_does_not_fit_is_invalid_with_its_text(content: str, reason: str) -> None:
    """The error is the first violation and the raw answer."""
    judgement = judged(content)
    assert (judgement.status, judgement.value) == ("invalid", None)
    assert judgement.error is not None
    head, _, raw = judgement.error.partition("; the answer was: ")
    assert pytest.raises(AssertionError, match=reason).matches(AssertionError(head))
    assert raw == content[:2000]


@pytest.mark.parametrize(
    ("content", "notes"),
    [
        ('{"id": 1}', ()),
        ('\ufeff{"id": 1}\n', ()),
        ('{"id": 1.0}', ()),
        ('```json\n{"id": 1}\n```', ("fence_removed",)),
        ('<think>an id</think>{"id": 1}', ("reasoning_leak",)),
        ('{"result": {"id": 1}}', ("json_wrapper_removed",)),
        ('"{\\"id\\": 1}"', ("json_wrapper_removed",)),
        ('{"id": 2, "id": 1}', ("duplicate_keys id",)),
    ],
)
def test_what_wraps_the_whole_answer_is_taken_off_and_noted(content: str, notes: tuple[str, ...]) -> None:
    """A fence, reasoning, an object round the object, and the later of two equal keys."""
    judgement = judged(content)
    assert judgement.status == "completed"
    assert judgement.value["id"] == 1
    assert judgement.notes == notes


def test_reasoning_alone_fails() -> None:
    """What is left of it is no data."""
    assert judged("<think>Hm</think>").status == "failed"


def test_escapes_for_what_no_file_can_hold_are_replaced_and_noted() -> None:
    """In members, in names, and in JSON within a string."""
    for content in (r'{"id": 1, "code": "a\ud800b"}', r'"{\"id\": 1, \"code\": \"a\\u0000b\"}"'):
        judgement = judged(content)
        assert judgement.status == "completed"
        assert judgement.value["code"] == "a\ufffdb"
    assert judged(r'{"id": 1, "code": "a\ud800b"}').notes == ("output_cleaned",)
    assert "\ud800" not in (judged(r'{"\ud800": {"id": []}, "id": "x"}').error or "")


@pytest.mark.parametrize("content", ["[" * 400 + "]" * 400, '{"id": 1e99999999999999999999}'])
def test_what_no_reader_takes_is_invalid(content: str) -> None:
    """Nesting without end, and exponents without end."""
    recursive = {
        "type": ["array", "object"],
        "items": {"$ref": "#"},
        "properties": {"id": {"type": "number"}},
    }
    assert judged(content, schema=recursive).status == "invalid"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "objekt"}, "no valid JSON schema, at type: 'objekt' is no type; .*did you mean 'object'"),
        (
            {"properties": {"a": {"type": "strin"}}},
            "at properties/a/type: 'strin' is no type; known are string, number, integer, boolean, array, object, null",
        ),
        (
            {"type": ["string", "nul"]},
            r"\['string', 'nul'\] is no type; known are .*null \(or a list of them\)$",
        ),
        (
            {"properties": {"a": "string"}},
            'at properties/a: \'string\' is no schema; write {"type": "string"}',
        ),
        ({"required": "a"}, "at required: 'a' is not of type 'array'"),
        ({"$ref": "https://example.org/schema.json"}, "not followed"),
        ({"properties": {"a": {"type": "string", "pattern": "("}}}, "pattern"),
        ({"maximum": math.nan}, "no JSON"),
        (5, "must be a JSON schema"),
        ("nowhere.json", r"nowhere\.json"),
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused(schema: Any, message: str) -> None:
    """A wrong type, a reference to elsewhere, a broken pattern: before anything is sent."""
    with pytest.raises(PromptError, match=message):
        Extract("t", "u", schema=schema)


def test_a_schema_that_contains_itself_becomes_json_text() -> None:
    """A tree has no Arrow type, so its branches are JSON."""
    tree = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "parts": {"type": "array", "items": {"$ref": "#"}}},
    }
    assert Extract("t", "u", schema=tree).value_type == struct(
        {"name": pa.string(), "parts": pa.list_(pa.string())}
    )
    value = judged('{"name": "a", "parts": [{"name": "b", "parts": []}]}', tree).value
    assert value == {"name": "a", "parts": ['{"name":"b","parts":[]}']}


def test_endpoints_without_json_schema_get_it_in_words(tmp_path: Path) -> None:
    """The schema of a file is written into the instruction, and response_format says as much as it may."""
    path = tmp_path / "schema.json"
    path.write_bytes(msgspec.json.encode(SCHEMA))
    for enforced, stated in (("json_object", {"type": "json_object"}), ("wording", None)):
        prompt = Extract("t", "u", schema=path, enforced=enforced)  # type: ignore[arg-type]
        rendered = prompt.render(["x"])
        assert rendered is not None
        assert "Order form" in rendered.messages[0]["content"]
        assert prompt.parameters.get("response_format") == stated


def test_a_prompt_can_be_sent_to_another_process() -> None:
    """A pickled prompt asks and judges the same."""
    prompt = Extract("t", "u", schema=SCHEMA)
    copied = pickle.loads(pickle.dumps(prompt))  # noqa: S301 - our own bytes
    assert copied == prompt
    assert copied.judge(["x"], answered('{"id": 1}')).value["id"] == 1
