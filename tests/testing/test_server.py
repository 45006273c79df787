"""The running server: its routes, what it counts, what changes in mid-run, and how it ends."""

from __future__ import annotations

import json
import math
import signal
import ssl
import statistics
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from click.testing import CliRunner

from corpusmill.testing import FakeEndpoint, Faults, Latency, expected_answer, request_digest
from corpusmill.testing.command import fake_endpoint_command
from corpusmill.testing.latency import seconds_of
from corpusmill.testing.stats import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

HTTP = httpx.Client(
    verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), limits=httpx.Limits(max_keepalive_connections=0)
)
"""Loads no certificates, which takes longer than a test, and keeps no connection."""


def body(text: str = "bread", **more: Any) -> dict[str, Any]:
    """Return a request of one user message."""
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


def post(endpoint: FakeEndpoint, **request: Any) -> httpx.Response:
    """Send one request."""
    return HTTP.post(f"{endpoint.base_url}/chat/completions", json=request)


def test_requests_are_told_apart_by_what_is_asked_only(fake_endpoint: FakeEndpoint) -> None:
    """Ceilings, stream and the order of keys do not make another request; anything else does."""
    same = [body(), body(max_tokens=1), body(max_completion_tokens=99), dict(reversed(body().items()))]
    same.append(body(stream=True, stream_options={"include_usage": True}))
    assert len({request_digest(request) for request in same}) == 1
    other = [body("cake"), body(temperature=0), body(model="n"), body(extra=1)]
    assert len({request_digest(request) for request in [*same, *other]}) == 5
    for request in [*same, *other]:
        assert post(fake_endpoint, **request).status_code == 200
    stats = fake_endpoint.stats()
    assert stats.details is not None
    assert (stats.requests, stats.distinct, stats.computed) == (9, 5, 9)
    assert stats.details[request_digest(body())].received == 5
    assert stats.details[request_digest(body("cake"))].computed == 1


def test_paying_twice_is_told_from_raising_a_ceiling(fake_endpoint: FakeEndpoint) -> None:
    """A cut answer and its whole one are no double payment; a second whole one is."""
    post(fake_endpoint, **body(max_tokens=1))
    post(fake_endpoint, **body())
    assert (fake_endpoint.stats().cut, fake_endpoint.stats().computed_again) == (1, 0)
    post(fake_endpoint, **body())
    assert fake_endpoint.stats().computed_again == 1


def test_a_lost_answer_that_is_asked_again_is_paid_twice(fake_endpoint: FakeEndpoint) -> None:
    """What was computed and then cut off on the wire counts as the first payment."""
    fake_endpoint.script(lambda request, attempt: "reset_after_compute" if attempt == 1 else None)
    with pytest.raises(httpx.ReadError):
        post(fake_endpoint, **body())
    assert post(fake_endpoint, **body()).status_code == 200
    stats = fake_endpoint.stats()
    assert (stats.computed, stats.delivered, stats.computed_again) == (2, 1, 1)


def test_refused_requests_count_by_status_and_cost_nothing(fake_endpoint: FakeEndpoint) -> None:
    """An unsound request is a request, not a distinct one, and nothing is computed."""
    assert post(fake_endpoint, model="m", messages=[]).status_code == 400
    stats = fake_endpoint.stats()
    assert (stats.requests, stats.distinct, stats.computed, stats.by_status) == (1, 0, 0, {"400": 1})


def test_stats_over_http_agree_with_stats_in_python(fake_endpoint: FakeEndpoint) -> None:
    """`/stats` is cheap by default, and tells of each request with `details=1`."""
    post(fake_endpoint, **body())
    root = fake_endpoint.base_url.removesuffix("/v1")
    plain = HTTP.get(f"{root}/stats").json()
    assert "details" not in plain
    detailed = HTTP.get(f"{root}/stats?details=1").json()
    digest = request_digest(body())
    assert detailed["details"] == {
        digest: {"received": 1, "answered": 1, "computed": 1, "delivered": 1, "cut": 0}
    }
    assert plain["answered"] == plain["computed"] == fake_endpoint.stats().computed == 1
    assert plain["prompt_tokens"] > 0
    assert plain["completion_tokens"] > 0


