"""What TildeOpen-30b-64k can do, after its reference page.

Prompt and answer share 65,536 tokens. There is one choice, and there are no log probabilities; the content is plain
text, never JSON or a call of a tool, so that asking for them is refused before anything is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from corpusmill.endpoints.capabilities import Capabilities
from corpusmill.endpoints.messages import check_messages
from corpusmill.endpoints.parameters import check_parameters
from corpusmill.errors import PromptError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from corpusmill.exchange import Message

CONTEXT_TOKENS: Final = 65_536

_CODES = """
sq bs bg hr cs da nl en et fi fr de hu is ga it ltg lv lt mk mt cnr no pl pt ro ru sr sk sl es sv tr uk
"""

LANGUAGES: Final = frozenset(_CODES.split())
"""The 34 languages of the model: ISO 639 codes."""

TILDEOPEN: Final = Capabilities(
    json_object=False,
    json_schema=False,
    tools=False,
    n=1,
    logprobs=False,
    context_tokens=CONTEXT_TOKENS,
    languages=LANGUAGES,
    images=False,
    audio=False,
    video=False,
)


def check_request(
    parameters: Mapping[str, Any],
    messages: Sequence[Message] | None,
    *,
    capabilities: Capabilities,
    stream: bool,
) -> None:
    """Raise `PromptError` for parameters or messages that the container would refuse."""
    check_parameters(parameters, capabilities=capabilities, stream=stream)
    if not (capabilities.json_object or capabilities.json_schema) and parameters.get("response_format"):
        raise PromptError("response_format is given; this model answers in plain text: leave it out")
    if messages is not None:
        check_messages(messages, parameters, capabilities=capabilities)
