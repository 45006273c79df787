"""Why a transform job has failed, told from its `FailureReason`: its lines, what passes, or what stays.

Only the first counts against a shard. A reason that is not known is taken for the lines', because the service says no
more than "see job logs" when a container has refused one.
"""

from __future__ import annotations

import re
from typing import Final, Literal

Blame = Literal["lines", "passing", "lasting"]

_RULES: Final[tuple[tuple[Blame, re.Pattern[str]], ...]] = (
    (
        "lasting",
        re.compile(
            r"access ?denied|not authorized|unauthorized|permission|NoSuchBucket|NoSuchKey|kms|ResourceLimitExceeded"
            r"|service limit|quota|image.{0,40}(?:not exist|could not be pulled|pull)|model data|unsupported instance"
            r"|could not find model",
            re.IGNORECASE,
        ),
    ),
    (
        "passing",
        re.compile(
            r"capacity|InternalServerError|internal error|internal server error|try again|throttl|rate exceeded"
            r"|health ?check|ping|primary container.{0,40}(?:did not|failed)|spot|interrupt|out of memory|timed? ?out"
            r" (?:waiting|while) (?:for )?(?:the )?(?:container|instance|model)|network",
            re.IGNORECASE,
        ),
    ),
)


def blame_for(reason: str) -> Blame:
    """Say what a failure was caused by."""
    return next((blame for blame, pattern in _RULES if pattern.search(reason)), "lines")
