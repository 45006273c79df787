"""`corpusmill store`: what lies in a store, taken out, copied, and why a row is not answered from it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.cli import main
from corpusmill.store import Entry, Membership, Put, open_store
from corpusmill.testing import FakeEndpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[FakeEndpoint]:
    """An endpoint, beside a corpus whose rows are five texts and a blank."""
    texts = [f"A text about the number {number}." for number in range(5)]
    pq.write_table(pa.table({"text": [*texts, " "]}), tmp_path / "in.parquet")
    with FakeEndpoint() as started:
        yield started


def written(folder: Path, endpoint: FakeEndpoint, *, store: dict[str, Any] | None = None, **ask: Any) -> str:
    """Write a job; give its path."""
    job = {
        "source": str(folder / "in.parquet"),
        "sink": str(folder / "out"),
        "prompts": [{"ask": {"template": "Topic of {text}", "into": "topic", **ask}}],
        "endpoint": {"openai_compatible": {"base_url": endpoint.base_url, "model": "any"}},
        "store": {"url": url_in(folder), **(store or {})},
    }
    path = folder / "job.json"
    path.write_text(json.dumps(job), "utf-8")
    return str(path)


def url_in(folder: Path) -> str:
    """Name the store of a folder."""
    return f"sqlite:///{folder / 'store.db'}"


def aged(folder: Path, **changes: Any) -> None:
    """Put one more answer into the store, ten days old unless told otherwise."""
    values: dict[str, Any] = {
        "key": b"o" * 20,
        "body": b"{}",
        "ceiling": None,
        "finish_reason": "stop",
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "choices": 1,
        "created_at": time.time() - 10 * 86_400,
        "invocation": "before",
        **changes,
    }
    store = open_store(url_in(folder))
    member: Membership = store.join("run", label="any")
    store.write(member.owner, puts=[Put(entry=Entry(**values), model="older")])
    store.leave(member.owner)
    store.close()


def explained(
    folder: Path, endpoint: FakeEndpoint, capsys: pytest.CaptureFixture[str], row: int = 0, **changes: Any
) -> str:
    """Say what `store explain` says of a row."""
    capsys.readouterr()
    assert main(["store", "explain", written(folder, endpoint, **changes), "--row", str(row)]) == 0
    return capsys.readouterr().out


def test_stats_count_what_lies_in_a_store(
    tmp_path: Path, endpoint: FakeEndpoint, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Answers, by model, with their time; as words and as JSON."""
    assert main(["run", written(tmp_path, endpoint), "--quiet"]) == 0
    assert main(["store", "stats", "--store", url_in(tmp_path)]) == 0
    said = capfdbinary.readouterr().out.decode()
    assert "5 answers, 0 that could not be parsed" in said
    assert " 5  any" in said
    assert " UTC to " in said
    assert main(["store", "stats", "--store", url_in(tmp_path), "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["completions"] == 5


def test_stats_of_an_empty_store_name_no_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is none."""
    open_store(url_in(tmp_path)).close()
    assert main(["store", "stats", "--store", url_in(tmp_path)]) == 0
    assert "UTC" not in capsys.readouterr().out


@pytest.mark.parametrize("command", [["stats"], ["prune", "--rejected"], ["copy", "copy.db"]])
def test_a_store_that_is_not_there_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that was mistyped is an error, and leaves no file."""
    monkeypatch.chdir(tmp_path)
    assert main(["store", *command, "--store", "sqlite:///typo.db"]) == 1
    assert "typo.db" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--older-than", "9d"], {"any": 5}),
        (["--older-than", "11d"], {"any": 5, "older": 1}),
        (["--model", "any"], {"older": 1}),
        (["--older-than", "9d", "--model", "any"], {"any": 5, "older": 1}),
        (["--rejected"], {"any": 5, "older": 1}),
    ],
)
def test_prune_deletes_what_it_is_told_and_nothing_else(
    tmp_path: Path,
    endpoint: FakeEndpoint,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    left: dict[str, int],
) -> None:
    """By age, by model, by both, or only what could not be parsed."""
    assert main(["run", written(tmp_path, endpoint), "--quiet"]) == 0
    aged(tmp_path)
    aged(tmp_path, kind="rejected", key=b"r" * 20)
    capsys.readouterr()
    assert main(["store", "prune", "--store", url_in(tmp_path), *options]) == 0
    said = capsys.readouterr().out
    store = open_store(url_in(tmp_path))
    stats = store.stats()
    store.close()
    assert stats.completions == sum(left.values())
    assert {model: stats.by_model[model] for model in left} == left
    if "--rejected" in options:
        assert stats.rejected == 0
        assert said == "1 answers deleted\n"