def test_a_reset_forgets(fake_endpoint: FakeEndpoint) -> None:
    """After `POST /reset`, and after `reset()`, counts and attempts begin anew."""
    seen: list[int] = []

    def script(request: dict[str, Any], attempt: int) -> None:
        seen.append(attempt)

    fake_endpoint.script(script)
    post(fake_endpoint, **body())
    post(fake_endpoint, **body())
    assert HTTP.post(f"{fake_endpoint.base_url}/reset").status_code == 200
    assert (fake_endpoint.stats().requests, fake_endpoint.stats().details) == (0, {})
    post(fake_endpoint, **body())
    assert seen == [1, 2, 1]
    fake_endpoint.reset()
    post(fake_endpoint, **body())
    assert (len(seen), fake_endpoint.stats().requests) == (3, 1)


def test_stats_outlive_the_server() -> None:
    """What was counted can be read after the end, when there is no loop to ask."""
    with FakeEndpoint() as endpoint:
        post(endpoint, **body())
    assert endpoint.stats().computed == 1


def test_details_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound requests count in the totals, and the stats say that the details are not all."""
    monkeypatch.setattr("corpusmill.testing.stats.MOST_DISTINCT", 2)
    tally = Tally()
    for number in range(4):
        tally.compute(f"{number:064x}", prompt_tokens=1, completion_tokens=1, cut=False)
    stats = tally.snapshot(details=True)
    assert stats.details is not None
    assert (stats.computed, len(stats.details), stats.details_complete) == (4, 2, False)


def test_in_flight_requests_are_counted_together(
    fake_endpoint_factory: Callable[..., FakeEndpoint],
) -> None:
    """Requests that are open at the same time make up the highest number in flight."""
    endpoint = fake_endpoint_factory(latency=0.2)
    threads = [threading.Thread(target=post, args=(endpoint,), kwargs=body(f"{n}")) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = endpoint.stats()
    assert 2 <= stats.max_in_flight <= 4
    assert stats.in_flight == 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/v1/models", 200),
        ("GET", "/models", 200),
        ("POST", "/chat/completions", 400),
        ("GET", "/v1/chat/completions", 404),
        ("POST", "/v1/chat/completion", 404),
        ("GET", "/", 404),
    ],
)
def test_routes(fake_endpoint: FakeEndpoint, method: str, path: str, status: int) -> None:
    """Each route answers with and without /v1; others are a `SimpleError`."""
    response = HTTP.request(method, fake_endpoint.base_url.removesuffix("/v1") + path)
    assert response.status_code == status
    if status == 404:
        assert response.json() == {"error": "Not found"}


def test_the_models_that_exist_are_listed_and_no_other_is_found(
    fake_endpoint_factory: Callable[..., FakeEndpoint],
) -> None:
    """With a list of models an unknown one is a 404 as the document shapes it."""
    endpoint = fake_endpoint_factory(models=["a", "m"])
    listed = HTTP.get(f"{endpoint.base_url}/models").json()["data"]
    assert [model["id"] for model in listed] == ["a", "m"]
    assert post(endpoint, **body()).status_code == 200
    refused = post(endpoint, **body(model="abc"))
    assert refused.status_code == 404
    assert refused.json()["error"] == {
        "code": "model_not_found",
        "message": "The model `abc` does not exist or you do not have access to it.",
        "param": "model",
        "type": "invalid_request_error",
    }


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, None),
        ({"authorization": "Bearer other"}, 401, "invalid_api_key"),
        ({"authorization": "Bearer sesame"}, 200, None),
    ],
)
def test_a_key_that_is_asked_for_must_come(
    fake_endpoint_factory: Callable[..., FakeEndpoint], headers: dict[str, str], status: int, code: str | None
) -> None:
    """Without the key, and with another one, the answer is a 401 that does not show it and sends nobody elsewhere."""
    endpoint = fake_endpoint_factory(api_key="sesame")
    response = HTTP.post(f"{endpoint.base_url}/chat/completions", json=body(), headers=headers)
    assert response.status_code == status
    if status == 401:
        assert response.json()["error"]["code"] == code
        assert "://" not in response.text
    assert "sesame" not in response.text
    assert "other" not in response.text


def test_the_context_bounds_prompt_and_answer(fake_endpoint_factory: Callable[..., FakeEndpoint]) -> None:
    """A prompt that fills the context is refused; an answer that would overflow it is cut."""
    endpoint = fake_endpoint_factory(context_tokens=40)
    refused = post(endpoint, **body("x" * 200))
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    cut = post(endpoint, **body("word " * 24, max_tokens=1_000)).json()
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["usage"]["total_tokens"] == 40
    strict = fake_endpoint_factory(context_tokens=40, strict_context=True)
    assert post(strict, **body("word", max_tokens=1_000)).status_code == 400
    assert post(strict, **body("word", max_tokens=20)).status_code == 200


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "required": ["again"], "properties": {"again": {"$ref": "#"}}},
        {"type": "object", "properties": ["a"]},
        {"type": "integer", "minimum": "low"},
    ],
)
def test_a_schema_that_nothing_fits_is_refused(fake_endpoint: FakeEndpoint, schema: dict[str, Any]) -> None:
    """A schema without end or sense is a 400 like any other, and nothing is computed."""
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    refused = post(fake_endpoint, **body(response_format=wanted))
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "invalid_schema"
    assert fake_endpoint.stats().computed == 0


def test_events_of_a_stream_can_come_one_by_one(fake_endpoint_factory: Callable[..., FakeEndpoint]) -> None:
    """With a pause between events the first one arrives while the server still has others to send."""
    endpoint = fake_endpoint_factory(latency=Latency(chunk_seconds=3_600))
    with HTTP.stream("POST", f"{endpoint.base_url}/chat/completions", json=body(stream=True)) as response:
        first = next(response.iter_raw())
        assert first.startswith(b"data: ")
        assert endpoint.stats().in_flight == 1


def test_settings_change_in_mid_run(fake_endpoint: FakeEndpoint) -> None:
    """Over HTTP and from Python, faults, limits and latency change for the next request."""
    url = f"{fake_endpoint.base_url}/settings"
    shown = HTTP.put(url, json={"faults": {"503": 1.0}, "latency": 0.001}).json()
    assert (shown["faults"]["shares"], shown["latency"]["mean"]) == ({"503": 1.0}, 0.001)
    assert post(fake_endpoint, **body()).status_code == 503
    assert HTTP.post(url, json={"faults": None, "limits": {"requests_per_minute": 1}}).status_code == 200
    assert [post(fake_endpoint, **body()).status_code for _ in range(2)] == [200, 429]
    fake_endpoint.configure(limits=None, faults=Faults(permanent={"410": 1.0}), api_key="sesame")
    assert post(fake_endpoint, **body()).status_code == 401
    assert "sesame" not in HTTP.get(url).text


@pytest.mark.parametrize(
    "wrong",
    [
        {"faults": {"flood": 1}},
        {"latency": {"mean": -1}},
        {"latency": "slow"},
        {"limits": {"requests": 1}},
        {"colour": "red"},
        {"seed": "x"},
        [],
    ],
)
def test_settings_that_do_not_fit_change_nothing(fake_endpoint: FakeEndpoint, wrong: object) -> None:
    """A wrong change is a 400 that says why, and the endpoint behaves as before."""
    url = f"{fake_endpoint.base_url}/settings"
    before = HTTP.get(url).json()
    response = HTTP.put(url, json=wrong)
    assert response.status_code == 400
    assert response.json()["error"].startswith("settings: ")
    assert HTTP.get(url).json() == before


def test_a_setting_that_is_not_known_is_refused_with_those_that_are(fake_endpoint: FakeEndpoint) -> None:
    """At the top and within."""

    def error(change: dict[str, object]) -> str:
        return str(HTTP.put(f"{fake_endpoint.base_url}/settings", json=change).json()["error"])

    known = "latency, faults, limits, seed, models, context_tokens, strict_context, gzip"
    assert error({"colour": 1}) == f"settings: no setting is called 'colour'; there are {known}"
    assert "RateLimits has no rpm; it has requests_per_minute, tokens_per_minute" in error(
        {"limits": {"rpm": 1}}
    )


def test_connections_are_kept_and_large_bodies_read(fake_endpoint: FakeEndpoint) -> None:
    """A body of several reads is whole, and the next request comes over the same connection."""
    text = "Translate to Latvian:\n\n" + "bread " * 20_000
    with httpx.Client(base_url=fake_endpoint.base_url) as client:
        for request in (body(text), body()):
            answer = client.post("/chat/completions", json=request)
            assert answer.json()["choices"][0]["message"]["content"] == expected_answer(request["messages"])
            assert answer.headers.get("connection") != "close"


def test_answers_can_be_compressed(fake_endpoint_factory: Callable[..., FakeEndpoint]) -> None:
    """Where the client takes gzip and the endpoint was told to, the body is smaller and means the same."""
    endpoint = fake_endpoint_factory(gzip=True)
    packed = post(endpoint, **body("bread " * 500))
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.num_bytes_downloaded < len(packed.content)
    plain = HTTP.post(
        f"{endpoint.base_url}/chat/completions",
        json=body("bread " * 500),
        headers={"accept-encoding": "identity"},
    )
    assert "content-encoding" not in plain.headers
    assert plain.json()["choices"] == packed.json()["choices"]


def test_a_connection_that_the_client_closes_delivers_too(fake_endpoint: FakeEndpoint) -> None:
    """An answer under `Connection: close` is a delivered one."""
    headers = {"connection": "close"}
    assert HTTP.post(f"{fake_endpoint.base_url}/chat/completions", json=body(), headers=headers).is_success
    assert fake_endpoint.stats().delivered == 1


def test_an_answer_is_computed_although_the_client_left(
    fake_endpoint_factory: Callable[..., FakeEndpoint],
) -> None:
    """A client's time-out does not spare it the cost: the answer is computed, and not delivered."""
    endpoint = fake_endpoint_factory(latency=0.05)
    with pytest.raises(httpx.ReadTimeout):
        HTTP.post(f"{endpoint.base_url}/chat/completions", json=body(), timeout=0.01)
    while endpoint.stats().in_flight:
        threading.Event().wait(0.005)
    stats = endpoint.stats()
    assert (stats.computed, stats.delivered, stats.by_status) == (1, 0, {})


