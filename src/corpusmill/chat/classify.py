"""What one response, or the lack of one, means: a pure function from what came to a verdict.

The rows of the tables stand in the order in which they are asked: what is the row's own comes before what
is the run's, so that one text that is too long ends no run, and a used-up quota comes before a rate that is
too high, so that nobody waits a minute at a time for tomorrow.
"""

# ruff: noqa: PLR2004 - a status of HTTP is its own name

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import httpx

from corpusmill.chat.faults import judge_fault
from corpusmill.chat.problem import SHOWN, Problem, read_problem
from corpusmill.chat.verdict import (
    Accepted,
    ComesBackLater,
    Rates,
    RetryAfter,
    RowFailed,
    RunEnds,
    Unparsed,
    Verdict,
)
from corpusmill.chat.waits import read_rates, retry_after
from corpusmill.errors import AuthenticationError, EndpointError, ModelUnavailableError
from corpusmill.exchange import NotACompletionError, read_completion
from corpusmill.quoting import texts_in, unquoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from corpusmill.exchange import ChatRequest

QUOTA_FROM = 3_600.0
"""A rate limit that asks to wait for more seconds is a used-up quota: a run does not sleep for hours."""

_OVERFLOW_CODES = frozenset(
    {"context_length_exceeded", "context_window_exceeded", "string_above_max_length", "prompt_too_long"}
)
_OVERFLOW = re.compile(
    r"context[ _-]?(?:length|window|size|limit)"
    r"|(?:maximum|max)(?:imum)? (?:context|sequence|model|input|prompt)[ _](?:length|len|tokens|size)"
    r"|max_model_len|max_seq_len|n_ctx"
    r"|(?:prompt|input|messages?|request)s? (?:is|are|was) too long"
    r"|too many (?:input |prompt )?tokens"
    r"|(?:prompt|input)(?: length| tokens?)?.{0,40}(?:exceeds?|larger than|longer than|greater than)"
    r".{0,40}(?:limit|maximum|max|length|context|size)"
    r"|exceeds? the (?:available |model'?s? )?(?:context|maximum (?:number of )?(?:input )?tokens)"
    r"|inputs?` tokens \+ `?max_new_tokens"
)
_PER_TIME = re.compile(r"per[ _-](?:minute|min|second|sec|hour|day)|\b(?:tpm|rpm|tpd|rpd)\b|rate[ _-]limit")
_LARGER = re.compile(
    r"request too large|requested more than|larger than the (?:rate )?limit|exceeds the rate limit"
)
_LIMIT_AND_REQUESTED = re.compile(r"limit:?\s*([\d,]+).{0,80}?requested:?\s*([\d,]+)")

_QUOTA_CODES = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "quota_exceeded", "insufficient_balance"}
)
_DAY_IS_OVER = re.compile(
    r"(?:requests?|tokens?|quota|limit) (?:per|a|of the) day|per[ _-]day|\b(?:rpd|tpd)\b"
    r"|(?:daily|weekly|monthly) (?:\w+ )?(?:quota|limit)"
)
_NO_BALANCE = re.compile(
    r"insufficient[ _](?:quota|balance|credits?|funds)|exceeded your current quota|credit balance is too low"
    r"|out of credits|payment required|billing"
)
SOON = 120.0
"""Seconds of a wait that is told beside "your quota": then it is the quota of a minute, as some services word it."""

_LIMITED_CODES = frozenset(
    {
        "rate_limit_exceeded",
        "rate_limit_error",
        "too_many_requests",
        "queue_full",
        "throttlingexception",
        "rate_limited",
    }
)
_KEY_CODES = frozenset({"invalid_api_key", "authentication_error", "invalid_authentication", "unauthorized"})
_MODEL_CODES = frozenset({"model_not_found", "unknown_model", "model_not_available", "model_decommissioned"})
_NO_MODEL = re.compile(
    r"model(?: id| name)?:? (?:[`'\"]?[\w./:@+-]+[`'\"]?:? )?(?:(?:does|do|was|is|could) )?(?:not |un)"
    r"(?:exist|be found|found|supported|available|known)|model\b.{0,60}?(?:decommissioned|deprecated|withdrawn)"
    r"|(?:unknown|no such|invalid|unsupported) model\b"
)
_NEAR = 60
"""Characters around the words that a model is not known in which its name has to stand."""

