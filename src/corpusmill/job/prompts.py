"""The prompts of a job file, and the classes that they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from corpusmill.errors import UsageError
from corpusmill.job.models import AskModel, Model
from corpusmill.job.yaml_text import plain
from corpusmill.prompts.ask import Ask

if TYPE_CHECKING:
    from corpusmill.prompts.prompt import Prompt


class PromptModel(Model):
    """A prompt: exactly one of these."""

    ask: AskModel | None = Field(None, description="a free question made from a template")


def build_prompt(model: PromptModel) -> Prompt:
    """Make the prompt that a model stands for."""
    given = [name for name in PromptModel.model_fields if getattr(model, name) is not None]
    if len(given) != 1:
        known = ", ".join(PromptModel.model_fields)
        raise UsageError(f"exactly one of {known} is needed; {' and '.join(given) or 'none'} is given")
    fields = plain(getattr(model, given[0]).model_dump(exclude_none=True))
    return Ask(fields.pop("template", None), **fields)
