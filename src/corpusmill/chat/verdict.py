"""What one HTTP attempt came to. Whether to try again is the type of a verdict, never a match on its text.

Every verdict has `seconds` (how long the attempt took), `request_id` (the server's, None when it gave none)
and `rates` (what the response's headers said of its limits, None when they said nothing).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from corpusmill.errors import EndpointError
    from corpusmill.exchange import Completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a response's headers say is left: None where they say nothing, or nothing that makes sense.

    `requests` and `tokens` are what is left of the running window, `requests_reset` and `tokens_reset` the
    seconds until it begins anew; `day` is what is left of the day, `day_reset` the seconds until it ends.
    """

    requests: float | None = None
    requests_reset: float | None = None
    tokens: float | None = None
    tokens_reset: float | None = None
    day: float | None = None
    day_reset: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """An answer. `notes` say what was unusual about how it came."""

    completion: Completion
    notes: tuple[str, ...] = ()
    request_id: str | None = None
    rates: Rates | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryAfter:
    """A failure that may pass.

    `wait` is how long this very response asked to wait, in seconds, None when it did not say.
    `possibly_paid` tells that the request may have been computed. `down` tells that the endpoint, not this
    request, seems to be the cause. `counted` is False for a try that went out only to see whether an
    endpoint that is down has come back.
    """

    kind: str
    reason: str
    wait: float | None = None
    rate_limited: bool = False
    possibly_paid: bool = False
    down: bool = False
    counted: bool = True
    request_id: str | None = None
    rates: Rates | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFailed:
    """This request cannot succeed, or has failed too often; others may."""

    kind: str
    reason: str
    possibly_paid: bool = False
    request_id: str | None = None
    rates: Rates | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnds:
    """No request of this run can succeed: `error` is to be raised."""

    error: EndpointError
    request_id: str | None = None
    rates: Rates | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComesBackLater:
    """A quota is used up: nothing will come before `resets_at` (UTC, None when it is not known)."""

    resets_at: datetime | None
    reason: str
    request_id: str | None = None
    rates: Rates | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unparsed:
    """The model answered and the server could not parse it (`error_model_output`): paid, worth one more try.

    `output` is what the model wrote, `body` the whole response.
    """

    output: str
    body: bytes
    reason: str
    request_id: str | None = None
    rates: Rates | None = None
    seconds: float = 0.0


Verdict = Accepted | RetryAfter | RowFailed | RunEnds | ComesBackLater | Unparsed
