"""Numbers, booleans, dates, times and timestamps in templates: one text for each value, wherever it comes from."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill import Ask, OpenAICompatible, Translate, enrich
from corpusmill.plan import check_input
from corpusmill.prompts.prompt import Input
from corpusmill.rows.render import Renderer
from corpusmill.rows.text import Values, column_values

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.prompts.prompt import Prompt
    from corpusmill.testing import FakeEndpoint

SIGNED = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
UNITS: dict[Any, int] = {"s": 1, "ms": 1_000, "us": 1_000_000}


def written(column: pa.Array[Any]) -> Values:
    """Give the texts of one column."""
    batch = pa.RecordBatch.from_arrays([column], names=["it"])
    return column_values(batch, Input(path="it", scalars=True))


def keys(column: pa.Array[Any], template: str = "About {it}") -> list[bytes | None]:
    """Give the request keys of a column's rows."""
    batch = pa.RecordBatch.from_arrays([column], names=["it"])
    return Renderer(Ask(template, into="out"), identity="i").ask(batch).keys


@pytest.mark.parametrize(
    ("values", "type_", "texts"),
    [
        ([True, None, False], pa.bool_(), ["true", None, "false"]),
        ([-(2**63), None], pa.int64(), ["-9223372036854775808", None]),
        ([2**64 - 1], pa.uint64(), ["18446744073709551615"]),
        ([Decimal("19.90"), None, Decimal("-0.05")], pa.decimal128(6, 2), ["19.90", None, "-0.05"]),
        ([Decimal("0E-10")], pa.decimal128(12, 10), ["0.0000000000"]),
        ([Decimal("1.2E+3")], pa.decimal128(3, -2), ["1200"]),
        ([Decimal("1" * 38 + "." + "2" * 38)], pa.decimal256(76, 38), ["1" * 38 + "." + "2" * 38]),
        ([date(2026, 11, 30), None, date(33, 4, 3)], pa.date32(), ["2026-11-30", None, "0033-04-03"]),
        ([date(1969, 12, 31)], pa.date64(), ["1969-12-31"]),
        ([time(14, 5), None], pa.time32("s"), ["14:05:00", None]),
        ([time(23, 59, 59, 250_000)], pa.time32("ms"), ["23:59:59.25"]),
        ([time(0, 0, 0, 1)], pa.time64("ns"), ["00:00:00.000001"]),
        ([1], pa.timestamp("ns"), ["1970-01-01T00:00:00.000000001"]),
        ([-1], pa.timestamp("ns"), ["1969-12-31T23:59:59.999999999"]),
        (
            [datetime(2026, 11, 30, 14, 5), None],  # noqa: DTZ001 - without a zone
            pa.timestamp("s"),
            ["2026-11-30T14:05:00", None],
        ),
        (
            [0.1, 42.0, -0.0, 1e16, 1e-7, 1 / 3],
            pa.float64(),
            ["0.1", "42", "0", "1e+16", "1e-07", f"{1 / 3}"],
        ),
        ([math.nan, math.inf, -math.inf, None], pa.float64(), [None, "inf", "-inf", None]),
        ([0.1, 42.0, -0.0, math.nan, None], pa.float32(), ["0.1", "42", "0", None, None]),
    ],
    ids=str,
)
def test_each_kind_of_value_has_one_text(
    values: list[Any], type_: pa.DataType, texts: list[str | None]
) -> None:
    """Whole, sliced, and encoded as a dictionary."""
    column: pa.Array[Any] = pa.array(values, type_)
    assert written(column) == Values(texts)
    assert written(column.slice(1)) == Values(texts[1:])
    assert written(column.dictionary_encode()) == Values(texts)


@given(st.integers(-128, 127))
def test_an_integer_has_the_same_key_in_every_type_that_holds_it(number: int) -> None:
    """Of any width, as the float that pandas makes of it beside nulls, and as the text that it was cast to."""
    types = [*SIGNED, *(UNSIGNED if number >= 0 else ()), pa.float64(), pa.float32()]
    found = {tuple(keys(pa.array([number, None], pa.int64()).cast(type_))) for type_ in types}
    assert found == {tuple(keys(pa.array([str(number), None])))}


