"""The list of failed rows holds what is wrong with each, and nothing of what it says."""

from __future__ import annotations

import json

import pytest

from corpusmill.engine.alike import FIRST_ALIKE, Alike
from corpusmill.engine.outputs import FailureLog
from corpusmill.errors import BrokenEndpointError
from corpusmill.outcome import Outcome
from corpusmill.rows.judge import Answer

TEXT = "The patient of room 17 is said to be ill."


def test_the_list_of_failures_says_what_is_wrong_without_quoting_the_row() -> None:
    """The outcome, which lies in the dataset, stays as it is."""
    outcome = Outcome(status="failed", error=f"HTTP 400: bad input: {TEXT!r} at 3", request_key="ab")
    log = FailureLog()
    log.add(5, "topic", "invalid_request", outcome, iter(["other", TEXT]))
    log.add(6, "topic", "invalid", Outcome(status="invalid"), [TEXT])
    first, second = map(json.loads, log.lines())
    log.close()
    assert (first["row"], first["kind"]) == (5, "invalid_request")
    assert first["error"] == "HTTP 400: bad input: '….' at 3"
    assert (second["row"], second["error"], log.rows) == (6, None, 2)


def test_the_error_of_requests_that_fail_alike_does_not_quote_the_last_of_them() -> None:
    """It says what the server said of it."""
    alike = Alike(url="http://h/v1", model="any")
    answer = Answer(error=f"HTTP 400: bad input: {TEXT}", kind="invalid_request", origin="unanswered")
    messages = [{"role": "user", "content": f"Name the topic: {TEXT}"}]
    for _ in range(FIRST_ALIKE - 1):
        alike.hear(answer, ceiling=None, hits=0, messages=messages)
    with pytest.raises(BrokenEndpointError, match=r"in the same way: HTTP 400: bad input: …\.\. The run"):
        alike.hear(answer, ceiling=None, hits=0, messages=messages)
