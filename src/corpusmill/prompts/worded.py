"""What the prompts have in common whose messages the package words: all but `Ask`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from corpusmill.prompts.fields import (
    check_column,
    check_into,
    check_returns,
    guard,
    raised_ceiling,
)
from corpusmill.prompts.prompt import Input, Rendered
from corpusmill.prompts.sampling import Sampling, wire_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from corpusmill.prompts.wording import Layout, Wording


@dataclass(frozen=True, slots=True, init=False)
class Worded:
    """The shared part of such a prompt.

    `max_tokens` is a cap, `escalate_to` how far it may be raised. Without a cap a ceiling is derived from the length of
    what is asked about, and raised where it is reached.
    """

    into: str
    instruction: str | None
    wording: Wording
    max_tokens: int | None
    escalate_to: int | None
    returns: Mapping[str, str]
    vary_by: str | None
    parameters: Mapping[str, Any]
    inputs: tuple[Input, ...]
    _cap: tuple[int | None, int | None] = field(repr=False)
    _layout: Layout = field(repr=False, compare=False)

    @property
    def media(self) -> frozenset[str]:
        """None: messages are text."""
        return frozenset()

    @property
    def tools_column(self) -> None:
        """None: rows bring no tools."""
        return

    @property
    def plain(self) -> None:
        """None: a row's messages are more than its text in a frame."""
        return

    @property
    def value_type(self) -> pa.DataType:
        """Text."""
        import pyarrow as pa

        return pa.string()

    def _shared_content(self) -> dict[str, Any]:
        """Give what the run key covers of the shared part."""
        return {
            "into": self.into,
            "instruction": self.instruction,
            "wording": self.wording.table,
            "max_tokens": self._cap[0],
            "escalate_to": self._cap[1],
            "returns": dict(self.returns),
            "vary_by": self.vary_by,
            "parameters": dict(self.parameters),
        }

    def _filled(self, row: Mapping[str, str | None], *, size: int, values: Sequence[Any]) -> Rendered:
        """Fill the wording; `size` are the characters that the answer's length follows, `values` end with the draw."""
        return Rendered(
            messages=self._layout.fill(row),
            ceiling=self.max_tokens or guard(size),
            vary=None if self.vary_by is None else values[-1] or "",
        )


def shared_fields(
    prompt: str,
    *,
    into: str,
    reads: Sequence[str],
    instruction: str | None,
    wording: Wording,
    layout: Layout,
    max_tokens: int | None,
    escalate_to: int | None,
    returns: Mapping[str, str] | None,
    vary_by: str | None,
    sampling: Sampling,
) -> dict[str, Any]:
    """Check the arguments that these prompts share, and give the fields that they fill.

    `reads` are the columns that the prompt named `prompt` takes, without `vary_by`. Temperature is 0 unless given.
    """
    inputs = [Input(path=path) for path in reads]
    if vary_by is not None:
        inputs.append(Input(path=check_column(prompt, "vary_by", vary_by), scalars=True))
    return {
        "into": check_into(prompt, into),
        "instruction": instruction,
        "wording": wording,
        "max_tokens": max_tokens,
        "escalate_to": raised_ceiling(max_tokens, escalate_to),
        "returns": check_returns(prompt, returns),
        "vary_by": vary_by,
        "parameters": wire_parameters({"temperature": 0, **sampling}),
        "inputs": tuple(inputs),
        "_cap": (max_tokens, escalate_to),
        "_layout": layout,
    }