@given(st.floats(allow_nan=False), st.floats(allow_nan=False, width=32))
def test_a_float_is_read_back_from_its_text(wide: float, narrow: float) -> None:
    """At its own width, with as few digits as that takes."""
    (text,) = written(pa.array([wide])).items
    assert float(text) == wide
    (text,) = written(pa.array([narrow], pa.float32())).items
    assert pa.array([float(text)]).cast(pa.float32(), safe=False).to_pylist() == [narrow]
    assert len(Decimal(text).normalize().as_tuple().digits) <= 9


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_moment_has_the_same_text_in_every_unit_and_zone(moment: datetime) -> None:
    """A file that went through Spark holds the moment and no name of a zone; what has no zone is no moment."""
    whole = moment.replace(microsecond=0)
    seconds = (whole - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    texts = set()
    for unit, in_a_second in UNITS.items():
        for zone in ("UTC", "Europe/Riga", "no such zone"):
            stored: pa.Array[Any] = pa.array([seconds * in_a_second], pa.int64())
            texts.update(written(stored.view(pa.timestamp(unit, zone))).items)
    assert texts == {whole.isoformat()}
    naive = moment.replace(tzinfo=None)
    (text,) = written(pa.array([naive], pa.timestamp("us"))).items
    assert datetime.fromisoformat(text) == naive


@pytest.mark.parametrize(
    ("stored", "type_"),
    [
        (2**31 - 1, pa.date32()),
        (2**62, pa.date64()),
        (86_400, pa.time32("s")),
        (-1, pa.time64("us")),
        (2**62, pa.timestamp("s")),
        (2**62, pa.timestamp("us", "UTC")),
    ],
    ids=str,
)
def test_a_value_without_a_text_costs_its_own_row(stored: int, type_: pa.DataType) -> None:
    """The rows beside it are asked."""
    column = pa.array([stored, None, 60], pa.int64() if type_.bit_width == 64 else pa.int32()).view(type_)
    found = written(column)
    assert list(found.unreadable) == [0]
    assert "the value cannot be read" in found.unreadable[0]
    assert [key is None for key in keys(column)] == [True, True, False]
    assert [key is None for key in keys(column, "{it} of {it}")] == [True, True, False]


@pytest.mark.parametrize(
    "prompt", [Ask("{text}", into="out", vary_by="draw"), Translate("text", "out", to="lv", vary_by="draw")]
)
def test_the_number_of_a_draw_may_be_a_number(prompt: Prompt) -> None:
    """It is taken like the text of that number."""
    numbers = pa.RecordBatch.from_pydict({"text": ["a", "a", "a"], "draw": [1, 2, None]})
    texts = pa.RecordBatch.from_pydict({"text": ["a", "a", "a"], "draw": ["1", "2", None]})
    for wanted in prompt.inputs:
        check_input(numbers.schema, prompt, wanted)
    found = Renderer(prompt, identity="i").ask(numbers).keys
    assert len(set(found)) == 3
    assert found == Renderer(prompt, identity="i").ask(texts).keys


def test_a_corpus_of_scalars_is_asked_by_its_texts(tmp_path: Path, fake_endpoint: FakeEndpoint) -> None:
    """Whether a file holds values or what they were cast to, the store answers it; null is blank, as in text."""
    values = pa.table(
        {
            "id": pa.array([1, 2, None], pa.int16()),
            "price": pa.array([Decimal("19.90"), None, None], pa.decimal128(6, 2)),
            "day": pa.array([date(2026, 11, 30), date(2026, 12, 1), None]),
            "draw": pa.array([1, 2, 3]),
        }
    )
    texts = pa.table(
        {
            "id": ["1", "2", None],
            "price": ["19.90", None, ""],
            "day": ["2026-11-30", "2026-12-01", None],
            "draw": ["1", "2", "3"],
        }
    )
    prompt = Ask("{id} costs {price} on {day}", into="out", vary_by="draw")
    counts = []
    for name, table in (("values", values), ("texts", texts)):
        pq.write_table(table, tmp_path / f"{name}.parquet")
        report = enrich(
            tmp_path / f"{name}.parquet",
            tmp_path / name,
            prompt,
            endpoint=OpenAICompatible(fake_endpoint.base_url, "any"),
            store=f"sqlite:///{tmp_path / 'store.db'}",
        )
        counts.append((report.live, report.cached, report.skipped))
    assert counts == [(2, 0, 1), (0, 2, 1)]
