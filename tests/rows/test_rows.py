"""From a batch to requests, and from answers to columns: length and order kept, whatever the rows hold."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.errors import PromptError
from corpusmill.exchange import Completion, clean_text, read_completion
from corpusmill.fingerprint import Fingerprint
from corpusmill.prompts.ask import Ask
from corpusmill.prompts.fields import is_blank
from corpusmill.prompts.prompt import Rendered
from corpusmill.prompts.template import unclosed
from corpusmill.rows.columns import Filling, new_fields, outcome_type
from corpusmill.rows.judge import Answer, is_empty, judge, next_ceiling, repeats, response_field
from corpusmill.rows.render import Renderer

ASK = Ask("Name the topic of: {text}", into="topic")


def completion(content: object, *, reason: str | None = "stop", **message: object) -> Completion:
    """Make an answer with one choice."""
    return choices([{"index": 0, "finish_reason": reason, "message": {"content": content, **message}}])


def choices(made: list[dict[str, Any]]) -> Completion:
    """Make an answer with several choices."""
    return read_completion(
        json.dumps({"model": "m", "choices": made, "usage": {"completion_tokens": 3}}).encode()
    )


def outcome_of(answer: Answer, prompt: Ask = ASK) -> tuple[str, object, str | None]:
    """Judge one answer; give status, value and error."""
    outcome, value = judge(prompt, ("row",), answer, b"k" * 20, cleaned=False, cut=False)
    return outcome.status, value, outcome.error


texts = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(rows=st.lists(texts, max_size=30))
def test_rendering_keeps_length_and_order(rows: list[str | None]) -> None:
    """Each row has its place: a request that ends with its own text, or none when it is blank."""
    batch = pa.RecordBatch.from_pydict({"text": pa.array(rows, pa.string())})
    asked = Renderer(ASK, identity="i").ask(batch)
    assert len(asked.keys) == len(asked.ceilings) == len(asked.values) == len(rows)
    for place, row in enumerate(rows):
        if row is None or is_blank(clean_text(row)):
            assert asked.keys[place] is None
        else:
            assert asked.keys[place] is not None
            content = asked.rendered(place).messages[-1]["content"]
            assert content == "Name the topic of: " + row.replace("\0", "\ufffd")


@given(
    rows=st.lists(texts, max_size=30),
    before=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}")),
    after=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}")),
    system=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    cap=st.none() | st.integers(1, 100),
)
def test_keys_told_from_texts_are_those_of_the_requests(
    rows: list[str | None], before: str, after: str, system: str | None, cap: int | None
) -> None:
    """Whether a request is made or only its text is hashed into a frame, its key and its ceiling are the same."""
    prompt = Ask(f"{before}{{text}}{after}", into="x", system=system, max_tokens=cap, temperature=0.5)
    batch = pa.RecordBatch.from_pydict({"text": pa.array(rows, pa.string())})
    asked = Renderer(prompt, identity="i").ask(batch)
    fingerprint = Fingerprint("i", prompt.parameters)
    for place, key in enumerate(asked.keys):
        made = prompt.render(asked.values[place])
        assert isinstance(made, Rendered | None)
        assert key == (None if made is None else fingerprint.key(made.messages, made.vary))
        assert made is None or asked.ceilings[place] == made.ceiling


@given(rows=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9), max_size=20))
def test_columns_keep_length_and_order(rows: list[str]) -> None:
    """What is filled in comes out at the same place, as the declared types."""
    prompt = Ask("{text}", into="out", returns={"reasoning": "why", "usage.completion_tokens": "tokens"})
    filling = Filling(prompt, telemetry=True)
    for row in rows:
        answer = Answer(completion(row, reasoning=f"because {row}"))
        outcome, value = judge(prompt, (row,), answer, b"k" * 20, cleaned=False, cut=False)
        filling.add(outcome, value, answer.completion)
    table = pa.Table.from_arrays(filling.arrays(), schema=pa.schema(new_fields(prompt, telemetry=True)))
    table.validate(full=True)
    kept = [row for row in rows if not is_blank(clean_text(row))]
    assert [text for text in table["out"].to_pylist() if text is not None] == [
        row.replace("\0", "\ufffd") for row in kept
    ]
    assert table["why"].to_pylist() == [f"because {row}".replace("\0", "\ufffd") for row in rows]
    assert table["tokens"].to_pylist() == [3] * len(rows)


@pytest.mark.parametrize(
    "kept", ["zero\u200dwidth", "\u202eright to left", "a\r\nb", "e\u0301", "İ ß ŉ", "\u2028\u0085"]
)
def test_only_nul_and_surrogates_are_touched(kept: str) -> None:
    """Joiners, directional marks, line ends and decomposed letters survive."""
    assert clean_text(kept) == kept


@pytest.mark.parametrize(
    ("template", "row", "asked"),
    [
        ("{text}", "{other} {0} %s {{x}}", "{other} {0} %s {{x}}"),
        ('{"json": {text}, "n": {}}', "t", '{"json": t, "n": {}}'),
        ("{ text } {text!r} {text:>9} {text}", "t", "{ text } {text!r} {text:>9} t"),
        ("{{text}}", "t", "{t}"),
        ("{% raw %}{text}{# c #}", "{{ 1+1 }}", "{% raw %}{{ 1+1 }}{# c #}"),
        ("Keep {literal:name}, not {text}", "{literal:t}", "Keep {name}, not {literal:t}"),
        ("{literal:text}{text}{literal:text}", "t", "{text}t{text}"),
        ("{literal:Question?} {literal:column:text} {text}", "t", "{Question?} {column:text} t"),
        ("{{column:text}}", "{column:text}", "{{column:text}}"),
        (
            '{column: text} {column:"a"} {column:} {column: 1, {text}',
            "t",
            '{column: text} {column:"a"} {column:} {column: 1, t',
        ),
        ("{{literal:doc.text}} {literal:2nd Name}: {text}", "t", "{{doc.text}} {2nd Name}: t"),
        ('{literal: "a"} {literal:"a"} {literal:} {text}', "t", '{literal: "a"} {literal:"a"} {literal:} t'),
        ('{text}: {"a": {"b": 1}} {{}} {0}', "t", 't: {"a": {"b": 1}} {{}} {0}'),
    ],
)
def test_a_placeholder_is_a_column_in_braces_and_nothing_else_is(template: str, row: str, asked: str) -> None:
    """Other braces are literal, and the row's own text is never looked into; whatever way the request is made."""
    batch = pa.RecordBatch.from_pydict({"text": [row], "more": ["m"]})
    alone = Renderer(Ask(template, into="x", system="{literal:a}"), identity="i").ask(batch).rendered(0)
    assert alone.messages == ({"role": "system", "content": "{a}"}, {"role": "user", "content": asked})
    beside = Renderer(Ask(f"{template} {{more}}", into="x"), identity="i").ask(batch).rendered(0)
    assert beside.messages == [{"role": "user", "content": f"{asked} m"}]


