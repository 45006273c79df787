from __future__ import annotations

from typing import Any

import msgspec
import pytest

from corpusmill.errors import PromptError
from corpusmill.exchange import Completion, read_completion
from corpusmill.prompts.answer import Answer, Column
from corpusmill.prompts.prompt import Prompt
from corpusmill.prompts.summarise import Summarise
from corpusmill.testing.answers import expected_answer


def answered(content: str | None) -> Completion:
    """A completion with this content."""
    body = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    return read_completion(msgspec.json.encode(body))


TEXT = "Cats sleep all day. Dogs run about. Birds sing at dawn."


def test_they_are_prompts() -> None:
    """Both have all that the protocol asks for."""
    assert isinstance(Summarise("t", "u"), Prompt)
    assert isinstance(Answer("Why?", Column("c"), "u"), Prompt)


@pytest.mark.parametrize("wording", ["chat", "tildeopen"])
def test_the_fake_endpoint_summarises_at_the_length_asked_for(wording: str) -> None:
    """A summary of one sentence is the first one."""
    rendered = Summarise("t", "u", length="one sentence", wording=wording).render([TEXT])
    assert rendered is not None
    assert expected_answer(list(rendered.messages)) == "Cats sleep all day."


def test_a_number_as_length_is_one_of_words() -> None:
    """An integer becomes a number of words, and zero is none."""
    rendered = Summarise("t", "u", length=30, language="lv", instruction="Mind the cats.").render([TEXT])
    assert rendered is not None
    instruction = rendered.messages[0]["content"]
    assert "at most 30 words" in instruction
    assert "Latvian" in instruction
    assert "Mind the cats." in instruction
    with pytest.raises(PromptError, match=r"summarise\.length is 0"):
        Summarise("t", "u", length=0)


@pytest.mark.parametrize("wording", ["chat", "tildeopen"])
def test_the_fake_endpoint_answers_from_the_context(wording: str) -> None:
    """The question and the context arrive where they belong, whichever is a column."""
    for prompt, values in (
        (Answer("When do birds sing?", Column("c"), "u", wording=wording), [TEXT]),
        (Answer({"column": "q"}, TEXT, "u", wording=wording), ["When do birds sing?"]),
        (Answer(Column("q"), Column("c"), "u", wording=wording), ["When do birds sing?", TEXT]),
    ):
        rendered = prompt.render(values)
        assert rendered is not None
        assert "Birds sing at dawn." in expected_answer(list(rendered.messages))


def test_a_row_without_question_or_context_is_skipped() -> None:
    """There is nothing to ask when either side is blank."""
    prompt = Answer(Column("q"), Column("c"), "u")
    assert prompt.render(["Why?", " "]) is None
    assert prompt.render([None, TEXT]) is None


@pytest.mark.parametrize(
    ("question", "context", "message"),
    [
        ("Why?", "Because.", "every row would ask the same"),
        ({"col": "q"}, Column("c"), "answer.question"),
        ("", Column("c"), "answer.question"),
        (None, Column("c"), "answer.question is missing"),
        (Column(""), Column("c"), "answer.question.column"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(question: Any, context: Any, message: str) -> None:
    """The error names the side and what it may be."""
    with pytest.raises(PromptError, match=message):
        Answer(question, context, "u")


def test_content_covers_every_field() -> None:
    """Prompts that differ in any field have different contents."""
    variants: list[dict[str, Any]] = [
        {},
        {"instruction": "a"},
        {"language": "lv"},
        {"wording": "tildeopen"},
        {"max_tokens": 10},
        {"returns": {"reasoning": "r"}},
        {"vary_by": "v"},
        {"temperature": 1},
    ]
    summaries = [Summarise("t", "u", **variant).content() for variant in [*variants, {"length": 5}]]
    answers = [Answer("Why?", Column("c"), "u", **variant).content() for variant in variants]
    answers += [Answer(Column("Why"), Column("c"), "u").content(), Answer("How?", Column("c"), "u").content()]
    contents = {msgspec.json.encode(content) for content in summaries + answers}
    assert len(contents) == len(summaries) + len(answers)
