"""Keys are in no log, error, store, manifest, report, event or repr; text of the corpus is where it belongs only."""

from __future__ import annotations

import itertools
import json
import logging
import traceback
from typing import TYPE_CHECKING, Any

import attr
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.proof.material import ASK, store_in, table

import corpusmill
from corpusmill.lineage.openlineage import output_dataset, run_facet
from corpusmill.testing import FakeEndpoint, Faults

if TYPE_CHECKING:
    from pathlib import Path

    from tests.proof.warm import Warm

KEY = "sk-canary-7f3a9c1e5b2d8046"
SECOND = "tok-canary-0d1c2b3a49586776"


def everything_in(folder: Path) -> bytes:
    """Give the bytes of all files below a folder."""
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("right", [True, False], ids=["right-key", "wrong-key"])
def test_a_key_from_the_environment_is_in_nothing_that_a_run_leaves(
    tmp_path: Path, warm: Warm, *, right: bool
) -> None:
    """Neither in the files nor on the terminal; the job's copy in the report names the variable."""
    pq.write_table(table(30), tmp_path / "corpus.parquet")
    faults = Faults(permanent={"400": 0.2, "overflow": 0.1}, shares={"200_error": 0.1, "reset": 0.1})
    with FakeEndpoint(api_key=KEY if right else "another", faults=faults) as endpoint:
        job = {
            "source": str(tmp_path / "corpus.parquet"),
            "sink": str(tmp_path / "out"),
            "prompts": [{"ask": {"template": "Name the topic of: {text}", "into": "topic"}}],
            "endpoint": {
                "openai_compatible": {
                    "base_url": endpoint.base_url,
                    "model": "any",
                    "api_key": "${CANARY}",
                    "headers": {"X-Tenant-Token": "${SECOND}"},
                }
            },
            "store": store_in(tmp_path),
            "retry": {"attempts": 2, "backoff": 0.001, "backoff_max": 0.002},
            "failures": {"max_failed": 1.0},
            "telemetry": True,
        }
        (tmp_path / "job.json").write_text(json.dumps(job), "utf-8")
        ended = warm.run(
            "run", str(tmp_path / "job.json"), environment={"CANARY": f" {KEY}\n", "SECOND": SECOND}
        )
    assert ended.code == (0 if right else 1), ended.err
    left = everything_in(tmp_path) + ended.out.encode() + ended.err.encode()
    assert KEY.encode() not in left
    assert SECOND.encode() not in left
    if right:
        assert b"${CANARY}" in (tmp_path / "out" / "_corpusmill" / "report.json").read_bytes()


