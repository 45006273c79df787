"""What a caller hands over in place of the objects that a run takes, and what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.errors import PromptError, UsageError
from corpusmill.policy import Budget, FailurePolicy, Limits, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN = 80
"""Characters of an argument that is none."""

_CONDUCT = {
    "limits": (Limits, "Limits(concurrency=64)"),
    "retry": (RetryPolicy, "RetryPolicy(attempts=8)"),
    "failures": (FailurePolicy, "FailurePolicy(max_failed=0.05)"),
    "budget": (Budget, "Budget(tokens=1_000_000)"),
}
"""What an argument of conduct must be, and an example of how it is written."""


def check_arguments(prompts: Sequence[object], endpoint: object, **conduct: object) -> None:
    """Raise a `UsageError` for what is not the object that the argument takes, and say what to write."""
    for prompt in prompts:
        if isinstance(prompt, list | tuple):
            raise PromptError("the prompts are given as a list; write them one by one, or *prompts")
        if isinstance(prompt, type) or not (hasattr(prompt, "inputs") and hasattr(prompt, "render")):
            raise PromptError(
                f"a prompt is {_shortened(prompt)}; it must be one such as "
                'Ask("Name the topic of: {text}", into="topic") or Translate("text", "text_lv", to="lv")'
            )
    if isinstance(endpoint, type) or not (hasattr(endpoint, "url") and hasattr(endpoint, "identity")):
        # What was given is not shown: there may be a key in it.
        raise UsageError(
            f"endpoint is {_kind(endpoint)}; write OpenAICompatible(base_url, model) or SambaNova(model)"
        )
    for name, given in conduct.items():
        wanted, example = _CONDUCT[name]
        if given is not None and not isinstance(given, wanted):
            raise UsageError(f"{name} is {_shortened(given)}; write {name}={example}, or leave it out")


def _shortened(given: object) -> str:
    if isinstance(given, type):
        return _kind(given)
    text = repr(given)
    return f"{text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}, {_kind(given)}"


def _kind(given: object) -> str:
    return f"the class {given.__name__}" if isinstance(given, type) else f"of the type {type(given).__name__}"
