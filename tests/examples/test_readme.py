"""Every command and every snippet of the README runs, and every file that it names is there."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corpusmill
from corpusmill.job import parse_job

if TYPE_CHECKING:
    from corpusmill.testing import FakeEndpoint

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")

DEFAULT = "http://127.0.0.1:8000/v1"
"""Where `corpusmill fake-endpoint` listens; here it is another port, as this one may be taken."""

AS_TESTED_ELSEWHERE = {"make demo", "make test"}
"""`.ci/run` runs these two."""


def blocks(language: str) -> list[str]:
    """Give the README's fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Give the shell commands of the README, comments taken off and continued lines joined."""
    lines = "\n".join(blocks("sh")).replace("\\\n", " ").splitlines()
    return [line.partition("  #")[0].partition(" # ")[0].strip() for line in lines if line.strip()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make an empty folder with the first rows of the demonstration's corpus, as a new user would copy it."""
    path = tmp_path / "corpus.parquet"
    runpy.run_path(str(ROOT / "examples" / "demo.py"))["build_corpus"](path)
    pq.write_table(pq.read_table(path).slice(0, 12), path)
    return tmp_path


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the README in a folder."""
    program, *arguments = shlex.split(command)
    assert program == "corpusmill", command
    return subprocess.run(
        [sys.executable, "-m", "corpusmill", *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_commands_run_in_the_order_of_the_readme(folder: Path, fake_endpoint: FakeEndpoint) -> None:
    """The job file is taken from the README; each command ends with 0, and the run asks each row once."""
    (job,) = blocks("yaml")
    assert DEFAULT in job
    (folder / "job.yaml").write_text(job.replace(DEFAULT, fake_endpoint.base_url), "utf-8")
    tried = []
    for command in commands():
        if command in AS_TESTED_ELSEWHERE or command == "corpusmill fake-endpoint":
            continue
        done = run(command.replace(DEFAULT, fake_endpoint.base_url), folder)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        tried.append(command.split()[1])
    assert {"plan", "run", "report", "failures", "store", "translate"} <= set(tried)
    assert corpusmill.read(folder / "labelled").count_rows() == 12
    assert corpusmill.read(folder / "translated").count_rows() == 12
    assert fake_endpoint.stats().computed_again == 0


def test_what_the_readme_offers_instead_fits_the_corpus_too(
    folder: Path, fake_endpoint: FakeEndpoint
) -> None:
    """The source and the sink that stand behind its `# or` name columns that the demonstration's corpus has."""
    (job,) = blocks("yaml")
    offered = {"columns: […]": "columns: [id, lang, text]", "limit: …": "limit: 3", "path: …": "path: {path}"}
    for key, path in (("source", "corpus.parquet"), ("sink", "labelled/")):
        found = re.search(rf"^{key}: {path} +# or (\{{.*\}})$", job, re.MULTILINE)
        assert found is not None
        other = found[1]
        for short, whole in offered.items():
            other = other.replace(short, whole.format(path=path))
        assert "…" not in other
        job = job.replace(found[0], f"{key}: {other}")
    (folder / "job.yaml").write_text(job.replace(DEFAULT, fake_endpoint.base_url), "utf-8")
    done = run("corpusmill run job.yaml", folder)
    assert done.returncode == 0, done.stderr
    table = corpusmill.read(folder / "labelled").to_table()
    assert table.num_rows == 3
    assert table.column_names[0] == "id"
    assert "text" not in table.column_names


def test_a_finished_run_asks_again_for_rows_without_an_answer_only(
    folder: Path, fake_endpoint: FakeEndpoint
) -> None:
    """The job of the README, a row of it refused and another one answered with nothing; that one only if told to."""
    (job,) = blocks("yaml")
    job = job.replace(DEFAULT, fake_endpoint.base_url).replace("max_failed: 0.05", "max_failed: 0.5")
    refused, empty = pq.read_table(folder / "corpus.parquet")["text"].to_pylist()[1:3]

    def fault(request: object, attempt: int) -> str | None:
        said = str(request)
        return "400" if repr(refused)[1:-1] in said else "empty_answer" if repr(empty)[1:-1] in said else None

    fake_endpoint.script(fault)
    asked = []
    for store in ("", "", "store: {mode: refresh, refresh: [invalid, failed]}\n"):
        (folder / "job.yaml").write_text(job + store, "utf-8")
        before = fake_endpoint.stats().requests
        assert run("corpusmill run job.yaml", folder).returncode == 0
        asked.append(fake_endpoint.stats().requests - before)
    statuses = corpusmill.read(folder / "labelled").to_table()["theme_outcome"].to_pylist()
    assert [(outcome or {})["status"] for outcome in statuses[1:3]] == ["failed", "failed"]
    assert asked[1:] == [2, 4]


def test_the_fake_endpoint_listens_where_the_readme_says() -> None:
    """The command without options is the one that the job's URL belongs to."""
    help_text = " ".join(run("corpusmill fake-endpoint --help", ROOT).stdout.split())
    assert "[default: 8000" in help_text
    assert DEFAULT in blocks("yaml")[0]


def test_the_lines_for_a_real_endpoint_fit_the_job_of_the_demo() -> None:
    """What is taken out stands in the demo's job, and with what is put in it is a job for SambaNova Cloud."""
    (change,) = blocks("diff")
    before = [line[1:].strip() for line in change.splitlines() if line.startswith("-")]
    after = [line[1:].strip() for line in change.splitlines() if line.startswith("+")]
    job: str = runpy.run_path(str(ROOT / "examples" / "demo.py"))["JOB"].format(
        folder="demo-output", base_url=before[0].removeprefix("base_url: "), store="demo-output/store.db"
    )
    job = re.sub(r" *# ->.*", "", job)
    for line in before:
        assert job.count(line) == 1
    job = job.replace(before[0], f"{after[0]}\n    {after[2]}").replace(before[1], after[1])
    endpoint = parse_job(job, environment={"SAMBANOVA_API_KEY": "k" * 8}).endpoint
    assert endpoint.url == "https://api.sambanova.ai/v1/chat/completions"
    assert endpoint.auth_headers() == {"authorization": "Bearer " + "k" * 8}


def test_the_lines_of_python_run(
    folder: Path,
    fake_endpoint: FakeEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The snippet runs as it stands, but for the address of SambaNova Cloud."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SAMBANOVA_API_KEY", "sk-readme")
    (snippet,) = blocks("python")
    asked = 'corpusmill.SambaNova("gpt-oss-120b"'
    assert asked in snippet
    exec(snippet.replace(asked, f"{asked}, base_url={fake_endpoint.base_url!r}"), {})  # noqa: S102 - our own README
    assert "{'completed': 12}" in capsys.readouterr().out


def test_what_is_blank_for_each_prompt_is_skipped(
    folder: Path, fake_endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A free question with two columns is asked while one has text; the filter of the README leaves blank texts out."""
    monkeypatch.chdir(folder)
    columns = {
        "text": ["Bread.", None, "", "\u200b ", "Salt.", None],
        "title": ["T", "T", "T", "T", None, None],
    }
    pq.write_table(pa.table(columns), "corpus.parquet")
    (filtering,) = re.findall(r"`(source: \{path: corpus.parquet, filter: .*\})`", README)

    def skipped(prompt: str, source: str) -> tuple[int, int]:
        job = parse_job(
            f"{source}\nsink: out\nprompts: [{prompt}]\n"
            f"endpoint: {{openai_compatible: {{base_url: '{fake_endpoint.base_url}', model: any}}}}\n"
        )
        report = corpusmill.enrich(job.source, "out", *job.prompts, endpoint=job.endpoint, overwrite=True)
        return report.outcomes.get("skipped", 0), report.rows

    expected = {
        "translate: {column: text, to: lv, into: new}": (4, 1),
        "summarise: {column: text, into: new}": (4, 1),
        "extract: {column: text, into: new, schema: {type: object, properties: {a: {type: string}}}}": (4, 1),
        "answer: {question: {column: text}, context: {column: title}, into: new}": (5, 2),
        "ask: {template: 'Does {title} fit {text}?', into: new}": (1, 0),
    }
    for prompt, (of_all, of_filtered) in expected.items():
        assert skipped(prompt, "source: corpus.parquet") == (of_all, 6), prompt
        assert skipped(prompt, filtering) == (of_filtered, 3), prompt


def test_the_lines_of_python_are_eight_or_fewer_statements_long() -> None:
    """The heading says eight lines; an import and a blank line aside, that is what they are."""
    assert len([line for line in blocks("python")[0].splitlines() if line.strip()]) <= 8


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_what_the_readme_links_to_is_there(target: str) -> None:
    """No link leads nowhere."""
    assert (ROOT / target).exists()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(tests/[\w/.]+)`", README))))
def test_the_tests_that_the_readme_names_are_there(path: str) -> None:
    """Each promise names tests that exist."""
    assert (ROOT / path).exists()
