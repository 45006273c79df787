"""`Ask`: a free question made from a template, or from templated messages, or from a column of messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from corpusmill.errors import PromptError
from corpusmill.prompts.conversation import Conversation, conversation_column, conversation_of
from corpusmill.prompts.fields import (
    check_ceiling,
    check_column,
    check_into,
    check_returns,
    is_blank,
    set_fields,
)
from corpusmill.prompts.prompt import Input, Judgement, Plain, Rendered
from corpusmill.prompts.sampling import Sampling, wire_parameters
from corpusmill.prompts.template import near_miss

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from corpusmill.exchange import Completion
    from corpusmill.prompts.prompt import Unaskable


@dataclass(frozen=True, slots=True, init=False)
class Ask:
    """Ask the model something about each row.

    Exactly one of `template` and `messages` says what. A template such as `"Name the topic of: {text}"` becomes one
    user message, the filled template and nothing more, after `system` where that is given. `messages` is a list of
    `{"role": …, "content": template or parts}`, or `{"column": name}` for a column that holds whole message lists.
    Columns of texts are filled in as they are, those of numbers, booleans, dates and times as `corpusmill.rows.scalars`
    writes them. `{column:any name}` is a column whose name has more than letters, digits, `_`, `-` and dots, and
    `{literal:name}` is the text `{name}`.

    `into` names the new column (string). Only the parameters that are given are sent. `max_tokens` is a cap; what
    reaches it is `truncated`, unless `escalate_to` says how far it may be raised. `vary_by` names a column whose
    value makes requests with the same text different ones. `returns` maps other response fields to columns.
    """

    into: str
    template: str | None
    system: str | None
    messages: Sequence[Mapping[str, Any]] | Mapping[str, Any] | None
    max_tokens: int | None
    escalate_to: int | None
    returns: Mapping[str, str]
    vary_by: str | None
    parameters: Mapping[str, Any]
    inputs: tuple[Input, ...]
    tools_column: str | None
    """The column from which each row brings its own tools."""
    media: frozenset[str]
    """Which of `image`, `audio` and `video` a request may carry."""
    plain: Plain | None = field(repr=False, compare=False)
    """What is asked of the text of the one column, where nothing else comes into it."""
    _conversation: Conversation = field(repr=False, compare=False)

    def __init__(
        self,
        template: str | None = None,
        into: str = "",
        *,
        system: str | None = None,
        messages: Sequence[Mapping[str, Any]] | Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        escalate_to: int | None = None,
        returns: Mapping[str, str] | None = None,
        vary_by: str | None = None,
        **sampling: Unpack[Sampling],
    ) -> None:
        """Parse the templates; raise `PromptError` for what can never be asked."""
        check_ceiling("ask", max_tokens, escalate_to)
        if escalate_to is not None and max_tokens is None:
            raise PromptError(f"ask.escalate_to is {escalate_to}, and there is no max_tokens to raise")
        into = check_into("ask", into)
        if (template is None) == (messages is None):
            raise PromptError(
                f"the ask prompt into {into!r} needs either a template or messages, and not both"
            )
        tools: Any = sampling.get("tools")
        tools_column: str | None = None
        if isinstance(tools, dict):
            tools_column = conversation_column(tools, "tools")
            sampling = {**sampling}
            del sampling["tools"]
        if template is not None:
            written: list[Mapping[str, Any]] = (
                [] if system is None else [{"role": "system", "content": system}]
            )
            written.append({"role": "user", "content": template})
            conversation = conversation_of(written, tools_column=tools_column)
        else:
            assert messages is not None
            if system is not None:
                raise PromptError("system is given beside messages; write it as the first of the messages")
            conversation = conversation_of(messages, tools_column=tools_column)
        if not conversation.inputs:
            raise PromptError(
                f"the ask prompt into {into!r} names no column, so every row would ask the same; "
                f"write {{column}} where the row's text belongs{near_miss(template or '')}"
            )
        varied = (
            () if vary_by is None else (Input(path=check_column("ask", "vary_by", vary_by), scalars=True),)
        )
        plain = (
            None if varied or conversation.plain is None else conversation.plain._replace(ceiling=max_tokens)
        )
        set_fields(
            self,
            {
                "into": into,
                "template": template,
                "system": system,
                "messages": messages,
                "max_tokens": max_tokens,
                "escalate_to": escalate_to,
                "returns": check_returns("ask", returns),
                "vary_by": vary_by,
                "parameters": wire_parameters(sampling),
                "inputs": conversation.inputs + varied,
                "tools_column": tools_column,
                "media": conversation.media,
                "plain": plain,
                "_conversation": conversation,
            },
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """No language is stated."""
        return ()

    @property
    def value_type(self) -> pa.DataType:
        """Text."""
        import pyarrow as pa

        return pa.string()

    def content(self) -> dict[str, Any]:
        """Everything that the run key covers."""
        return {
            "prompt": "ask",
            "into": self.into,
            "template": self.template,
            "system": self.system,
            "messages": self.messages,
            "max_tokens": self.max_tokens,
            "escalate_to": self.escalate_to,
            "returns": dict(self.returns),
            "vary_by": self.vary_by,
            "parameters": dict(self.parameters),
            "tools_column": self.tools_column,
        }

    def render(self, values: Sequence[Any]) -> Rendered | Unaskable | None:
        """Fill the templates; None when all that the row would say is blank."""
        if self.plain is None:
            vary = None if self.vary_by is None else values[-1] or ""
            return self._conversation.render(values, ceiling=self.max_tokens, vary=vary)
        text = values[0]
        if is_blank(text):
            return None
        fixed, role, before, after, ceiling = self.plain
        return Rendered(
            messages=(*fixed, {"role": role, "content": f"{before}{text}{after}"}), ceiling=ceiling
        )

    def judge(self, values: Sequence[Any], completion: Completion) -> Judgement:  # noqa: ARG002 - the protocol's shape
        """Take the text as it is."""
        return Judgement(status="completed", value=completion.content)