@pytest.mark.parametrize("template", ["no column at all", "{}", "{0}", "{ text }", "{literal:text}"])
def test_a_template_without_a_column_is_refused(template: str) -> None:
    """Every row would ask the same."""
    with pytest.raises(PromptError, match="names no column"):
        Ask(template, into="x")


@pytest.mark.parametrize(
    ("template", "hint"),
    [
        ("Name\n  { text }!", r" \('\{ text \}' at line 2, character 3 is text; write \{text\}\)$"),
        ("{text!r}", r" \('\{text!r\}' at line 1, character 1 is text; write \{text\}\)$"),
        (
            "Of {Text Column}",
            r" \('\{Text Column\}' at line 1, character 4 is text; write \{column:Text Column\} for the column\)$",
        ),
        ("Of {doc.text", r" \('\{doc\.text' at line 1, character 4 is not closed; write \{doc\.text\}\)$"),
        (
            "Of {2024}",
            r" \('\{2024\}' at line 1, character 4 is text; write \{column:2024\} for the column\)$",
        ),
        (
            '{column: "A b"}',
            r" \('\{column: \"A b\"\}' at .* is text; write \{column:A b\} for the column\)$",
        ),
        ("Of {column:A b", r" \('\{column:' at line 1, character 4 is not closed; write \{column:name\}\)$"),
        ("text}", r"where the row's text belongs$"),
        ('{"a": {"b": 1}, c}', r"where the row's text belongs$"),
        ("{literal:text}", r"where the row's text belongs$"),
    ],
)
def test_what_looks_like_a_placeholder_and_is_none_is_pointed_at(template: str, hint: str) -> None:
    """Where no column is named otherwise."""
    with pytest.raises(PromptError, match=hint):
        Ask(template, into="x")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{text", [("text", "line 1, character 1")]),
        ("{a} and\n{{b}} and {doc.b, {c}", [("doc.b", "line 2, character 11")]),
        ("{text {a}", [("text", "line 1, character 1")]),
        ('{text and {"a": 1} {b', [("text", "line 1, character 1"), ("b", "line 1, character 20")]),
        ('{label: "a {b", n: 1}', [("b", "line 1, character 12")]),
        ('say "{text" and "}"', [("text", "line 1, character 6")]),
        ('{return name; // "{" opens\n}', []),
        ('{text: "}", n: "a{1}b"} {text}', []),
        ('{text\n: 5"}', []),
        ("{a} { text", []),
        ("{a} {", []),
        ('{a} {"n": 1', []),
        ("{a} }{", []),
        ("{a} {1", []),
    ],
)
def test_braces_before_a_name_that_are_not_closed_are_found(text: str, found: list[tuple[str, str]]) -> None:
    """What a brace in quotes opens or closes lies in the quotes too."""
    assert list(unclosed(text)) == found


