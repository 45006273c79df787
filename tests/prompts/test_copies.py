"""Prompts travel: to other processes, and into copies."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from corpusmill.errors import PromptError
from corpusmill.prompts.answer import Answer, Column
from corpusmill.prompts.ask import Ask
from corpusmill.prompts.extract import Extract
from corpusmill.prompts.prompt import Prompt
from corpusmill.prompts.summarise import Summarise
from corpusmill.prompts.translate import Translate
from corpusmill.rows.render import Renderer

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPTS: dict[str, Prompt] = {
    "ask": Ask("Name the topic of: {text}", into="out", system="Be short.", max_tokens=9),
    "ask with all": Ask(
        into="out",
        messages=[
            {"role": "system", "content": "Of {kind}:"},
            {
                "role": "user",
                "content": [{"text": "{text}"}, {"image": {"column": "picture"}}, {"type": "x"}],
            },
            {"role": "assistant", "content": None, "tool_calls": {"column": "calls"}, "weight": 1},
        ],
        tools={"column": "tools"},
        vary_by="kind",
    ),
    "ask a column": Ask(into="out", messages={"column": "messages"}),
    "translate": Translate(
        "text", "out", to="lv", from_="en", glossary={"cake": "kūka"}, examples=[("a", "b")], vary_by="kind"
    ),
    "summarise": Summarise("text", "out", length=9, language="de"),
    "answer": Answer("Who?", Column("text"), "out"),
    "extract": Extract("text", "out", schema={"type": "object", "properties": {"a": {"type": "integer"}}}),
}
BATCH = pa.RecordBatch.from_pydict(
    {
        "text": ["I like cake.", None, "\u200b"],
        "kind": ["a", "b", None],
        "picture": [b"\x89PNG\r\n\x1a\n" + b"0" * 20, None, None],
        "calls": ['[{"id": 1}]', None, None],
        "tools": ['[{"type": "function"}]', None, None],
        "messages": ['[{"role": "user", "content": "x"}]', " ", "\u200b"],
    }
)


def through_pickle(prompt: Prompt) -> Prompt:
    """Give what another process would get."""
    found: Prompt = pickle.loads(pickle.dumps(prompt))  # noqa: S301 - our own bytes
    return found


@pytest.mark.parametrize("again", [through_pickle, copy.deepcopy, copy.copy])
@pytest.mark.parametrize("name", PROMPTS)
def test_a_copy_asks_the_same(name: str, again: Callable[[Prompt], Prompt]) -> None:
    """The same content, the same requests, the same keys; and all of the protocol is there."""
    prompt = PROMPTS[name]
    made = again(prompt)
    assert isinstance(made, Prompt)
    assert made == prompt
    assert made.content() == prompt.content()
    assert (made.languages, made.media, made.tools_column) == (
        prompt.languages,
        prompt.media,
        prompt.tools_column,
    )
    before, after = (Renderer(one, identity="i").ask(BATCH) for one in (prompt, made))
    assert before.keys == after.keys
    assert before.keys[0] is not None
    assert before.rendered(0) == after.rendered(0)
    assert before.unaskable == after.unaskable == {}


@pytest.mark.parametrize("name", [name for name in PROMPTS if name != "ask with all"])
def test_a_cell_without_a_visible_sign_is_skipped_by_every_prompt(name: str) -> None:
    """Null, blanks and zero-width characters say nothing to anybody."""
    found = Renderer(PROMPTS[name], identity="i").ask(BATCH)
    assert found.keys[1:] == [None, None]
    assert found.unaskable == {}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": True}, r"ask\.max_tokens is True"),
        ({"max_tokens": 0}, r"ask\.max_tokens is 0"),
        ({"max_tokens": "9"}, r"ask\.max_tokens is '9'"),
        ({"max_tokens": 9, "escalate_to": 8}, r"ask\.escalate_to is 8"),
        ({"escalate_to": 8}, "no max_tokens to raise"),
        ({"max_tokens": 9, "escalate_to": True}, r"ask\.escalate_to is True"),
        ({"into": " "}, r"ask\.into is ' '"),
        ({"into": 5}, r"ask\.into is 5"),
        ({"vary_by": ""}, r"ask\.vary_by is ''"),
        ({"vary_by": 5}, r"ask\.vary_by is 5"),
        ({"returns": {"": "x"}}, r"ask\.returns maps ''"),
    ],
)
def test_what_ask_cannot_take_is_refused(fields: dict[str, Any], message: str) -> None:
    """By the same checks as for the other prompts: a truth value is no number."""
    with pytest.raises(PromptError, match=message):
        Ask("{text}", **{"into": "out", **fields})
