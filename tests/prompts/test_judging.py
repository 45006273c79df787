"""How the prompts judge whole answers."""

from __future__ import annotations

import msgspec

from corpusmill.exchange import Completion, read_completion
from corpusmill.prompts.answer import Answer, Column
from corpusmill.prompts.extract import Extract
from corpusmill.prompts.summarise import Summarise
from corpusmill.prompts.translate import Translate


def answered(content: str) -> Completion:
    """A completion with this content."""
    body = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    return read_completion(msgspec.json.encode(body))


def test_an_answer_is_kept_character_by_character() -> None:
    """Joiners, directional marks, CRLF, decomposed letters and outer blanks survive."""
    text = " נ\u200f\u200dא\r\nu\u0304\ufeff\u00a0\n"
    judged = Translate("t", "u", to="he").judge(["a\r\nb"], answered(text))
    assert judged.value == text


def test_a_finding_leaves_the_status_and_a_refusal_does_not() -> None:
    """What deviates is noted and completed; what declines has no value, and its text is in the error."""
    prompt = Translate("t", "u", to="lv", from_="en", glossary={"cake": "kūka"})
    noted = prompt.judge(["I like cake.\nYou?"], answered('"Man garšo torte."'))
    assert noted.status == "completed"
    assert noted.notes == ("quotes_added", "lines 2→1", "glossary_missing cake→kūka")
    declined = prompt.judge(["I like cake."], answered("Atvainojiet, es nevaru iztulkot šo tekstu."))
    assert (declined.status, declined.value) == ("refused", None)
    assert declined.error == "the model refused: Atvainojiet, es nevaru iztulkot šo tekstu."


def test_a_wrapping_is_taken_off_before_the_checks() -> None:
    """Reasoning and a fence are noted, and the lines within are what is compared."""
    judged = Translate("t", "u", to="lv").judge(["Hi"], answered("<think>\nHm.\n</think>\n```\nSveiki\n```"))
    assert judged.value == "Sveiki"
    assert judged.notes == ("reasoning_leak", "fence_removed")


TEXT = (
    "Die Bibliothek ist wegen Reparaturen bis Ende August geschlossen. "
    "Bücher können am Seiteneingang abgegeben werden."
)


def test_a_summary_is_in_the_language_of_its_text_or_the_one_asked_for() -> None:
    """Another language is noted; without a stated one the text's own counts."""
    english = answered("The library is closed until the end of August, and books are taken at the side.")
    german = answered("Die Bibliothek ist bis Ende August geschlossen, Bücher nimmt sie am Seiteneingang an.")
    assert Summarise("t", "u").judge([TEXT], german).notes == ()
    assert Summarise("t", "u").judge([TEXT], english).notes == ("language en expected de",)
    assert Summarise("t", "u", language="en").judge([TEXT], english).notes == ()
    assert Summarise("t", "u", language="en").judge([TEXT], german).notes == ("language de expected en",)


def test_an_informative_refusal_is_an_answer_and_a_plain_one_is_a_refusal() -> None:
    """That the context is insufficient is noted; that the model will not help is refused."""
    prompt = Answer("Wie hoch ist die Brücke, die über den Fluss führt?", Column("c"), "u")
    informative = (
        "Das Dokument handelt von einer Bibliothek. Der Kontext reicht nicht aus, um sie zu beantworten."
    )
    judged = prompt.judge([TEXT], answered(informative))
    assert (judged.status, judged.value) == ("completed", informative)
    assert judged.notes == ("context_insufficient",)
    assert (
        prompt.judge([TEXT], answered("I'm sorry, but I can't help with that request.")).status == "refused"
    )
    other = answered(
        "The document is about a library that is closed until August, and bridges are never mentioned."
    )
    assert "language en expected de" in prompt.judge([TEXT], other).notes


def test_a_refusal_to_extract_is_a_refusal_and_no_invalid_answer() -> None:
    """What is no JSON and declines is told apart from what is broken."""
    prompt = Extract("t", "u", schema={"type": "object", "properties": {"a": {"type": "integer"}}})
    assert (
        prompt.judge([TEXT], answered("I'm sorry, but I can't help with that request.")).status == "refused"
    )
    assert prompt.judge([TEXT], answered("The library is closed.")).status == "invalid"