def test_a_key_given_as_an_argument_is_in_no_log_error_or_repr(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At the finest level of logging, of this package and of those beneath it."""
    caplog.set_level(logging.DEBUG)
    shown = []
    with FakeEndpoint(faults={"reset": 0.2, "500": 0.2}) as endpoint:
        asked = corpusmill.OpenAICompatible(
            endpoint.base_url, "any", api_key=KEY, headers={"X-Tenant-Token": SECOND}
        )
        shown += [repr(asked), str(asked)]
        report = corpusmill.enrich(
            table(20),
            tmp_path / "out",
            ASK,
            endpoint=asked,
            store=store_in(tmp_path),
            failures=corpusmill.FailurePolicy(max_failed=1.0),
            retry=corpusmill.RetryPolicy(attempts=3, backoff=0.001, backoff_max=0.002),
        )
        shown.append(repr(report))
        for kind in ("401", "quota", "404_model"):
            endpoint.script(lambda _request, _attempt, kind=kind: kind)  # type: ignore[misc]
            with pytest.raises(corpusmill.CorpusmillError) as raised:
                corpusmill.enrich(
                    table(20), tmp_path / kind, ASK, endpoint=asked, store=store_in(tmp_path / kind)
                )
            shown += traceback.format_exception(raised.value)
    left = everything_in(tmp_path) + "\n".join([*shown, caplog.text]).encode()
    assert KEY.encode() not in left
    assert SECOND.encode() not in left
    assert caplog.text


def test_a_server_that_repeats_the_key_in_its_error_does_not_get_it_into_a_row(tmp_path: Path) -> None:
    """What looks like the key is masked in the outcome of the row too."""
    from corpusmill.testing import Fault

    body = json.dumps({"error": {"message": f"bad request with {KEY}", "code": "invalid", "type": "x"}})
    with FakeEndpoint() as endpoint:
        numbers = iter(range(1_000))
        endpoint.script(
            lambda _request, _attempt: (
                Fault("reply", status=400, body=body) if next(numbers) % 3 == 0 else None
            )
        )
        corpusmill.enrich(
            table(12),
            tmp_path / "out",
            ASK,
            endpoint=corpusmill.OpenAICompatible(endpoint.base_url, "any", api_key=KEY),
            store=store_in(tmp_path),
            failures=corpusmill.FailurePolicy(max_failed=1.0),
        )
    assert KEY.encode() not in everything_in(tmp_path)
    rows = corpusmill.read(tmp_path / "out").to_table().to_pylist()
    assert sum("bad request" in (row["topic_outcome"]["error"] or "") for row in rows) == 4
    assert KEY not in str(rows)


CANARY = "canary-of-the-corpus-51d0c7"
KINDS = ("401", "quota", "404_model", "400", "200_html")

ENDINGS = (*KINDS, "budget")
"""The sinks of the runs that end early; each has a report, which may hold samples."""

REPORTS = ("out/_corpusmill/report", "400.failed.report", "200_html.failed.report")
"""The reports of runs that came to the end of their rows, though two committed nothing: they have samples."""


def canaries(count: int) -> pa.Table:
    """Give rows with a canary in them, behind the words that the fake endpoint repeats in its answers."""
    return pa.table(
        {
            "id": range(count),
            "text": [f"{row} one two three four five six seven eight {CANARY}" for row in range(count)],
        }
    )


def test_text_of_the_corpus_is_in_the_dataset_and_in_the_report_s_samples_and_nowhere_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in the store, the manifest, a log, an error or an event, though rows fail and runs end in every way."""
    caplog.set_level(logging.DEBUG)
    shown = []
    failing = Faults(
        permanent={"400": 0.1, "overflow": 0.1, "null_content": 0.1, "length": 0.1},
        shares={"reset": 0.1, "cut_body": 0.1, "malformed_json": 0.1, "500_model_output": 0.1},
    )
    options: dict[str, Any] = {
        "store": store_in(tmp_path),
        "retry": corpusmill.RetryPolicy(attempts=3, backoff=0.001, backoff_max=0.002),
        "limits": corpusmill.Limits(concurrency=4),
    }
    with FakeEndpoint(faults=failing, api_key=KEY) as endpoint:
        asked = corpusmill.OpenAICompatible(endpoint.base_url, "any", api_key=KEY)
        report = corpusmill.enrich(
            canaries(60),
            tmp_path / "out",
            ASK,
            endpoint=asked,
            failures=corpusmill.FailurePolicy(max_failed=1.0),
            telemetry=True,
            **options,
        )
        for kind in KINDS:
            endpoint.script(lambda _request, _attempt, kind=kind: kind)  # type: ignore[misc]
            with pytest.raises(corpusmill.CorpusmillError) as raised:
                corpusmill.enrich(canaries(90), tmp_path / kind, ASK, endpoint=asked, **options)
            shown += traceback.format_exception(raised.value)
        endpoint.script(None)
        with pytest.raises(corpusmill.CorpusmillError) as raised:
            corpusmill.enrich(
                canaries(90),
                tmp_path / "budget",
                ASK,
                endpoint=asked,
                budget=corpusmill.Budget(tokens=600),
                **{**options, "store": store_in(tmp_path / "budget-store")},
            )
        shown += traceback.format_exception(raised.value)
    assert report.outcomes["completed"] > 0
    assert report.unanswered > 0
    facts = report.as_dict()
    event = output_dataset(
        str(tmp_path / "out"), schema=canaries(1).schema, model=report.model, rows=report.rows
    )
    shown += [json.dumps(attr.asdict(run_facet(facts))), json.dumps(attr.asdict(event)), caplog.text]
    text = "\n".join(shown)
    assert "no answer" in text
    assert CANARY not in text
    assert KEY not in text
    holding = {
        path.relative_to(tmp_path).as_posix()
        for path in tmp_path.rglob("*")
        if path.is_file() and CANARY.encode() in path.read_bytes()
    }
    reports = {f"{name}.{kind}" for name in REPORTS for kind in ("json", "html")}
    early = {f"{name}.failed.report.{kind}" for name in ENDINGS for kind in ("json", "html")}
    assert {name for name in holding if not name.endswith(".parquet")} <= reports | early
    assert reports <= holding
    assert all((tmp_path / name).is_file() for name in early)
    assert KEY.encode() not in everything_in(tmp_path)


def repeating(kind: str) -> httpx.MockTransport:
    """Stand for a server that repeats every request it refuses, in one way or another: in turn, or each alike."""
    numbers = itertools.count()

    def handle(request: httpx.Request) -> httpx.Response:
        text = json.loads(request.content)["messages"][-1]["content"]
        told: list[tuple[int, Any]] = [
            (422, {"detail": [{"loc": ["body"], "msg": "bad", "input": text}]}),
            (400, {"error": {"message": f"bad input: {text!r}", "code": None}}),
            (400, {"message": f"bad body: {request.content.decode()}"}),
            (500, f"<html><body><h1>bad</h1><pre>{request.content.decode()}</pre></body></html>"),
        ]
        number = next(numbers)
        if kind == "in turn":
            status, body = told[number % len(told)] if number % 3 else (200, None)
        else:
            status, body = int(kind), told[1][1]
        if body is None:
            choice = {"index": 0, "message": {"content": "ok"}, "finish_reason": "stop"}
            return httpx.Response(200, json={"choices": [choice]})
        return httpx.Response(status, text=body if isinstance(body, str) else json.dumps(body))

    return httpx.MockTransport(handle)


@pytest.mark.parametrize("kind", ["in turn", "400", "401", "402", "404", "410", "500"])
def test_a_server_that_repeats_the_row_does_not_get_its_text_out_of_the_dataset(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Whether rows fail or the run ends: not into the error, a log, the store or the list of failures."""
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    # A text that is too short for a run counts as a whole.
    rows = [
        CANARY[:9] if row == 1 else f"{row} says: {CANARY}, an unknown model of any kind" for row in range(60)
    ]
    try:
        report = corpusmill.enrich(
            pa.table({"text": rows}),
            tmp_path / "out",
            corpusmill.Ask("{text}", into="topic"),
            endpoint=corpusmill.OpenAICompatible("http://127.0.0.1:9/v1", "any"),
            store=store_in(tmp_path),
            failures=corpusmill.FailurePolicy(max_failed=1.0),
            limits=corpusmill.Limits(concurrency=1, patience=0.5),
            retry=corpusmill.RetryPolicy(attempts=2, backoff=0.001, backoff_max=0.002),
            transport=repeating(kind),
        )
    except corpusmill.CorpusmillError as error:
        assert kind != "in turn"
        told += [str(error), *traceback.format_exception(error)]
    else:
        assert kind in {"in turn", "500"}
        assert report.outcomes["failed"] > 0
    left = {
        path.relative_to(tmp_path).as_posix(): path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and not path.name.endswith(".parquet")
    }
    listed = [path for path in left if path.endswith("failures.jsonl")]
    assert bool(listed) == (not told)
    for path, content in [*left.items(), ("told", "\n".join([*told, caplog.text]).encode())]:
        # A report may have it, as it shows samples.
        assert "report." in path or CANARY[:9].encode() not in content, path
    assert b"bad" in b"\n".join([*[left[path] for path in listed], *[text.encode() for text in told]])


HOSTILE = [
    "prompts: [{ask: {template: '{text.__class__.__mro__}', into: topic}}]",
    "prompts: [{ask: {template: '{text!r} {0.__init__.__globals__}', into: topic}}]",
    "prompts: [{ask: {template: \"{{ x.__globals__.os.system('touch WITNESS') }} {text}\", into: topic}}]",
    "prompts: [{ask: {template: '$(touch WITNESS) `touch WITNESS` ${IFS} {text}', into: topic}}]",
    "prompts: [{ask: {template: '{text}', into: \"__import__('witness')\"}}]",
    "prompts: [{witness.Prompt: {into: topic}}]",
    "prompts: [{extract: {column: text, into: topic, schema: 'witness:Model'}}]",
    "prompts: [{extract: {column: text, into: topic, schema: {$ref: 'file://SECRET'}}}]",
    "prompts: [{extract: {column: text, into: topic, schema: {$ref: 'BASE_URL/schema'}}}]",
    "prompts: [{extract: {column: text, into: topic, schema: {type: object, properties: {a: {$ref: 'BASE_URL/s'}}}}}]",
    "prompts: [{ask: !!python/object/apply:os.system ['touch WITNESS']}]",
    "prompts: !!python/name:witness.Model []",
    "source: '| touch WITNESS'",
    "source: 'python://witness'",
    "source: !include SECRET",
    "store: 'witness://x'",
    'store: "sqlite:///x.db?factory=witness.Model"',
    "endpoint: {witness.Endpoint: {base_url: BASE_URL, model: any}}",
    "endpoint: {openai_compatible: {base_url: BASE_URL, model: any, transport: 'witness:Model'}}",
    "sink: '; touch WITNESS'",
]
"""Parts of a job that try to run something, or to make the program read or fetch something."""

WATCHED = """
import json, sys
from pathlib import Path
jobs, secret = json.loads(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(Path(secret).parent))
from corpusmill.cli.main import main
seen, codes = [], []
STARTS = {"os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.spawn"}

def watch(event, arguments):
    if event in STARTS or event == "urllib.Request":
        seen.append([event, str(arguments)[:200]])
    elif event == "import" and str(arguments[0]).split(".")[0] == "witness":
        seen.append([event, "witness"])
    elif event == "open" and str(arguments[0]) == secret:
        seen.append([event, secret])

sys.addaudithook(watch)
for job in jobs:
    for command in ("plan", "run"):
        codes.append(main([command, job]))
sys.stdout.flush()
Path(secret).with_name("seen.json").write_text(json.dumps([seen, codes]), "utf-8")
"""


def test_a_job_file_cannot_make_anything_run_or_be_fetched(tmp_path: Path, warm: Warm) -> None:
    """No process is started, no module imported, no file read and no address asked that only a job file names."""
    pq.write_table(table(3), tmp_path / "corpus.parquet")
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({"type": "object"}), "utf-8")
    (tmp_path / "witness.py").write_text(
        f"open({str(tmp_path / 'imported')!r}, 'w')\nModel = Prompt = dict\n", "utf-8"
    )
    jobs = []
    with FakeEndpoint() as endpoint:
        for number, hostile in enumerate(HOSTILE):
            job = {
                "source": "corpus.parquet",
                "sink": f"out{number}",
                "prompts": [{"ask": {"template": "{text}", "into": "topic"}}],
                "endpoint": {"openai_compatible": {"base_url": endpoint.base_url, "model": "any"}},
                "store": "sqlite:///store.db",
            }
            job.pop(hostile.partition(":")[0])
            lines = [f"{name}: {json.dumps(value)}" for name, value in job.items()]
            lines.append(hostile.replace("BASE_URL", endpoint.base_url).replace("SECRET", str(secret)))
            jobs.append(f"job{number}.yaml")
            (tmp_path / jobs[-1]).write_text(
                "\n".join(lines).replace("WITNESS", str(tmp_path / "ran")), "utf-8"
            )
        ended = warm.execute(WATCHED, json.dumps(jobs), str(secret), folder=tmp_path)
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err
    seen, codes = json.loads((tmp_path / "seen.json").read_text("utf-8"))
    assert seen == []
    assert len(codes) == 2 * len(HOSTILE)
    assert set(codes) <= {0, 1, 2}
    assert codes.count(2) >= len(HOSTILE)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "imported").exists()
