"""The prompts of a job file: what each may say, and the classes that they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from corpusmill.errors import UsageError
from corpusmill.job.models import Model, Text
from corpusmill.job.yaml_text import plain

if TYPE_CHECKING:
    from corpusmill.prompts.prompt import Prompt

Pairs = dict[str, Any] | list[Any] | Text

Returns = Annotated[
    dict[str, Text] | None, Field(description="other response fields as columns: {path: column}")
]


class SamplingModel(Model):
    """Parameters of the request that any prompt may set; ranges are those of the endpoint."""

    temperature: float | None = Field(
        None, description="0 picks the likeliest token each time; `ask` alone sends none unless it is set"
    )
    top_p: float | None = Field(
        None, description="nucleus sampling: the share of probability that tokens are drawn from"
    )
    top_k: int | None = Field(None, description="how many of the likeliest tokens are drawn from")
    presence_penalty: float | None = Field(
        None, description="against tokens that have come already; ignored by SambaNova"
    )
    frequency_penalty: float | None = Field(
        None, description="against tokens that have come often; ignored by SambaNova"
    )
    do_sample: bool | None = Field(None, description="whether tokens are drawn at all")
    stop: Text | list[Text] | None = Field(None, description="texts at which the answer ends")
    response_format: dict[str, Any] | None = Field(
        None, description="the form of the answer, as the endpoint takes it; `extract` makes its own"
    )
    reasoning_effort: Text | None = Field(None, description="how much a reasoning model thinks first")
    tool_choice: Text | dict[str, Any] | None = Field(None, description="which tool is called")
    parallel_tool_calls: bool | None = Field(None, description="whether several tools may be called at once")
    tools: list[dict[str, Any]] | dict[str, Any] | None = Field(
        None, description="a list of tools, or {column: name} for a column that holds it"
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="variables of the model's chat template"
    )
    logprobs: bool | None = Field(None, description="return the probabilities of tokens; see `returns`")
    top_logprobs: int | None = Field(
        None, description="how many alternatives of each token are returned with them"
    )
    n: int | None = Field(None, description="how many answers to draw; the column takes the first")
    logit_bias: dict[str, float] | None = Field(
        None, description="what is added to the scores of tokens, by their number"
    )
    seed: int | None = Field(None, description="where drawing begins, for endpoints that take it")
    extra: dict[str, Any] | None = Field(None, description="further request fields, sent as they are")
    max_tokens: int | None = Field(None, description="a cap on the answer; what reaches it is truncated")
    escalate_to: int | None = Field(None, description="how far max_tokens may be raised for a cut answer")
    vary_by: Text | None = Field(
        None, description="a column whose value makes equal texts different requests"
    )
    returns: Returns = None


class AskModel(SamplingModel):
    """A free question; exactly one of `template` and `messages` says what is asked."""

    into: Text = Field(description="the new column")
    template: Text | None = Field(
        None,
        description="the user message; {column} and {column.path}, of texts, numbers or dates, are filled in, "
        "{column:any name} too, {literal:name} is the text {name}, other braces are text",
    )
    system: Text | None = Field(None, description="a system message before it")
    messages: list[dict[str, Any]] | dict[str, Any] | None = Field(
        None, description="templated messages with roles, or {column: name} for a column of message lists"
    )


class WordedModel(SamplingModel):
    """What the prompts have in common whose messages are worded by the package."""

    into: Text = Field(description="the new column")
    instruction: Text | None = Field(None, description="what else the model should mind")
    wording: Text | dict[str, Any] | None = Field(
        None, description="the messages: a set (chat, tildeopen), a file, or the messages themselves"
    )


class TranslateModel(WordedModel):
    """A translation, line by line and term by term as the text has it."""

    column: Text = Field(description="the column of texts, such as text or doc.body")
    to: Text = Field(description="target language, a code or an English name")
    from_: Text | None = Field(
        None, alias="from", description="source language; the model finds it out by default"
    )
    glossary: Pairs | None = Field(
        None, description="terms and what they are called: a CSV, TSV or Parquet file, or {term: translation}"
    )
    examples: Pairs | None = Field(
        None, description="a few texts with their translations: a file as above, or {text: translation}"
    )
    register_: Text | None = Field(None, alias="register", description="how formal: formal, informal, …")


class SummariseModel(WordedModel):
    """A summary, in the language of the text unless told otherwise."""

    column: Text = Field(description="the column of texts, such as text or doc.body")
    length: int | Text | None = Field(
        None, union_mode="left_to_right", description="the most words, or a text such as three sentences"
    )
    language: Text | None = Field(None, description="language of the summary, a code or an English name")


class ColumnModel(Model):
    """The texts of a column."""

    column: Text


class AnswerModel(WordedModel):
    """The answer to a question, from a context; at least one of the two is a column."""

    question: Text | ColumnModel = Field(description="one text for all rows, or {column: name}")
    context: Text | ColumnModel = Field(description="one text for all rows, or {column: name}")
    language: Text | None = Field(None, description="language of the answer; that of the question by default")


class ExtractModel(WordedModel):
    """Typed data out of a text; what does not fit the schema is invalid."""

    column: Text = Field(description="the column of texts, such as text or doc.body")
    schema_: Text | dict[str, Any] = Field(
        alias="schema", description="a JSON schema, or the path of a file that holds one"
    )
    strict: bool = Field(default=True, description="tell the endpoint to keep to the schema strictly")
    enforced: Literal["json_schema", "json_object", "wording"] = Field(
        "json_schema",
        description="who sees to it that the answer is JSON: the endpoint by the schema, the endpoint, the wording",
    )


class PromptModel(Model):
    """A prompt: exactly one of these."""

    ask: AskModel | None = Field(None, description="a free question made from a template")
    translate: TranslateModel | None = Field(None, description="a translation")
    summarise: SummariseModel | None = Field(None, description="a summary")
    answer: AnswerModel | None = Field(None, description="the answer to a question")
    extract: ExtractModel | None = Field(None, description="typed data, by a JSON schema")


def build_prompt(model: PromptModel, *, wording: str | None = None) -> Prompt:
    """Make the prompt that a model stands for; `wording` is that of prompts that have one and do not say which."""
    given = [name for name in PromptModel.model_fields if getattr(model, name) is not None]
    if len(given) != 1:
        known = ", ".join(PromptModel.model_fields)
        raise UsageError(f"exactly one of {known} is needed; {' and '.join(given) or 'none'} is given")
    fields = plain(getattr(model, given[0]).model_dump(exclude_none=True))
    if wording is not None and given[0] != "ask":
        fields.setdefault("wording", wording)
    match given[0]:
        case "translate":
            from corpusmill.prompts.translate import Translate

            return Translate(**_renamed(fields, register_="register"))
        case "summarise":
            from corpusmill.prompts.summarise import Summarise

            return Summarise(**fields)
        case "answer":
            from corpusmill.prompts.answer import Answer

            return Answer(**fields)
        case "extract":
            from corpusmill.prompts.extract import Extract

            return Extract(**_renamed(fields, schema_="schema"))
        case _:
            from corpusmill.prompts.ask import Ask

            return Ask(fields.pop("template", None), **fields)


def _renamed(fields: dict[str, Any], **names: str) -> dict[str, Any]:
    """Give fields the names of the constructor, where a model may not have them."""
    return {names.get(name, name): value for name, value in fields.items()}