_FILTER_CODES = frozenset({"content_filter", "content_policy_violation", "responsibleaipolicyviolation"})

_PASSING = {408: "timeout", 409: "conflict", 425: "too_early", 500: "server_error", 502: "bad_gateway"}
_PASSING |= {503: "unavailable", 504: "gateway_timeout", 529: "overloaded"}

_POSSIBLY_PAID = frozenset({408, 502, 504, 520, 522, 524})
"""Statuses of a party in between that stopped waiting: the model may have answered all the same."""

_DOWN = frozenset({500, 502, 503, 504, 520, 521, 522, 523, 524, 529})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Response:
    """A response that is no answer. `problem` says what is wrong without quoting the request, `message` in full."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    problem: Problem
    message: str
    rates: Rates | None
    request_id: str | None
    now: float
    seconds: float
    url: str
    redact: Callable[[str], str]
    model: str | None

    def says(self, fallback: str, *, in_full: bool = False) -> str:
        # The text is masked before it is cut: half a key is still half a key.
        message = self.redact(self.message if in_full else self.problem.message)
        shown = message if len(message) <= SHOWN else message[:SHOWN].rstrip() + "..."
        return f"HTTP {self.status}: {shown or fallback}"

    def wait(self) -> float | None:
        return retry_after(self.headers, self.problem.message, self.now)

    def failed(self, kind: str, fallback: str) -> RowFailed:
        # This goes to the row alone, which may hold what is quoted of it; all other verdicts reach logs and errors.
        return RowFailed(
            kind=kind,
            reason=self.says(fallback, in_full=True),
            request_id=self.request_id,
            rates=self.rates,
            seconds=self.seconds,
        )

    def again(self, kind: str, fallback: str, *, paid: bool = False, down: bool = False) -> RetryAfter:
        # What came of an answer is corpus text and belongs into no error.
        broken = kind in {"cut_body", "cut_stream"}
        return RetryAfter(
            kind=kind,
            reason=f"HTTP {self.status}: {fallback}" if broken else self.says(fallback),
            wait=self.wait(),
            possibly_paid=paid,
            down=down,
            request_id=self.request_id,
            rates=self.rates,
            seconds=self.seconds,
        )

    def ends(self, error: type[EndpointError], advice: str) -> RunEnds:
        identified = f" (request {self.request_id})" if self.request_id else ""
        return RunEnds(
            error=error(f"{self.url} answered {self.says('no text')}{identified}; {advice}"),
            request_id=self.request_id,
            rates=self.rates,
            seconds=self.seconds,
        )


def classify(
    *,
    status: int | None = None,
    headers: Mapping[str, str],
    body: bytes = b"",
    error: BaseException | None = None,
    cut: str | None = None,
    begun: bool = False,
    notes: tuple[str, ...] = (),
    now: float,
    seconds: float = 0.0,
    url: str = "the endpoint",
    redact: Callable[[str], str] = str,
    model: str | None = None,
    request: ChatRequest | None = None,
) -> Verdict:
    """Give the verdict on one attempt.

    `status` is None when no head of a response came; then `error` says why. `error` beside a status means
    that the body broke off. `headers` have names in lower case; `body` is whole, or what came of it, a
    stream already put together. `cut` says why a stream is no whole answer, `begun` that a part of one had
    come. `now` is Unix time, `seconds` the time that the attempt took, `redact` masks secrets in what a
    server wrote. `model` is the model that was asked for, and `request` what was asked: a text of its own that the
    server repeats is no word of the server's, and is in no verdict but that on the row. Never raises for anything
    that came over a wire.
    """
    if status is None:
        return judge_fault(
            error, seconds=seconds, redact=lambda text: redact(unechoed(text, request)), url=url
        )
    body = body.removeprefix(codecs.BOM_UTF8)
    rates = read_rates(headers, now) if headers else None
    request_id = headers.get("x-request-id") or headers.get("request-id")
    well = 200 <= status < 300
    if well and error is None and cut is None:
        try:
            completion = read_completion(body)
        except NotACompletionError as wrong:
            reason = str(wrong)
        else:
            if completion.finish_reason != "error":
                return Accepted(
                    completion=completion, notes=notes, request_id=request_id, rates=rates, seconds=seconds
                )
            reason = "the answer ended with an error"
    else:
        reason = cut or "the body broke off"
    problem = read_problem(body)
    response = _Response(
        status=status,
        headers=headers,
        body=body,
        problem=replace(problem, message=unechoed(problem.message, request)),
        message=problem.message,
        rates=rates,
        request_id=request_id or problem.request_id,
        now=now,
        seconds=seconds,
        url=url,
        redact=redact,
        model=model,
    )
    if well and (error is not None or cut is not None) and not problem.declared:
        return response.again(
            "cut_body" if cut is None else "cut_stream", reason, paid=True, down=error is not None
        )
    verdict = _no_answer(response, reason) if well else _refusal(response, status)
    if begun and isinstance(verdict, RetryAfter):
        return replace(verdict, possibly_paid=True)
    return verdict


def unechoed(text: str, request: ChatRequest | None) -> str:
    """Give what a server said without what it repeats of the request."""
    if request is None or not text:
        return text
    return unquoted(text, texts_in([request.messages, request.parameters.get("tools")]))


def _no_answer(response: _Response, reason: str) -> Verdict:
    """A status of success around something that is no answer."""
    problem = response.problem
    if problem.status is not None or problem.declared or problem.output is not None:
        told = _told(response) or _by_status(response, problem.status)
        if told is not None:
            return told
        if problem.kind == "invalid_request_error":
            return response.failed("invalid_request", reason)
        # Whether the model worked before the server gave up is not known here.
        return response.again("error_in_200", reason, paid=True)
    if not response.body.strip():
        return response.again("empty_body", "a response without a body", paid=True)
    if problem.html:
        return response.again("html", f"a page of HTML at {response.url}; is that the right URL?")
    if problem.json:
        return response.again("no_choices", reason, paid=True)
    if response.body.lstrip()[:1] in b"{[":
        return response.again("cut_body", reason, paid=True)
    return response.again("not_json", reason, paid=True)


def _refusal(response: _Response, status: int) -> Verdict:
    if 300 <= status < 400:
        return _redirect(response)
    verdict = _told(response) or _by_status(response, status)
    return verdict if verdict is not None else response.failed("invalid_request", "no text")


def _told(response: _Response) -> Verdict | None:
    """What the complaint itself tells, whatever status it came under."""
    problem = response.problem
    text = problem.text
    if problem.output is not None:
        return Unparsed(
            output=problem.output,
            body=response.body,
            reason=response.says("the model's output could not be parsed", in_full=True),
            request_id=response.request_id,
            rates=response.rates,
            seconds=response.seconds,
        )
    if _larger_than_limit(response.status, text):
        return response.failed("larger_than_limit", "the request is larger than the limit per minute")
    limited = response.status == 429 or problem.status == 429 or problem.code in _LIMITED_CODES
    if problem.code in _OVERFLOW_CODES or (
        _OVERFLOW.search(text)
        and not _PER_TIME.search(text)
        and not (limited or response.status in {401, 403})
    ):
        return response.failed("context_overflow", "the request does not fit into the context")
    if problem.code in _FILTER_CODES:
        return response.failed("filtered", "refused by a content filter")
    if problem.code in _QUOTA_CODES or problem.kind in _QUOTA_CODES or response.status == 402:
        return _later(response)
    if limited:
        return _limited(response)
    if problem.code in _KEY_CODES or problem.kind == "authentication_error":
        return response.ends(AuthenticationError, "check the key")
    if problem.code in _MODEL_CODES or (response.status in {400, 404, 422} and _model_is_unknown(response)):
        return response.ends(ModelUnavailableError, "check the name of the model")
    return None


def _model_is_unknown(response: _Response) -> bool:
    """Tell whether a refusal without such a code is about the model beyond doubt, since it then ends the run."""
    problem, model = response.problem, response.model
    if problem.param == "model":
        return True
    found = _NO_MODEL.search(problem.text)
    if found is None:
        return False
    if response.status == 404:
        return True
    if not model:
        return False
    # Some servers leave out whose model it is.
    names = {re.escape(name) for name in (model.lower(), model.lower().rpartition("/")[2]) if name}
    near = problem.text[max(0, found.start() - _NEAR) : found.end() + _NEAR + len(model)]
    return re.search(rf"(?<![\w-])(?:{'|'.join(names)})(?![\w-])", near) is not None


def _by_status(response: _Response, status: int | None) -> Verdict | None:
    """What the status tells where the complaint did not; None for a row's own fault without a name."""
    if status is None:
        return None
    if status in {401, 403}:
        return response.ends(AuthenticationError, "check the key and what it may do")
    if status == 402:
        return _later(response)
    if status == 410:
        return response.ends(ModelUnavailableError, "the model has been withdrawn")
    if status in {404, 405}:
        return response.ends(EndpointError, "check base_url and the name of the model")
    if status == 413:
        return response.failed("too_large", "the request is too large")
    if status == 429:
        return _limited(response)
    if status in _PASSING or status >= 500:
        return response.again(
            _PASSING.get(status, "server_error"),
            "no text",
            paid=status in _POSSIBLY_PAID,
            down=status in _DOWN,
        )
    return None


