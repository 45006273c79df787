"""The command itself: its commands, its exit codes, and what it does when its reader has left."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

from corpusmill import errors
from corpusmill.cli import main
from corpusmill.cli.main import _HOME, EPILOG, group

if TYPE_CHECKING:
    from pathlib import Path

ERRORS = sorted(
    (
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.CorpusmillError)
    ),
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["runn"], "there is no command 'runn'; did you mean 'run'?"),
        (["summarze", "a", "b"], "did you mean 'summarise'?"),
        (["fake-endpiont"], "did you mean 'fake-endpoint'?"),
        (["xyzzy"], "there are run, plan, translate"),
    ],
)
def test_an_unknown_command_is_answered_with_the_nearest_one(
    capsys: pytest.CaptureFixture[str], arguments: list[str], hint: str
) -> None:
    """Or with all that there are, and with the exit code of wrong usage."""
    assert main(arguments) == 2
    assert hint in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", sorted(_HOME))
def test_every_command_has_a_help_of_its_own(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """With a sentence about it in the list of commands."""
    assert main([name, "--help"]) == 0
    assert f"corpusmill {name}" in capsys.readouterr().out
    command = group.get_command(click.Context(group), name)
    assert command is not None
    assert command.get_short_help_str(limit=200)


def test_no_command_at_all_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """It lists the commands in the order in which a user meets them, and the exit codes."""
    assert main([]) == 2
    said = capsys.readouterr().err
    places = [said.index(f"\n  {name} ") for name in _HOME]
    assert places == sorted(places)
    assert " ".join(EPILOG.split()) in " ".join(said.split())


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    """As it is installed."""
    assert main(["--version"]) == 0
    assert "corpusmill" in capsys.readouterr().out


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let every command end with this error."""

    def invoke(*_: object) -> None:
        raise error

    monkeypatch.setattr(click.Group, "invoke", invoke)


CODES = {
    "ComeBackLaterError": 3,
    "SinkHeldError": 3,
    "BudgetUsedUpError": 4,
    "InterruptedRunError": 130,
    "JobStoppedError": 130,
    **dict.fromkeys(
        ("UsageError", "JobError", "PromptError", "SourceError", "SinkError", "MissingExtraError"), 2
    ),
}


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_each_kind_of_error_has_the_exit_code_that_the_help_states(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: type[errors.CorpusmillError]
) -> None:
    """1 unless it is wrong usage, a wait, a budget or an interruption; the message comes without a traceback."""
    raising(monkeypatch, kind("what happened"))
    assert main(["schema"]) == CODES.get(kind.__name__, 1)
    assert capsys.readouterr() == ("", "corpusmill: what happened\n")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()], ids=["interrupt", "abort"])
def test_an_interruption_has_its_exit_code(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """As shells have it: 128 and the number of the signal."""
    raising(monkeypatch, error)
    assert main(["schema"]) == 130


def test_a_defect_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no error of ours keeps its traceback."""
    raising(monkeypatch, ZeroDivisionError("a defect"))
    with pytest.raises(ZeroDivisionError):
        main(["schema"])


def test_a_reader_that_leaves_is_no_error() -> None:
    """`corpusmill schema | head -1` says nothing on standard error and ends well."""
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "corpusmill", "schema"], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_an_argument_that_is_no_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A path in another encoding could not be opened by what reads tables."""
    assert main(["report", os.fsdecode(b"latin-\xe4")]) == 2
    assert "is not UTF-8" in capsys.readouterr().err


def test_a_terminal_that_cannot_show_a_character_gets_it_escaped(tmp_path: Path) -> None:
    """The command does the same and ends with the same code."""
    ended = subprocess.run(
        [sys.executable, "-m", "corpusmill", "report", "ātrā"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 2
    assert b"\\u0101tr\\u0101 has no report" in ended.stderr
