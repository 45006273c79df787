"""A key is in no log, error, store, manifest, report or repr, wherever it came from and whatever went wrong."""

from __future__ import annotations

import json
import logging
import traceback
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.proof.material import ASK, store_in, table

import corpusmill
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
