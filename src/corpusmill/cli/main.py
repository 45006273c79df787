"""The command `corpusmill` and what its errors and exit codes look like."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from corpusmill.allocator import spare_memory
from corpusmill.errors import CorpusmillError

if TYPE_CHECKING:
    from collections.abc import Iterator

EPILOG = (
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 come back later (a quota is used up, another run holds the "
    "sink, a job is stopping), 4 budget used up, 130 interrupted."
)


class LazyGroup(click.Group):
    """A group whose commands are loaded when they are used, so that `--help` and errors come at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's shape
        """Name the commands, in the order in which a user meets them."""
        return list(_HOME)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load a command."""
        home = _HOME.get(_SPELLINGS.get(cmd_name, cmd_name))
        if home is None:
            return None
        module, _, name = home.partition(":")
        found = getattr(import_module(module), name)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name the nearest one."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], _HOME, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(_HOME)}"
            ctx.fail(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


_HOME = {
    "run": "corpusmill.cli.run:run_command",
    "plan": "corpusmill.cli.plan:plan_command",
    "translate": "corpusmill.cli.oneliners:translate_command",
    "summarise": "corpusmill.cli.oneliners:summarise_command",
    "report": "corpusmill.cli.report:report_command",
    "failures": "corpusmill.cli.report:failures_command",
    "schema": "corpusmill.cli.run:schema_command",
    "store": "corpusmill.cli.store:store_group",
    "transform": "corpusmill.cli.transform:transform_group",
    "fake-endpoint": "corpusmill.testing.command:fake_endpoint_command",
}

_SPELLINGS = {"summarize": "summarise"}


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="corpusmill")
def group() -> None:
    """Map columns of Parquet and Arrow tables through a chat-completion endpoint.

    Answers are kept as they come: a run that is killed goes on where it was, and asks for no stored answer again.
    """


def main(arguments: list[str] | None = None) -> int:
    """Run the command line, and give the exit code."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # It was closed before the start: nobody is there to be told, and the work is done all the same.
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
            continue
        # What a terminal cannot show is escaped; it must not change what the command does.
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")
    spare_memory()  # before a command is loaded, which loads Arrow
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has left (`| head`); there is nobody to tell.
        _silence(sys.stdout)
        return 0
    except OSError as error:
        if _takes_a_line(sys.stdout):
            raise
        _silence(sys.stdout)
        with _told():
            click.echo(f"corpusmill: standard output cannot be written: {error.strerror}", err=True)
        return 1
    finally:
        with _told():
            pass
    return code


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Say something on standard error; that nobody hears it changes neither what was done nor the exit code."""
    try:
        yield
        sys.stderr.flush()
    except OSError:
        _silence(sys.stderr)


def _takes_a_line(stream: TextIO) -> bool:
    try:
        stream.write("\n")
        stream.flush()
    except OSError:
        return False
    return True


def _silence(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(arguments: list[str] | None) -> int:
    try:
        given = [_as_text(argument) for argument in (sys.argv[1:] if arguments is None else arguments)]
        # Not `group.main`, which takes a reader that has left for a failure.
        with group.make_context("corpusmill", given) as context:
            result: Any = group.invoke(context)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        with _told():
            error.show()
        return 2
    except click.ClickException as error:
        with _told():
            error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except CorpusmillError as error:
        said = "; ".join([str(error), *getattr(error, "__notes__", ())])
        with _told():
            click.echo(f"corpusmill: {said}", err=True)
        return type(error).exit_code
    except KeyboardInterrupt:
        return 130
    return result if isinstance(result, int) else 0


def _as_text(argument: str) -> str:
    try:
        argument.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"the argument {argument!r} is not UTF-8") from None
    return argument
