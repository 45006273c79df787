"""What is wrong with a job file is named with file and line, also where only the source shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.cli import main

if TYPE_CHECKING:
    from pathlib import Path

JOB = """\
source:
  path: in.parquet
  columns: [id, text, doc]
  filter: [[id, ">", 0]]
sink:
  path: out
  columns: [id, text]
prompts:
  - translate: {column: text, into: text_lv, to: lv}
  - ask:
      template: "Topic of {text}"
      into: topic
endpoint:
  openai_compatible: {base_url: http://127.0.0.1:9/v1, model: any}
"""

COMMANDS = [
    ["run", "job.yaml", "--quiet"],
    ["run", "job.yaml", "--limit", "2", "--quiet"],
    ["plan", "job.yaml"],
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a corpus."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"id": [1, 2], "text": ["a", "b"], "doc": [{"n": 1}] * 2}), "in.parquet")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("in.parquet", "on.parquet", "1: "),
        ("[id, text, doc]", "[id, text, dog]", "3: source.columns names 'dog'"),
        ('[[id, ">', '[[ident, ">', "4: source.filter names 'ident'"),
        ("column: text", "column: txt", "9: the prompt into 'text_lv' names 'txt'"),
        ("column: text", "column: id", "9: the prompt into 'text_lv' takes text from 'id', whose type"),
        ("of {text}", "of {text} {txt}", "10: the prompt into 'topic' names 'txt'"),
        ("of {text}", "of {text} {doc}", "10: the prompt into 'topic' takes text from 'doc'"),
        ("of {text}", "of {text} {doc", "10: the template of the prompt into 'topic' has '{doc'"),
        ("into: topic", "into: text_lv", "10: the new column 'text_lv' exists already"),
        ("into: topic", "into: topic\n      temperature: 9", "10: "),
    ],
)
def test_a_fault_that_the_source_shows_is_named_with_file_and_line(
    folder: Path, capsys: pytest.CaptureFixture[str], command: list[str], *, old: str, new: str, said: str
) -> None:
    """By each command that reads both, with the words of the library behind it."""
    assert JOB.count(old) == 1
    (folder / "job.yaml").write_text(JOB.replace(old, new), "utf-8")
    assert main(command) == 2
    assert capsys.readouterr().err.startswith(f"corpusmill: job.yaml:{said}")


@pytest.mark.parametrize("command", [COMMANDS[0], COMMANDS[2]], ids=" ".join)
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("columns: [id, text]", "columns: [id, ident]", "7: sink.columns names 'ident'"),
        ("columns: [id, text]", "partition: {topic: x}", "7: sink.partition has the key 'topic'"),
    ],
)
def test_a_fault_of_the_sink_is_named_with_file_and_line(
    folder: Path, capsys: pytest.CaptureFixture[str], command: list[str], *, old: str, new: str, said: str
) -> None:
    """A preview has no sink, the others have."""
    (folder / "job.yaml").write_text(JOB.replace(old, new), "utf-8")
    assert main(command) == 2
    assert capsys.readouterr().err.startswith(f"corpusmill: job.yaml:{said}")


def test_what_is_in_the_way_of_a_job_is_no_fault_of_a_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file may be right, and the folder another one's."""
    (folder / "job.yaml").write_text(JOB, "utf-8")
    (folder / "out").mkdir()
    (folder / "out" / "other").touch()
    assert main(["run", "job.yaml", "--quiet"]) == 2
    assert "job.yaml:" not in capsys.readouterr().err