def _limited(response: _Response) -> Verdict:
    wait = response.wait()
    rates = response.rates
    day_is_used_up = rates is not None and rates.day == 0
    text = response.problem.text
    balance_is_used_up = _NO_BALANCE.search(text) is not None and (wait is None or wait > SOON)
    if day_is_used_up or balance_is_used_up or _DAY_IS_OVER.search(text) or (wait or 0.0) > QUOTA_FROM:
        return _later(response)
    return RetryAfter(
        kind="rate_limited",
        reason=response.says("too many requests"),
        wait=wait,
        rate_limited=True,
        request_id=response.request_id,
        rates=rates,
        seconds=response.seconds,
    )


def _later(response: _Response) -> ComesBackLater:
    rates = response.rates
    wait = rates.day_reset if rates is not None and rates.day_reset is not None else response.wait()
    resets_at = None if wait is None else datetime.fromtimestamp(response.now, UTC) + timedelta(seconds=wait)
    return ComesBackLater(
        resets_at=resets_at,
        reason=response.says("a quota is used up"),
        request_id=response.request_id,
        rates=rates,
        seconds=response.seconds,
    )


def _larger_than_limit(status: int, text: str) -> bool:
    if _PER_TIME.search(text) is None and "limit" not in text:
        return False
    numbers = _LIMIT_AND_REQUESTED.search(text)
    if numbers is not None and "used" not in numbers[0]:
        limit, requested = (int(number.replace(",", "")) for number in numbers.groups())
        return requested > limit > 0 and (status in {413, 429} or _PER_TIME.search(text) is not None)
    return status in {413, 429} and _LARGER.search(text) is not None


def _redirect(response: _Response) -> RunEnds:
    location = response.headers.get("location", "")
    try:
        host = httpx.URL(location).host
    except httpx.InvalidURL:
        host = ""
    where = f"to {host}" if host else "to another place"
    return response.ends(
        EndpointError, f"it points {where}, and a key is never sent on: set base_url to the final URL"
    )