@pytest.mark.parametrize(
    ("options", "words"), [([], "say what to delete"), (["--older-than", "soon"], "write an age such as 30d")]
)
def test_prune_deletes_nothing_by_mistake(
    tmp_path: Path,
    endpoint: FakeEndpoint,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    words: str,
) -> None:
    """Without a condition, or with one that cannot be read, it is wrong usage."""
    assert main(["run", written(tmp_path, endpoint), "--quiet"]) == 0
    assert main(["store", "prune", "--store", url_in(tmp_path), *options]) == 2
    assert words in capsys.readouterr().err
    store = open_store(url_in(tmp_path))
    assert store.stats().completions == 5
    store.close()


def test_a_copy_of_a_store_in_use_is_whole(
    tmp_path: Path, endpoint: FakeEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also what a run has put and the main file does not hold yet; an existing file is not replaced."""
    assert main(["run", written(tmp_path, endpoint), "--quiet"]) == 0
    aged(tmp_path)
    held = open_store(url_in(tmp_path))
    copy = tmp_path / "copy.db"
    assert main(["store", "copy", str(copy), "--store", url_in(tmp_path)]) == 0
    held.close()
    copied = open_store(f"sqlite:///{copy}", read_only=True)
    assert copied.stats().completions == 6
    copied.close()
    assert main(["store", "copy", str(copy), "--store", url_in(tmp_path)]) != 0
    assert "copy.db" in capsys.readouterr().err


def test_a_row_is_explained_as_a_run_would_meet_it(
    tmp_path: Path, endpoint: FakeEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stored, blank, not stored with what differs, and a row that is not there."""
    assert main(["run", written(tmp_path, endpoint), "--quiet"]) == 0
    assert explained(tmp_path, endpoint, capsys).startswith("topic: answered in the store (request key ")
    assert "no request (the row is blank)" in explained(tmp_path, endpoint, capsys, row=5)
    said = explained(tmp_path, endpoint, capsys, temperature=0.5)
    assert "not stored" in said
    assert "differs in temperature" in said
    assert main(["store", "explain", written(tmp_path, endpoint), "--row", "6"]) == 2
    assert "the job has no row 6; there are 6; rows are counted from 0\n" in capsys.readouterr().err


def test_rows_are_counted_among_those_that_the_job_reads(
    tmp_path: Path, endpoint: FakeEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a number beyond them is refused with what leaves rows out."""
    path = written(tmp_path, endpoint)
    job = json.loads((tmp_path / "job.json").read_text("utf-8"))
    job["source"] = {"path": job["source"], "rows": [1, 3], "filter": [["text", "is not null"]]}
    (tmp_path / "job.json").write_text(json.dumps(job), "utf-8")
    assert main(["run", path, "--quiet"]) == 0
    assert main(["store", "explain", path, "--row", "1"]) == 0
    assert "answered in the store" in capsys.readouterr().out
    assert main(["store", "explain", path, "--row", "2"]) == 2
    said = capsys.readouterr().err
    assert (
        "the job has no row 2; rows are counted from 0, of those that source.filter and source.rows leave"
        in said
    )
    assert main(["store", "explain", "--help"]) == 0
    assert "that filter, limit and rows of the job's source leave" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_row_whose_request_failed_has_no_answer_and_is_told_so(
    tmp_path: Path, endpoint: FakeEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the nearest request is named, which is that of another row."""
    endpoint.script(lambda request, _attempt: "400" if "number 2." in str(request) else None)
    assert main(["run", written(tmp_path, endpoint), "--limit", "5", "--quiet"]) == 0
    said = explained(tmp_path, endpoint, capsys, row=2)
    missing, _, nearest = said.partition("; the nearest stored request")
    assert "not stored (no answer to this very request is; one that failed leaves none)" in missing
    assert "differs in messages" in nearest
    assert "identity" not in nearest


def elsewhere(folder: Path, endpoint: FakeEndpoint, **changes: str) -> str:
    """Write the job with an endpoint that is another one in these keys; give its path."""
    path = written(folder, endpoint)
    job = json.loads((folder / "job.json").read_text("utf-8"))
    job["endpoint"]["openai_compatible"] |= changes
    (folder / "job.json").write_text(json.dumps(job), "utf-8")
    return path


def test_a_server_that_has_moved_is_given_the_identity_to_keep(
    tmp_path: Path, endpoint: FakeEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    """Explanation and plan name the line to write, and with it every row is found again."""
    assert main(["run", written(tmp_path, endpoint), "--quiet"]) == 0
    moved = elsewhere(tmp_path, endpoint, base_url="http://127.0.0.1:9/v1")
    line = f'write under the endpoint: identity: "{endpoint.base_url} any"'
    capsys.readouterr()
    assert main(["store", "explain", moved, "--row", "0"]) == 0
    said = capsys.readouterr().out
    assert "not stored under the identity of this endpoint, 'http://127.0.0.1:9/v1 any', but under" in said
    assert line in said
    assert main(["plan", moved]) == 0
    said = capsys.readouterr().out
    assert "requests to send: 5" in said
    assert line in said
    identity = json.loads(line.rpartition("identity: ")[2])
    kept = elsewhere(tmp_path, endpoint, base_url="http://127.0.0.1:9/v1", identity=identity)
    assert main(["plan", kept]) == 0
    said = capsys.readouterr().out
    assert "requests to send: 0" in said
    assert "identity" not in said


def test_another_model_is_no_server_that_has_moved(
    tmp_path: Path, endpoint: FakeEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named as the one that answered, and nobody is told to take its answers."""
    assert main(["run", written(tmp_path, endpoint), "--limit", "5", "--quiet"]) == 0
    other = elsewhere(tmp_path, endpoint, model="new")
    capsys.readouterr()
    assert main(["store", "explain", other, "--row", "0"]) == 0
    mine = f"{endpoint.base_url} new"
    said = capsys.readouterr().out
    assert f"differs in identity (this one's identity is {mine!r}, and 'any' answered the other)" in said
    assert main(["plan", other]) == 0
    assert "identity" not in capsys.readouterr().out


def test_an_empty_store_has_nothing_near(
    tmp_path: Path, endpoint: FakeEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    """And it says so."""
    open_store(url_in(tmp_path)).close()
    assert "leaves none); nothing like it is" in explained(tmp_path, endpoint, capsys)


def test_the_mode_is_part_of_the_explanation(
    tmp_path: Path, endpoint: FakeEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is stored may be asked again all the same."""
    assert main(["run", written(tmp_path, endpoint), "--quiet"]) == 0
    assert "the mode is off" in explained(tmp_path, endpoint, capsys, store={"mode": "off"})
    refresh = {"mode": "refresh"}
    assert "asked again all the same: the mode is refresh" in explained(
        tmp_path, endpoint, capsys, store=refresh
    )
    invalid = {**refresh, "refresh": ["invalid"]}
    assert "topic: answered in the store (" in explained(tmp_path, endpoint, capsys, store=invalid)
    completed = {**refresh, "refresh": ["completed", "failed"]}
    assert "its answer is one of completed, failed" in explained(tmp_path, endpoint, capsys, store=completed)


def test_a_cut_answer_is_explained_by_its_ceiling(
    tmp_path: Path, endpoint: FakeEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    """It serves the ceiling that cut it; under a higher one, or where it may be raised, it is asked again."""
    endpoint.script(lambda _request, _attempt: "length")
    assert main(["run", written(tmp_path, endpoint, max_tokens=400), "--limit", "1", "--quiet"]) == 0
    assert "answered in the store" in explained(tmp_path, endpoint, capsys, max_tokens=400)
    higher = explained(tmp_path, endpoint, capsys, max_tokens=500)
    assert "cut or asked under another ceiling (400 tokens; now 500 tokens)" in higher
    raised = explained(tmp_path, endpoint, capsys, max_tokens=400, escalate_to=1_000)
    assert "was cut (under 400 tokens); it is asked again under 1,000 tokens" in raised


def test_an_answer_that_could_not_be_parsed_is_explained_as_that(
    tmp_path: Path, endpoint: FakeEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    """It lies under the very key, and never serves."""
    assert main(["run", written(tmp_path, endpoint), "--quiet"]) == 0
    key = bytes.fromhex(explained(tmp_path, endpoint, capsys).rpartition("key ")[2].strip(" )\n"))
    store = open_store(url_in(tmp_path))
    store.prune(model="any")
    store.close()
    aged(tmp_path, key=key, kind="rejected", finish_reason=None, choices=0)
    assert "no answer to it could be parsed (1 tried)" in explained(tmp_path, endpoint, capsys)