@pytest.mark.parametrize(
    "template",
    [
        "{a} { text",
        "{a} {",
        '{a} {"n": 1',
        "{a} }{",
        "{a} {1",
        '{a} {label: "a {b", n: 1}',
        '{a} {return name; // "{" opens\n}',
        "{a} {unknown",
    ],
)
def test_an_open_brace_is_text(template: str) -> None:
    """Half a JSON document may be what the model is to complete; where a column is meant the plan refuses it."""
    batch = pa.RecordBatch.from_pydict({"a": ["t"]})
    rendered = Renderer(Ask(template, into="x"), identity="i").ask(batch).rendered(0)
    assert rendered.messages[0]["content"] == template.replace("{a}", "t")


def test_blank_in_all_named_columns_is_skipped_and_in_some_is_not() -> None:
    """A row is skipped only when it has nothing to say."""
    batch = pa.RecordBatch.from_pydict({"a": ["x", " ", None], "b": [None, "\t", ""]})
    asked = Renderer(Ask("{a} and {b}", into="x"), identity="i").ask(batch)
    assert [key is None for key in asked.keys] == [False, True, True]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (completion("fine"), "completed"),
        (completion("half", reason="length"), "truncated"),
        (completion(None, reason="length"), "truncated"),
        (completion("no", reason="content_filter"), "filtered"),
        (completion(None, reason="content_filter"), "filtered"),
        (completion("?", reason="whatever"), "invalid"),
        (completion("?", reason=None), "invalid"),
        (completion(""), "failed"),
        (completion(" \n"), "failed"),
        (completion(None, reasoning="long thoughts"), "failed"),
        (completion(None, reason="tool_calls", tool_calls=[{"function": {"name": "f"}}]), "completed"),
        (completion(None, tool_calls=[{"function": {"name": "f"}}]), "completed"),
        (completion(None, reason="tool_calls"), "failed"),
        (completion("", reason="eos"), "failed"),
        (completion("\u200b\ufeff"), "failed"),
        (completion("fine", reason="eos_token"), "completed"),
        (completion("fine", reason="STOP"), "completed"),
        (completion("half", reason="MAX_TOKENS"), "truncated"),
        (completion("half", reason="max_output_tokens"), "truncated"),
        (completion(None, refusal="I will not."), "refused"),
        (completion(None, refusal=" "), "failed"),
        (completion("fine", refusal="I will not."), "completed"),
        (completion(None, reason="length", refusal="I will n"), "truncated"),
    ],
)
def test_how_an_answer_ended_decides_its_status(answer: Completion, status: str) -> None:
    """Only a known good ending with something in it is completed."""
    assert outcome_of(Answer(answer))[0] == status


def test_a_failure_is_data() -> None:
    """No answer is a null beside a reason."""
    assert outcome_of(Answer(error="the reason")) == ("failed", None, "the reason")


def test_with_several_choices_the_status_is_the_worst_and_the_value_that_of_choice_0() -> None:
    """One cut choice makes the row truncated; the list of all is a column of its own."""
    made = choices(
        [
            {"index": 1, "finish_reason": "length", "message": {"content": "second"}},
            {"index": 0, "finish_reason": "stop", "message": {"content": "first"}},
        ]
    )
    assert outcome_of(Answer(made))[:2] == ("truncated", "first")
    assert response_field(made.document(), "choices") == ["first", "second"]