def test_a_server_with_requests_in_flight_ends_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Leaving the block does not wait for an answer that takes an hour, and logs no error."""
    failed = threading.Event()

    def ask(endpoint: FakeEndpoint) -> None:
        try:
            HTTP.post(f"{endpoint.base_url}/chat/completions", json=body(), timeout=60)
        except httpx.TransportError:
            failed.set()

    with FakeEndpoint(latency=3_600) as endpoint:
        thread = threading.Thread(target=ask, args=(endpoint,))
        thread.start()
        while not endpoint.stats().in_flight:
            threading.Event().wait(0.005)
    thread.join(30)
    assert failed.is_set()
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


def test_an_endpoint_that_does_not_run_has_no_address() -> None:
    """Asking for the URL before the start is an error that says what to do."""
    with pytest.raises(RuntimeError, match="context manager"):
        _ = FakeEndpoint().base_url


def test_an_endpoint_starts_once() -> None:
    """Entering a running endpoint again is an error; after its end it can be started anew."""
    endpoint = FakeEndpoint()
    with endpoint:
        with pytest.raises(RuntimeError, match="already"):
            endpoint.__enter__()
        assert post(endpoint, **body()).status_code == 200
    with endpoint:
        assert post(endpoint, **body()).status_code == 200
    assert endpoint.stats().computed == 2


def test_latency_has_the_mean_and_spread_that_were_asked_for() -> None:
    """Over many draws a lognormal latency has its mean and sigma, and stragglers have their share."""
    latency = Latency(mean=1.0, sigma=0.5, straggler_share=0.01, straggler_seconds=30.0)
    drawn = [seconds_of(latency, seed=1, digest=f"{number:064x}", attempt=1) for number in range(20_000)]
    usual = [seconds for seconds in drawn if seconds != 30.0]
    assert 140 < len(drawn) - len(usual) < 260
    assert statistics.fmean(usual) == pytest.approx(1.0, rel=0.03)
    assert statistics.stdev(map(math.log, usual)) == pytest.approx(0.5, rel=0.03)
    assert drawn[0] == seconds_of(latency, seed=1, digest="0" * 64, attempt=1)
    assert drawn[0] != seconds_of(latency, seed=2, digest="0" * 64, attempt=1)
    assert seconds_of(Latency(mean=0.25), seed=1, digest="0" * 64, attempt=1) == 0.25


@pytest.mark.parametrize("wrong", [{"mean": -1}, {"sigma": -1}, {"straggler_share": 2}])
def test_latency_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    """Negative times and shares above one are errors."""
    with pytest.raises(ValueError, match="latency:"):
        Latency(**wrong)


RUN = "from corpusmill.testing.command import fake_endpoint_command as c; c()"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_prints_its_url_and_ends_on_a_signal(number: signal.Signals) -> None:
    """The first line is the base URL, requests are answered by then, and a signal ends it with code 0."""
    options = ["--port", "0", "--fault", "503=1.0", "--latency", "0.001"]
    with subprocess.Popen([sys.executable, "-c", RUN, *options], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            base_url = child.stdout.readline().strip()
            assert HTTP.post(f"{base_url}/chat/completions", json=body()).status_code == 503
            settings = HTTP.get(f"{base_url}/settings").json()
            assert settings["latency"]["mean"] == 0.001
            child.send_signal(number)
            assert child.wait(30) == 0
            assert child.stdout.read() == ""
        finally:
            child.kill()


def test_the_command_passes_its_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group of options reaches the endpoint."""
    served: list[FakeEndpoint] = []

    def serve(endpoint: FakeEndpoint, *, announce: Callable[[str], None]) -> None:
        served.append(endpoint)

    monkeypatch.setattr("corpusmill.testing.server.serve", serve)
    options = (
        "--seed 3 --api-key k --model a --model b --context-tokens 99 --strict-context --latency 1 "
        "--latency-sigma 0.5 --straggler-share 0.1 --straggler-seconds 9 --chunk-seconds 0.5 "
        "--fault 429=0.1 --fault 500=0.2 "
        "--permanent-fault overflow=0.3 --first-attempts 2 --retry-after 7 --stall-seconds 8 "
        "--requests-per-minute 60 --tokens-per-minute 1000 --requests-per-day 500 --burst 5 "
        "--token-burst 50 --window fixed --gzip"
    )
    result = CliRunner().invoke(fake_endpoint_command, options.split())
    assert result.exit_code == 0, result.output
    with served[0] as endpoint:
        settings = HTTP.get(f"{endpoint.base_url}/settings").json()
    assert settings == {
        "seed": 3,
        "models": ["a", "b"],
        "context_tokens": 99,
        "strict_context": True,
        "gzip": True,
        "latency": {
            "mean": 1.0,
            "sigma": 0.5,
            "straggler_share": 0.1,
            "straggler_seconds": 9.0,
            "chunk_seconds": 0.5,
        },
        "faults": {
            "shares": {"429": 0.1, "500": 0.2},
            "permanent": {"overflow": 0.3},
            "first_attempts": 2,
            "retry_after": "7",
            "stall_seconds": 8.0,
        },
        "limits": {
            "requests_per_minute": 60,
            "tokens_per_minute": 1000,
            "requests_per_day": 500,
            "burst": 5,
            "token_burst": 50,
            "window": "fixed",
            "reset_form": "seconds",
            "retry_after": True,
            "minute_seconds": 60.0,
            "day_seconds": 86400.0,
        },
    }


