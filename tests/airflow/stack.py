"""A real Airflow: api-server, scheduler, dag-processor and triggerer as processes of their own.

`python tests/airflow/stack.py FOLDER` starts one over the Dags in FOLDER/dags and prints where it is, until Ctrl-C.
Tests use `Stack`. Everything lies in the folder: configuration, database, logs.
"""

from __future__ import annotations

import contextlib
import http
import json
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

USER = "admin"
COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")
PATIENCE = 300.0
"""Seconds that anything may take on a busy machine before it counts as broken."""


class Stack:
    """One Airflow. Use it as a context manager; `components` are started, in this order."""

    def __init__(
        self,
        folder: Path,
        *,
        components: tuple[str, ...] = COMPONENTS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.dags = folder / "dags"
        self.logs = folder / "logs"
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.password = secrets.token_hex(8)
        self._components = components
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._token: str | None = None
        self.environment = {
            **os.environ,
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.base_url}/execution/",
            "AIRFLOW__API__BASE_URL": self.base_url,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(16),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.logs),
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
                {"type": "file", "log_file_path": str(folder / "openlineage.jsonl"), "append": True}
            ),
            **(environment or {}),
        }

    def __enter__(self) -> Self:
        """Make the database, start everything, and wait until the server answers."""
        self.dags.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        (self.folder / "passwords.json").write_text(json.dumps({USER: self.password}), "utf-8")
        try:
            self.airflow("db", "migrate")
            for name in self._components:
                self.start(name)
            self.wait_for(self._answers, what="the server to answer")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End every process that was started, and the children of each."""
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for name in list(self._processes):
            self.stop(name)

    def airflow(self, *arguments: str) -> str:
        """Run a command of Airflow's to its end; give what it printed."""
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "airflow", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            msg = f"airflow {' '.join(arguments)}: {done.stderr[-4000:]}"
            raise RuntimeError(msg)
        return done.stdout

    def start(
        self,
        name: str,
        *arguments: str,
        label: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start a component, in a session of its own; `label` is what it is called from then on."""
        label = label or name
        with (self.folder / f"{label}.out").open("ab") as out:
            self._processes[label] = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "airflow", name, *arguments],
                env={**self.environment, **(environment or {})},
                cwd=self.folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self, name: str, number: int = signal.SIGTERM) -> None:
        """End a component with a signal; what does not end by itself is killed with its children."""
        process = self._processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def kill(self, label: str) -> None:
        """Kill a component and everything that came from it, without a word."""
        process = self._processes.pop(label)
        parent = psutil.Process(process.pid)
        for one in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()

    def wait_for(self, look: Callable[[], Any], *, what: str, patience: float = PATIENCE) -> Any:
        """Look again and again until there is something; give it. Raises `TimeoutError` naming what was awaited."""
        until = time.monotonic() + patience
        while True:
            found = look()
            if found:
                return found
            for name, process in self._processes.items():
                if process.poll() is not None:
                    msg = f"{name} ended with {process.returncode}: {self.tail(name)}"
                    raise RuntimeError(msg)
            if time.monotonic() > until:
                tails = "\n".join(f"== {name}\n{self.tail(name)}" for name in self._processes)
                msg = f"waited {patience:.0f} s for {what}\n{tails}"
                raise TimeoutError(msg)
            time.sleep(0.5)

    def tail(self, name: str) -> str:
        """Give the end of what a component printed."""
        return (self.folder / f"{name}.out").read_text("utf-8", "replace")[-2000:]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.base_url}/api/v2/version", timeout=10):
                return True
        except OSError:
            return False

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the public API as the administrator; give the decoded answer."""
        if self._token is None:
            login = {"username": USER, "password": self.password}
            self._token = self._send("POST", "/auth/token", login, token=None)["access_token"]
        return self._send(method, f"/api/v2{path}", body, token=self._token)

    def _send(self, method: str, path: str, body: Any, *, token: str | None) -> Any:
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(
            self.base_url + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers=headers,
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def trigger(self, dag_id: str) -> str:
        """Trigger a Dag as soon as it is known; give the id of the run."""

        def try_it() -> str | None:
            try:
                run: str = self.call("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None})["dag_run_id"]
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return None
                raise
            return run

        found: str = self.wait_for(try_it, what=f"the Dag {dag_id} to be known")
        return found

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Give the task instances of a run."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances"
        found: list[dict[str, Any]] = self.call("GET", path)["task_instances"]
        return found

    def wait_for_state(self, dag_id: str, run_id: str, task_id: str, *states: str) -> dict[str, Any]:
        """Wait until a task instance is in one of these states; give it."""

        def look() -> dict[str, Any] | None:
            return next(
                (
                    task
                    for task in self.tasks(dag_id, run_id)
                    if task["task_id"] == task_id and task["state"] in states
                ),
                None,
            )

        found: dict[str, Any] = self.wait_for(look, what=f"{dag_id}.{task_id} to be {' or '.join(states)}")
        return found

    def fail(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Mark a task instance failed, as a user does."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        self._insist("PATCH", path, {"new_state": "failed"})

    def clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Clear a task instance that has failed, so that it runs again."""
        body = {"dag_run_id": run_id, "task_ids": [task_id], "dry_run": False, "only_failed": True}
        self._insist("POST", f"/dags/{dag_id}/clearTaskInstances", body)

    def _insist(self, method: str, path: str, body: Any) -> None:
        """Call until it is done: the database is a file, and the server answers 500 when it finds it locked."""

        def try_it() -> bool:
            try:
                self.call(method, path, body)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code != http.HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
                return False
            return True

        self.wait_for(try_it, what=f"{method} {path} to be done")

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str) -> Any:
        """Give an XCom; JSON is read."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}"
        value = self.call("GET", path)["value"]
        return json.loads(value) if isinstance(value, str) else value

    def state(self, dag_id: str, run_id: str, task_id: str) -> list[str]:
        """Give the values that a task keeps in its state store."""
        query = "SELECT value FROM task_state_store WHERE dag_id = ? AND run_id = ? AND task_id = ?"
        with contextlib.closing(
            sqlite3.connect(f"file:{self.folder}/airflow.db?mode=ro", uri=True)
        ) as database:
            return [str(value) for (value,) in database.execute(query, (dag_id, run_id, task_id))]

    def log(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Give what all attempts at a task have logged."""
        folder = self.logs / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
        return "\n".join(path.read_text("utf-8", "replace") for path in sorted(folder.rglob("*.log*")))

    def written(self) -> str:
        """Give all that any process wrote into a log, and all lineage events."""
        files = [*self.logs.rglob("*.log"), *self.folder.glob("*.out"), *self.folder.glob("*.jsonl")]
        return "\n".join(path.read_text("utf-8", "replace") for path in files if path.is_file())


def free_port() -> int:
    """Find a port that is free just now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def main(folder: Path) -> None:
    """Run an Airflow until it is interrupted or told to end; then everything that it started ends with it."""
    # A shell lets what it starts in the background ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with Stack(folder) as stack:
        sys.stdout.write(f"{stack.base_url}  user {USER}, password {stack.password}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