def test_a_refusal_in_its_own_field_is_the_error() -> None:
    """Whatever the prompt is, also where several choices were asked for."""
    declined = completion(None, refusal="I will not.")
    assert outcome_of(Answer(declined)) == ("refused", None, "the model refused: I will not.")
    message = {"content": None, "refusal": "I will not."}
    several = choices([{"index": index, "finish_reason": "stop", "message": message} for index in (0, 1)])
    assert outcome_of(Answer(several)) == ("refused", None, "the model refused: I will not.")


@pytest.mark.parametrize(
    ("second", "status", "error"),
    [
        ({"finish_reason": "eos", "message": {"content": ""}}, "failed", "(choice 1)"),
        ({"finish_reason": ["stop"], "message": {"content": "b"}}, "invalid", "['stop'] is not known"),
        ({"finish_reason": "STOP", "message": {"content": "b"}}, "completed", None),
        ({"finish_reason": "stop", "message": "none"}, "failed", "(choice 1)"),
        ({"finish_reason": "stop", "message": {"tool_calls": [{}]}}, "completed", None),
        ({"finish_reason": "max_output_tokens", "message": {"content": "b"}}, "truncated", "ceiling"),
    ],
)
def test_each_of_several_choices_is_judged_by_its_own_ending(
    second: dict[str, Any], status: str, error: str | None
) -> None:
    """The same endings count as for a single one, in whatever type the server writes them."""
    first = {"finish_reason": "stop", "message": {"content": "a"}}
    found = outcome_of(Answer(choices([first, "no object", second])))  # type: ignore[list-item]
    assert found[:2] == (status, "a")
    assert (error or "") in (found[2] or "")


def test_only_an_answer_that_says_nothing_is_empty() -> None:
    """A call of a tool and a refusal say something; several choices are not looked into."""
    assert is_empty(completion(" \u200b"))
    assert is_empty(completion(None, reason="EOS"))
    for something in (
        completion("a"),
        completion(None, reason="length"),
        completion(None, tool_calls=[{}]),
        completion(None, refusal="no"),
        choices([{"finish_reason": "stop", "message": {}}] * 2),
    ):
        assert not is_empty(something)


def test_an_answer_with_nul_is_cleaned_and_flagged() -> None:
    """NUL breaks readers downstream; the note says that it was there."""
    outcome, value = judge(ASK, ("row",), Answer(completion("a\0b")), b"k" * 20, cleaned=False, cut=False)
    assert value == "a\ufffdb"
    assert outcome.notes == ("output_cleaned",)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ({"ceiling": 100, "highest": 1_000, "context": None, "raised": 0}, 400),
        ({"ceiling": 400, "highest": 1_000, "context": None, "raised": 1}, 1_000),
        ({"ceiling": 1_000, "highest": 1_000, "context": None, "raised": 2}, None),
        ({"ceiling": 100, "highest": None, "context": None, "raised": 0}, None),
        ({"ceiling": None, "highest": 1_000, "context": None, "raised": 0}, None),
        ({"ceiling": 100, "highest": 1_000, "context": 250, "raised": 0}, 200),
        ({"ceiling": 100, "highest": 1_000, "context": 150, "raised": 0}, None),
    ],
)
def test_a_cut_answer_climbs_the_ladder_only_as_far_as_it_helps(
    made: dict[str, Any], expected: int | None
) -> None:
    """Fourfold, up to the highest and to what the context leaves."""
    body = {"choices": [{"index": 0, "finish_reason": "length", "message": {"content": "abc"}}]}
    usage = {"prompt_tokens": 50, "completion_tokens": 100}
    cut = read_completion(json.dumps({**body, "usage": usage}).encode())
    assert next_ceiling(cut, **made) == expected


def test_a_repeating_answer_is_raised_once_and_no_more() -> None:
    """A model that only repeats itself fills any ceiling."""
    looping = completion("ha " * 400, reason="length")
    assert repeats(looping.content or "")
    assert not repeats("".join(chr(97 + number * number % 23) for number in range(900)) + "end")
    terms = {"ceiling": 100, "highest": 10_000, "context": None}
    assert next_ceiling(looping, **terms, raised=0) == 400
    assert next_ceiling(looping, **terms, raised=1) is None


def test_the_outcome_has_the_documented_fields() -> None:
    """The struct of the outcome column, without and with telemetry."""
    plain = [
        "status",
        "error",
        "finish_reason",
        "model",
        "request_key",
        "prompt_tokens",
        "completion_tokens",
        "notes",
    ]
    assert [field.name for field in outcome_type(telemetry=False)] == plain
    more = ["attempts", "seconds", "origin", "request_id"]
    assert [field.name for field in outcome_type(telemetry=True)] == plain + more