@pytest.mark.parametrize(
    "options", [["--fault", "429"], ["--fault", "flood=1"], ["--fault", "429=x"], ["--latency", "-1"]]
)
def test_the_command_refuses_options_that_do_not_fit(options: list[str]) -> None:
    """Wrong usage is exit code 2 with a message, not a traceback."""
    result = CliRunner().invoke(fake_endpoint_command, options)
    assert result.exit_code == 2
    assert "Error" in result.output


def test_the_command_lists_the_kinds_of_fault() -> None:
    """Each kind is on a line of its own with what it does."""
    result = CliRunner().invoke(fake_endpoint_command, ["--list-faults"])
    assert result.exit_code == 0
    assert "reset_after_compute " in result.output


def test_a_port_in_use_is_an_error_in_one_line(fake_endpoint: FakeEndpoint) -> None:
    """Two servers cannot listen at one port, and the second says so."""
    port = fake_endpoint.base_url.removesuffix("/v1").rpartition(":")[2]
    result = CliRunner().invoke(fake_endpoint_command, ["--port", port])
    assert result.exit_code == 1
    assert f"cannot listen at 127.0.0.1:{port}" in result.output


def test_without_the_extra_the_error_names_it() -> None:
    """Where uvicorn is missing, the message says what to install."""
    code = "import sys; sys.modules['uvicorn'] = None\nfrom corpusmill.testing import FakeEndpoint"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "corpusmill[testing]" in done.stderr


def test_the_endpoint_shares_no_code_with_what_it_judges() -> None:
    """Running the server loads no module of the package but its own."""
    code = (
        "import sys, json, urllib.request\n"
        "from corpusmill.testing import FakeEndpoint\n"
        "with FakeEndpoint() as endpoint: urllib.request.urlopen(endpoint.base_url + '/models').read()\n"
        "print(json.dumps([name for name in sys.modules if name.startswith('corpusmill.')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.split(".")[1] for name in json.loads(done.stdout)} == {"testing"}
