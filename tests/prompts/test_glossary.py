from __future__ import annotations

import pickle
import unicodedata
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from corpusmill.errors import PromptError
from corpusmill.prompts.examples import read_examples
from corpusmill.prompts.glossary import Glossary, read_glossary
from corpusmill.prompts.pairs import read_pairs

if TYPE_CHECKING:
    from pathlib import Path


def found(text: str, *terms: str) -> list[str]:
    """The source terms that a text contains."""
    return [source for source, _ in Glossary([(term, "x") for term in terms]).occurring(text)]


@pytest.mark.parametrize(
    ("text", "terms", "expected"),
    [
        (
            "New York Times in New York",
            ("New York", "New York Times", "York"),
            ["New York Times", "New York"],
        ),
        ("The pieces of a pie.", ("pie", "piece"), ["pie"]),
        ("apple\n pie", ("Apple  Pie",), ["Apple  Pie"]),
        ("İSTANBUL is large", ("istanbul", "large"), ["istanbul", "large"]),
        ("DIE STRASSE", ("Straße",), ["Straße"]),
        ("ŉ huis", ("ŉ huis",), ["ŉ huis"]),
        ("Use C++ (11), not C.", ("C++", "(11)", "C", "c+"), ["C++", "(11)", "C"]),
        ("a.b and axb", ("a.b", "a.*"), ["a.b"]),
        ('the "word" it\u2019s', ('"word"', "it's"), ['"word"', "it's"]),
        ("この契約書は契約です", ("契約", "契約書"), ["契約書", "契約"]),
        ("학교에서", ("학교",), ["학교"]),
        ("हिन्दी", ("हिन",), []),
        ("co\u00adoperate", ("cooperate",), ["cooperate"]),
        ("Hi {name}, <b>ask</b> at https://ask.org", ("name", "ask", "b"), ["ask"]),
        ("New {x} York", ("New York",), []),
        ("Hi {name}", ("{name}", "name"), ["{name}"]),
        ("nothing here", ("where",), []),
    ],
)
def test_terms_match_as_words_and_the_longest_first(
    text: str, terms: tuple[str, ...], expected: list[str]
) -> None:
    """Case, blanks, composition and regex characters do not matter; the order is the text's."""
    for form in ("NFC", "NFD"):
        assert found(unicodedata.normalize(form, text), *terms) == expected


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=8), st.data())
def test_a_term_that_stands_between_blanks_is_found(terms: list[str], data: st.DataObject) -> None:
    """Whatever characters a term is made of, it or a longer one is found in a text of terms."""
    readable = {}
    for term in terms:
        try:
            Glossary([(term, "x")])
        except PromptError:
            continue
        readable[term] = "x"
    if not readable:
        return
    try:
        glossary = Glossary(list(readable.items()))
    except PromptError:
        return
    chosen = data.draw(st.sampled_from(sorted(readable)))
    assert glossary.occurring(f"x {chosen} x")


def test_a_glossary_of_many_terms_finds_its_few(tmp_path: Path) -> None:
    """Of a hundred thousand terms in a file a row gets its own, in the order of the text."""
    path = tmp_path / "terms.tsv"
    path.write_text(
        "".join(f"term {number}\tvārds {number}\n" for number in range(100_000)), encoding="utf-8"
    )
    glossary = read_glossary(path, field="glossary")
    assert glossary is not None
    assert len(glossary) == 100_000
    assert glossary.occurring("Term 70000, then term 5.") == [
        ("term 70000", "vārds 70000"),
        ("term 5", "vārds 5"),
    ]
    assert pickle.loads(pickle.dumps(glossary)) == glossary  # noqa: S301 - our own bytes


def test_files_and_mappings_say_the_same(tmp_path: Path) -> None:
    """CSV, TSV, Parquet and a mapping, with and without a header, with a byte order mark, are one glossary."""
    (tmp_path / "a.csv").write_bytes('\ufeffsource,target\r\n"a ""b"", c",no\r\n007,1.50\r\n'.encode())
    (tmp_path / "b.tsv").write_bytes(b'a "b", c\tno\n\n007\t1.50\n')
    parquet.write_table(
        pa.table({"id": [1, 2], "target": ["no", "1.50"], "source": ['a "b", c', "007"]}),
        tmp_path / "c.parquet",
    )
    expected = (('a "b", c', "no"), ("007", "1.50"))
    for given_as in (
        tmp_path / "a.csv",
        tmp_path / "b.tsv",
        str(tmp_path / "c.parquet"),
        dict(expected),
        list(expected),
    ):
        assert read_pairs(given_as, field="glossary") == expected


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.csv", b"a,b\nonly one\n", r"line 2.*1 column"),
        ("a.tsv", b"a\tb\nc\t\n", r"line 2.*target is empty"),
        ("a.csv", b'a,b\n"c\n\n,d\n', r"line"),
        ("a.csv", b"a,b\n\xff,d\n", r"line 2.*UTF-8"),
        ("a.parquet", b"no parquet", r"a\.parquet"),
        ("a.xlsx", b"", r"must end in"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    """The error says which file and which line, and what is wrong with it."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(PromptError, match=message):
        read_pairs(tmp_path / name, field="glossary")


def test_a_missing_file_is_an_error() -> None:
    """A path that leads nowhere is named."""
    with pytest.raises(PromptError, match=r"nowhere\.csv"):
        read_glossary("nowhere.csv", field="glossary")


def test_two_terms_that_read_alike_must_agree() -> None:
    """Which of two targets a model should use cannot be known."""
    assert len(Glossary([("Cat", "kaķis"), ("cat", "kaķis")])) == 2
    with pytest.raises(PromptError, match="read alike"):
        Glossary([("Cat", "kaķis"), ("cat", "runcis")])
    with pytest.raises(PromptError, match="no visible character"):
        Glossary([("\u200b", "x")])


def test_examples_are_few() -> None:
    """A whole corpus given as examples is a mistake, as every request would carry it."""
    named: Any = [{"source": "a", "target": "b"}]
    three: Any = [("a", "b", "c")]
    assert read_examples(named, field="examples") == (("a", "b"),)
    with pytest.raises(PromptError, match="belong into a glossary"):
        read_examples([("a", "b")] * 65, field="examples")
    with pytest.raises(PromptError, match=r"examples\[0\]"):
        read_examples(three, field="examples")
