"""A column may be called anything: from the table that has it to the table that is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill import (
    Answer,
    Ask,
    Column,
    Extract,
    OpenAICompatible,
    SinkSpec,
    SourceSpec,
    Summarise,
    Translate,
    enrich,
    read,
)
from corpusmill.errors import PromptError, SinkError
from corpusmill.lineage.columns import column_lineage
from corpusmill.plan import check_clashes
from corpusmill.rows.columns import new_fields
from corpusmill.rows.render import Renderer

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.prompts.prompt import Prompt
    from corpusmill.testing import FakeEndpoint

NFC, NFD = "gr\u00f6\u00dfe", "gro\u0308\u00dfe"
NAMES = [
    "Text Body (orig.)",
    "2024",
    "text/en",
    "Question?",
    NFD,
    "a.b",
    "\u0928\u093e\u092e",
    "=x%,\n'\"",
    "{x}",
    " ",
]


def run(
    folder: Path, endpoint: FakeEndpoint, *prompts: Any, store: Path | None = None, **sink: Any
) -> pa.Table:
    """Write a table of all these names to Parquet, enrich it, and read what comes out."""
    columns: dict[str, Any] = {name: [f"text {name}", "other"] for name in NAMES}
    columns["a"] = [{"b": "inner", "c (d)": "deep"}] * 2
    pq.write_table(pa.table(columns), folder / "in.parquet")
    report = enrich(
        SourceSpec(
            path=folder / "in.parquet",
            columns=[*NAMES[:4], NFC, *NAMES[5:], "a"],
            filter=[[NFC, "!=", "other"], ["Text Body (orig.)", "is not null"]],
        ),
        SinkSpec(path=folder / "out", **sink),
        *prompts,
        endpoint=OpenAICompatible(endpoint.base_url, "any"),
        store=f"sqlite:///{(store or folder) / 'store.db'}",
    )
    assert report.outcomes == {"completed": len(prompts)}
    return read(folder / "out", partition=sink.get("partition")).to_table()


@pytest.mark.parametrize("name", NAMES)
def test_every_prompt_takes_a_column_of_any_name(
    tmp_path: Path, fake_endpoint: FakeEndpoint, name: str
) -> None:
    """And fills one; a dot in either is no step into a struct."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    made = run(
        tmp_path,
        fake_endpoint,
        Translate(name, f"{name}.lv", to="lv", vary_by=name),
        Summarise(name, f"{name} (short)"),
        Answer(Column(name), "Because.", f"a.{name}"),
        Extract(name, f"{name}?", schema=schema),
        Ask(
            f"Of {{column:{name if '{' not in name and name.strip() else 'a.c (d)'}}}",
            f"a/{name}",
            vary_by=name,
        ),
        columns=[name],
    )
    new = [f"{name}.lv", f"{name} (short)", f"a.{name}", f"{name}?", f"a/{name}"]
    assert made.column_names == [name, *(column for one in new for column in (one, f"{one}_outcome"))]
    assert made[name].to_pylist() == [f"text {name}"]


@pytest.mark.parametrize(
    ("named", "sent"),
    [
        ("a.b", "dotted"),
        ("a.c (d)", "deep"),
        (NFC, "accents"),
        (NFD, "accents"),
        ("Question?", "asked"),
        ("2024", "7"),
    ],
)
def test_a_template_names_any_column(named: str, sent: str) -> None:
    """A name with a dot comes before a path into a struct; accents are found however they are encoded."""
    row = {"a.b": "dotted", "a": {"b": "x", "c (d)": "deep"}, NFD: "accents", "Question?": "asked", "2024": 7}
    asked = Renderer(Ask(f"Of {{column:{named}}}.", "out", system="{literal:2024}"), identity="i").ask(
        pa.RecordBatch.from_pylist([row])
    )
    assert [message["content"] for message in asked.rendered(0).messages] == ["{2024}", f"Of {sent}."]


def test_a_request_does_not_depend_on_how_the_accents_of_a_name_are_encoded(
    tmp_path: Path, fake_endpoint: FakeEndpoint
) -> None:
    """The second is answered from the store."""
    run(tmp_path, fake_endpoint, Translate(NFC, "out", to="lv"))
    (tmp_path / "again").mkdir()
    again = Translate(NFD, "out", to="lv")
    made = run(tmp_path / "again", fake_endpoint, again, store=tmp_path, columns=[NFC])
    assert made.column_names[:2] == [NFD, "out"]
    assert fake_endpoint.stats().requests == 1


def test_a_hive_key_may_have_any_name(tmp_path: Path, fake_endpoint: FakeEndpoint) -> None:
    """Unless the column is read, which is told by its real name."""
    made = run(
        tmp_path, fake_endpoint, Ask("{column:2024}", "out"), columns=[], partition={"Año (1/2)?": "a=b"}
    )
    assert made.column_names == ["out", "out_outcome"]
    with pytest.raises(SinkError, match="which is also a column that is read"):
        run(tmp_path, fake_endpoint, Ask(f"{{{NFC}}}", "out"), columns=[], partition={NFD: "x"})
    with pytest.raises(SinkError, match="which is also a column that is read"):
        run(tmp_path, fake_endpoint, Ask("{column:a.c (d)}", "out"), columns=[], partition={"a": "x"})


def test_columns_named_in_two_encodings_are_one(tmp_path: Path, fake_endpoint: FakeEndpoint) -> None:
    """Twice in the sink, and as a new column beside the old one."""
    with pytest.raises(SinkError, match="names a column twice"):
        run(tmp_path, fake_endpoint, Ask("{column:2024}", "out"), columns=[NFC, NFD])
    clashing = Ask("{text}", NFC)
    with pytest.raises(PromptError, match="differs only in how its accents are encoded from"):
        check_clashes(pa.schema({NFD: pa.string()}), [], [new_fields(clashing, telemetry=False)], [clashing])


def test_the_lineage_of_a_column_names_the_real_one() -> None:
    """Not the encoding of the prompt, nor a struct for a dot."""
    prompts: list[Prompt] = [Translate(NFC, "out", to="lv"), Ask("{column:Text Body (orig.)} {a.b}", "a.x")]
    origins = column_lineage(
        [NFD], [(prompt, [prompt.into]) for prompt in prompts], source=[NFD, "a.b", "a", "Text Body (orig.)"]
    )
    assert [(origin.column, origin.inputs) for origin in origins] == [
        (NFD, (NFD,)),
        ("out", (NFD,)),
        ("a.x", ("Text Body (orig.)", "a.b")),
    ]
