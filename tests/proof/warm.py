"""A process that has everything imported and forks one child for each command line: a kill every half second.

Run as a script it is that process and speaks JSON lines over its standard input and output; imported, it brings
`Warm`, which starts it and gives out its children. The children are what `corpusmill` is when a user starts it,
but for the seconds that the imports take.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What became of a child: `code` is its exit code, or minus the number of the signal that ended it."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """What the child printed as JSON."""
        return dict(json.loads(self.out))


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A running child. `signal` reaches it, `wait` gives its end."""

    pid: int
    files: tuple[Path, Path]
    warm: Warm

    def signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait(self) -> Ended:
        """Wait for the end."""
        status = self.warm.tell({"wait": self.pid})["status"]
        out, err = (file.read_text("utf-8", "replace") for file in self.files)
        for file in self.files:
            file.unlink()
        return Ended(code=os.waitstatus_to_exitcode(status), out=out, err=err)

    def said(self) -> str:
        """Give what the child has written to standard error so far."""
        return self.files[1].read_text("utf-8", "replace")


class Warm:
    """The process that forks, as a context manager; `script` may import more before it serves."""

    def __init__(self, script: Path = Path(__file__)) -> None:
        self._script = script

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, str(self._script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._children = 0
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            # Something that was forked meanwhile holds our end of the pipe open, so that it never sees the end.
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()

    def tell(self, what: Mapping[str, Any]) -> dict[str, Any]:
        """Send one line, and read one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return dict(json.loads(self._process.stdout.readline()))

    def start(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        limits: Mapping[str, int] | None = None,
        patches: Mapping[str, Any] | None = None,
    ) -> Child:
        """Start `corpusmill` with these arguments.

        `folder` is its working directory, `limits` are resource limits by their names (`FSIZE`), `patches` are
        attributes to set before it starts, by their dotted names.
        """
        self._children += 1
        files = tuple(Path(self._folder.name, f"{self._children}.{name}") for name in ("out", "err"))
        for file in files:
            file.touch()
        answer = self.tell(
            {
                "arguments": arguments,
                "environment": dict(environment or {}),
                "folder": None if folder is None else str(folder),
                "limits": dict(limits or {}),
                "patches": dict(patches or {}),
                "files": [str(file) for file in files],
            }
        )
        return Child(pid=answer["pid"], files=(files[0], files[1]), warm=self)

    def execute(self, code: str, *arguments: str, **options: Any) -> Ended:
        """Run Python code in a child, with `sys.argv[1:]` for its arguments."""
        return self.start(*arguments, environment={"WARM_CODE": code}, **options).wait()

    def run(self, *arguments: str, **options: Any) -> Ended:
        """Start `corpusmill`, and wait for its end."""
        return self.start(*arguments, **options).wait()


def serve() -> None:
    """Fork until the input ends."""
    import corpusmill.chat.transport
    import corpusmill.cli.progress
    import corpusmill.cli.run
    import corpusmill.run  # noqa: F401 - imported here so that no child has to

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            answer = {"status": os.waitpid(order["wait"], 0)[1]}
        else:
            pid = os.fork()
            if pid == 0:
                live(order)
            answer = {"pid": pid}
        print(json.dumps(answer), flush=True)  # noqa: T201 - the protocol


def live(order: dict[str, Any]) -> None:
    """Be the child, to the end."""
    import importlib
    import resource

    from corpusmill import killpoints
    from corpusmill.cli.main import main

    code = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, file in enumerate(order["files"], start=1):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), number)
        os.environ.update(order["environment"])
        importlib.reload(killpoints)  # it reads the environment once, and keeps its namespace
        for name, value in order["limits"].items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
        for name, value in order["patches"].items():
            module, _, attribute = name.rpartition(".")
            setattr(importlib.import_module(module), attribute, value)
        if order["folder"] is not None:
            os.chdir(order["folder"])
        if "WARM_CODE" in os.environ:
            sys.argv[1:] = order["arguments"]
            exec(os.environ.pop("WARM_CODE"), {"__name__": "__main__"})  # noqa: S102 - a test's own
            code = 0
        else:
            code = main(order["arguments"])
    except BaseException:  # noqa: BLE001 - it must not return into the parent's loop
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
