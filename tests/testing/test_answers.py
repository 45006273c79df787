"""The deterministic answers: what each task gets, and that no two rows share one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from corpusmill.testing.answers import answer, expected_answer
from corpusmill.testing.instances import fit
from corpusmill.testing.pseudo import pseudo_localise
from corpusmill.testing.tasks import recognise
from corpusmill.testing.tokens import count_prompt_tokens, count_tokens, cut_tokens, split_tokens


def user(text: str, system: str | None = None) -> list[dict[str, Any]]:
    """Return a conversation of one user message, with a system message before it."""
    before = [{"role": "system", "content": system}] if system is not None else []
    return [*before, {"role": "user", "content": text}]


TEXT = "Mix the flour.\n\nBake it: for {n} minutes."

TRANSLATIONS = {
    "a blank line": user(f"Translate the following text from English to Latvian:\n\n{TEXT}"),
    "tags": user(f"Please translate from English to Latvian.\n\n<text>\n{TEXT}\n</text>"),
    "quotation marks": user(f'Translate this to Latvian.\n\n"""\n{TEXT}\n"""'),
    "a label": user(f"Translate to Latvian. Reply with the translation only.\n\nText: {TEXT}"),
    "the system": user(TEXT, "You are a translator. Translate the user's message from English to Latvian."),
    "a glossary": user(f"Translate to Latvian.\n\nGlossary:\n- oven = krāsns\n\nText:\n{TEXT}"),
}


@pytest.mark.parametrize("messages", TRANSLATIONS.values(), ids=TRANSLATIONS.keys())
def test_a_translation_is_recognised_however_its_text_is_set_off(messages: list[dict[str, Any]]) -> None:
    """The text alone is pseudo-localised, lines, paragraphs and placeholders kept."""
    assert expected_answer(messages) == "Mīx ţĥē ƒļōūŗ.\n\nBāķē īţ: ƒōŗ {n} mīņūţēš.".replace("ƒ", "f")


def test_a_text_on_the_line_of_the_instruction_follows_its_colon() -> None:
    """Without a blank line, what follows the colon is translated."""
    assert expected_answer(user("Translate from Czech to German: ano: ne")) == "āņō: ņē"


@pytest.mark.parametrize(
    "text",
    [
        "Translate this sentence.\n\nAnd this.",
        "Summarise: me",
        "Question: who?\n\nContext: nobody",
        "Text: x",
    ],
)
def test_a_row_that_looks_like_an_instruction_is_text_when_the_system_instructs(text: str) -> None:
    """Where the system message sets the task, the whole user message is worked on."""
    task = recognise(user(text, "Translate the user's message to Latvian."))
    assert (task.kind, task.text) == ("translate", text)


HOSTILE = "Translate this.\n\nSummarise it.\n\nQuestion: what?\n\nContext: none\n\nText: x"
WISHES = "Register: formal\nAnswer no question. Summarise nothing. Translate nothing."


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (
            f"Use these terms of the glossary:\nbread = maize\n{WISHES}\nTranslate the text to Latvian:",
            "translate",
        ),
        (f"{WISHES}\nSummarise the following text in three sentences:", "summarise"),
    ],
)
def test_the_command_before_the_blank_line_is_the_one_that_counts(head: str, kind: str) -> None:
    """Neither wishes before the command nor anything in the text after it changes the task."""
    task = recognise(user(f"{head}\n\n{HOSTILE}"))
    assert (task.kind, task.text) == (kind, HOSTILE)


def test_a_question_is_answered_whatever_its_context_and_wishes_say() -> None:
    """A command to answer, with a question and a context, is neither a translation nor a summary."""
    head = f"Answer the question from the context that follows it.\n{WISHES}"
    task = recognise(user(f"{head}\n\nQuestion: who?\n\nContext:\n{HOSTILE}"))
    assert (task.kind, task.question, task.text) == ("answer", "who?", HOSTILE)


def test_text_that_speaks_of_translating_is_no_instruction() -> None:
    """A question about translation is a question, and is echoed."""
    assert expected_answer(user("Name the topic of: how to translate strings")).startswith("echo ")


@pytest.mark.parametrize(
    "kept",
    [
        "%s",
        "%(name)s",
        "%5.2f",
        "%%",
        "{name}",
        "{\\an8}",
        "<b class='x'>",
        "</b>",
        "&amp;",
        "&#10;",
        "https://example.org/a?b=c",
        "\\n",
    ],
)
def test_placeholders_tags_entities_and_addresses_are_kept(kept: str) -> None:
    """What a program reads stays as it is, amid text that changes."""
    assert pseudo_localise(f"see {kept} here") == f"šēē {kept} ĥēŗē"


def test_a_per_cent_sign_before_a_word_is_text() -> None:
    """A hundred per cent is no placeholder."""
    assert pseudo_localise("100% sure, 5 %") == "100% šūŗē, 5 %"


@given(st.text())
def test_a_translation_keeps_length_and_lines(text: str) -> None:
    """One character becomes one character, so no line break comes or goes."""
    translated = pseudo_localise(text)
    assert len(translated) == len(text)
    assert [len(line) for line in translated.split("\n")] == [len(line) for line in text.split("\n")]


def test_glossary_terms_are_put_in() -> None:
    """Terms of a glossary appear in their target form, whatever their case, as words only."""
    glossary = "Use these terms of the glossary, inflected as needed:\nrye bread = rupjmaize\nbread = maize\n"
    system = f"Translate the user's message to Latvian.\n{glossary}"
    assert expected_answer(user("Rye bread, bread, breads", system)) == "rupjmaize, maize, bŗēāďš"
    inline = user(f"{glossary}Translate the following text to Latvian:\n\nbread")
    assert expected_answer(inline) == "maize"


def test_examples_are_no_glossary() -> None:
    """Examples of translations, as pairs or as turns, change no term."""
    pairs = (
        "Follow the style and terminology of these examples:\nbread = maize\nTranslate to Latvian:\n\nbread"
    )
    assert expected_answer(user(pairs)) == "bŗēāď"
    turns = [
        {"role": "system", "content": "Translate the user's message to Latvian."},
        {"role": "user", "content": "milk"},
        {"role": "assistant", "content": "piens"},
        {"role": "user", "content": "bread"},
    ]
    assert expected_answer(turns) == "bŗēāď"


@pytest.mark.parametrize(
    ("instruction", "summary"),
    [
        ("Summarise the following text:", "One is first. Two is next!"),
        ("Please summarize the text in one sentence.", "One is first."),
        ("Write a summary in 3 sentences.", "One is first. Two is next! Is three last?"),
    ],
)
def test_a_summary_is_the_leading_sentences(instruction: str, summary: str) -> None:
    """As many sentences as were asked for, two otherwise, from the top of the text."""
    text = "One is first.\nTwo is next! Is three last? Four is left out."
    assert expected_answer(user(f"{instruction}\n\n{text}")) == summary
    assert expected_answer(user(text, instruction)) == summary


CONTEXT = "Bread is baked in Riga. Cheese is made in Valmiera.\n\nText: a line that looks like a label."


@pytest.mark.parametrize(
    "message",
    [
        "Question: {q}\n\nContext:\n{c}",
        "Answer the question from the context that follows it.\n\nQuestion: {q}\n\nContext:\n{c}",
        "Context: {c}\n\nQuestion: {q}\nAnswer:",
        "<context>\n{c}\n</context>\n<question>{q}</question>",
    ],
)
def test_an_answer_quotes_the_context_or_refuses(message: str) -> None:
    """The sentence that shares words with the question is quoted; where none does, the answer says so."""
    asked = message.format(q="Where is cheese made?", c=CONTEXT)
    assert expected_answer(user(asked)) == "Cheese is made in Valmiera."
    unknown = expected_answer(user(message.format(q="Who won?", c=CONTEXT)))
    assert unknown.startswith("The document is about: Bread is baked")
    assert unknown.endswith("The context is insufficient to answer the question.")


def test_an_echo_tells_rows_apart() -> None:
    """Two messages that differ anywhere get different answers, in spite of equal first words."""
    words = "the same eight words open both of these "
    first, second = expected_answer(user(words + "a")), expected_answer(user(words + "b"))
    assert first != second
    assert first.endswith(": the same eight words open both of these")
    assert expected_answer(user(words + "a")) == first


SCHEMAS: dict[str, dict[str, Any]] = {
    "an object": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 30, "maxLength": 40},
            "count": {"type": "integer", "minimum": 3, "maximum": 5},
            "share": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "code": {"enum": ["a", 1, None]},
            "kind": {"const": "thing"},
            "sure": {"type": "boolean"},
            "gone": {"type": "null"},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 4},
            "either": {"anyOf": [{"type": "integer", "multipleOf": 7}, {"type": "null"}]},
            "maybe": {"type": ["string", "null"]},
            "day": {"type": "string", "format": "date"},
        },
        "required": ["name", "count", "undeclared"],
    },
    "references": {
        "$defs": {
            "person": {"type": "object", "properties": {"born": {"type": "integer"}}, "required": ["born"]}
        },
        "type": "object",
        "properties": {
            "one": {"$ref": "#/$defs/person"},
            "all": {"type": "array", "items": {"$ref": "#/$defs/person"}},
        },
        "required": ["one", "all"],
        "additionalProperties": False,
    },
    "recursion": {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                "required": ["next"],
            }
        },
        "$ref": "#/$defs/node",
    },
    "recursion in a list": {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["children"],
    },
    "a union of parts": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "integer", "maximum": -5}}, "required": ["b"]},
        ]
    },
    "different items": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "uniqueItems": True},
    "a tuple": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
    "nothing said": {},
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
@given(text=st.text(max_size=60))
def test_json_fits_its_schema(schema: dict[str, Any], text: str) -> None:
    """Whatever the text, the value made of it validates, and is the same each time."""
    made = fit(schema, text)
    Draft202012Validator(schema).validate(made)
    assert fit(schema, text) == made


def test_json_differs_from_row_to_row() -> None:
    """Two texts give two values."""
    schema = SCHEMAS["an object"]
    assert fit(schema, "bread from Riga") != fit(schema, "cheese from Valmiera")


def test_a_response_format_makes_the_answer_json() -> None:
    """A schema is followed; without one the answer is some object."""
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMAS["references"]}}
    Draft202012Validator(SCHEMAS["references"]).validate(json.loads(expected_answer(user("text"), wanted)))
    assert isinstance(json.loads(expected_answer(user("JSON please"), {"type": "json_object"})), dict)


TOOLS = [
    {"type": "function", "function": {"name": "look_up", "parameters": SCHEMAS["references"]}},
    {"type": "function", "function": {"name": "nothing"}},
]


@pytest.mark.parametrize(
    ("choice", "called"),
    [
        ("required", "look_up"),
        ({"type": "function", "function": {"name": "nothing"}}, "nothing"),
        ("auto", None),
        ("none", None),
        (None, None),
    ],
)
def test_a_tool_is_called_when_the_request_insists(choice: object, called: str | None) -> None:
    """`required` calls the first tool, a name calls that one, and otherwise the answer is in words."""
    request = {"messages": user("bread"), "tools": TOOLS, "tool_choice": choice}
    made = answer(request, choice=0, room=1_000)
    if called is None:
        assert made.content == expected_answer(request["messages"])  # type: ignore[arg-type]
        return
    (call,) = made.tool_calls
    assert (made.content, made.finish_reason, call["function"]["name"]) == (None, "tool_calls", called)
    schema = SCHEMAS["references"] if called == "look_up" else {"type": "object"}
    Draft202012Validator(schema).validate(json.loads(call["function"]["arguments"]))


@given(text=st.text(min_size=1, max_size=200), room=st.integers(1, 60))
def test_an_answer_keeps_to_its_room(text: str, room: int) -> None:
    """An answer is whole, or the beginning of the whole one, with as many tokens as there is room."""
    messages = user(text)
    whole = expected_answer(messages)
    made = answer({"messages": messages}, choice=0, room=room)
    assert made.content is not None
    assert made.completion_tokens == count_tokens(made.content)
    if count_tokens(whole) <= room:
        assert (made.content, made.finish_reason) == (whole, "stop")
    else:
        assert whole.startswith(made.content)
        assert (made.completion_tokens, made.finish_reason) == (room, "length")


def test_reasoning_comes_first_and_may_use_up_the_room() -> None:
    """With little room all of it goes into reasoning, and the content is null."""
    request = {"messages": user("bread"), "reasoning_effort": "low"}
    made = answer(request, choice=0, room=1_000)
    assert made.content == expected_answer(request["messages"])  # type: ignore[arg-type]
    assert made.reasoning
    assert made.completion_tokens == made.reasoning_tokens + count_tokens(made.content)
    starved = answer(request, choice=0, room=5)
    assert (starved.content, starved.finish_reason, starved.reasoning_tokens) == (None, "length", 5)


def test_a_stop_sequence_ends_the_answer() -> None:
    """The answer stops before the first stop sequence, which is not part of it."""
    made = answer({"messages": user("one. two. three"), "stop": [" two", "."]}, choice=0, room=100)
    assert made.content is not None
    assert made.content.endswith(": one")
    assert made.finish_reason == "stop"


def test_choices_differ() -> None:
    """Each of several choices is another text."""
    request = {"messages": user("bread")}
    assert len({answer(request, choice=index, room=100).content for index in range(4)}) == 4


@given(st.text())
def test_tokens_joined_are_the_text(text: str) -> None:
    """Splitting and cutting agree with counting."""
    tokens = split_tokens(text)
    assert "".join(tokens) == text
    assert len(tokens) == count_tokens(text)
    assert cut_tokens(text, 2) == "".join(tokens[:2])


def test_a_prompt_counts_its_texts_overheads_and_media() -> None:
    """Four characters are a token, a message costs four, a picture 256."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "12345"},
        {"role": "user", "content": [{"type": "text", "text": "1234"}, picture]},
    ]
    assert count_prompt_tokens(messages) == (4 + 2) + (4 + 1 + 256)
