"""The parameters of a chat request that a prompt may set, as the OpenAPI document of the service names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from corpusmill.errors import PromptError
from corpusmill.exchange import CEILINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Sampling(TypedDict, total=False):
    """Keyword arguments for the wire; ranges are checked against the endpoint before anything is sent."""

    temperature: float
    top_p: float
    top_k: int
    presence_penalty: float
    frequency_penalty: float
    do_sample: bool
    stop: str | Sequence[str]
    response_format: Mapping[str, Any]
    reasoning_effort: str
    tool_choice: str | Mapping[str, Any]
    parallel_tool_calls: bool
    tools: Sequence[Mapping[str, Any]] | Mapping[str, str]
    chat_template_kwargs: Mapping[str, Any]
    logprobs: bool
    top_logprobs: int
    n: int
    logit_bias: Mapping[str, float]
    seed: int
    extra: Mapping[str, Any]


KNOWN = frozenset(Sampling.__annotations__) - {"extra"}

NOT_SAMPLING = {
    "model": "belongs to the endpoint",
    "messages": "is made from the row",
    "stream": "belongs to the endpoint",
    "stream_options": "is set when the endpoint streams",
}


def wire_parameters(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten keyword arguments to the parameters of the wire: null ones dropped, `extra` merged in.

    Raises `PromptError` for a name that is set elsewhere, and for an unknown name outside `extra`.
    """
    parameters = {name: value for name, value in sampling.items() if name != "extra" and value is not None}
    extra = sampling.get("extra") or {}
    for name in parameters:
        if name in NOT_SAMPLING:
            raise PromptError(f"the parameter {name!r} {NOT_SAMPLING[name]}; leave it out of the prompt")
        if name not in KNOWN:
            raise PromptError(
                f"the parameter {name!r} is not one that the service documents; "
                f"to send it all the same write extra: {{{name}: …}}"
            )
    for name, value in extra.items():
        if name in NOT_SAMPLING or name in CEILINGS:
            raise PromptError(
                f"extra may not hold {name!r}, which is set by the prompt or the endpoint itself"
            )
        if value is not None:
            parameters[name] = value
    return parameters
