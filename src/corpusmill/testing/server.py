"""The fake endpoint as a running server: in a thread of this process, or alone in one."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec
import uvicorn
from uvicorn.server import ServerState

from corpusmill.testing.app import Application
from corpusmill.testing.settings import Settings, changed_settings, faults_from, latency_from
from corpusmill.testing.wire import WireProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from corpusmill.testing.faults import Faults, Script
    from corpusmill.testing.latency import Latency
    from corpusmill.testing.limits import RateLimits
    from corpusmill.testing.stats import Stats

BACKLOG: Final = 4096
START_SECONDS: Final = 10.0

T = TypeVar("T")


class FakeEndpoint:
    """A chat-completions server on loopback, in a thread of this process.

    Args:
        latency: seconds between request and answer, or their distribution.
        limits: rate limits; None for none.
        faults: shares of the attempts that fail, by kind (see `corpusmill.testing.faults.KINDS`).
        seed: what latencies and faults are drawn by, together with the request and the number of the attempt.
        api_key: the key that requests must carry; None takes any and none.
        models: the models that exist; None for any.
        context_tokens: tokens of prompt and answer together.
        strict_context: refuse a prompt and a ceiling that together exceed the context.
        gzip: compress whole answers for clients that take it.
        host: address to listen at.
        port: port to listen at; 0 for one that is free.
        keep_alive_seconds: after so long without a request a connection is closed.
        clock: what rate limits are measured by, in seconds.
    """

    def __init__(
        self,
        *,
        latency: Latency | float | None = None,
        limits: RateLimits | None = None,
        faults: Faults | Mapping[str, float] | None = None,
        seed: int = 0,
        api_key: str | None = None,
        models: Sequence[str] | None = None,
        context_tokens: int = 65_536,
        strict_context: bool = False,
        gzip: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
        keep_alive_seconds: int = 75,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        settings = Settings(
            latency=latency_from(latency),
            limits=limits,
            faults=faults_from(faults),
            seed=seed,
            api_key=api_key,
            models=tuple(models) if models is not None else None,
            context_tokens=context_tokens,
            strict_context=strict_context,
            gzip=gzip,
        )
        self._application = Application(settings, clock=clock)
        self._address = (host, port)
        self._keep_alive_seconds = keep_alive_seconds
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._base_url: str | None = None

    @property
    def base_url(self) -> str:
        """What a client takes for its base URL, such as `http://127.0.0.1:41234/v1`.

        Raises:
            RuntimeError: the endpoint was never started.
        """
        if self._base_url is None:
            msg = "the fake endpoint is not running: use it as a context manager"
            raise RuntimeError(msg)
        return self._base_url

    def __enter__(self) -> Self:
        """Start the server and wait until it answers."""
        if self._thread is not None:
            msg = "the fake endpoint is running already"
            raise RuntimeError(msg)
        listener = _listener(*self._address)
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(listener, ready.set)),
            name="corpusmill-fake-endpoint",
            daemon=True,
        )
        self._thread.start()
        if not ready.wait(START_SECONDS):
            msg = "the fake endpoint did not start"
            raise RuntimeError(msg)
        self._base_url = _base_url(listener)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server at once, whatever is in flight."""
        loop, stop, thread = self._loop, self._stop, self._thread
        if loop is not None and stop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(stop.set)
        if thread is not None:
            thread.join()
        self._loop = self._stop = self._thread = None

    def stats(self, *, details: bool = True) -> Stats:
        """Return what was counted so far; `details` by distinct request. Works after the end, too."""
        return self._in_loop(lambda: self._application.tally.snapshot(details=details))

    def reset(self) -> None:
        """Forget what was counted, the numbers of attempts, what rate limits granted, and the script."""

        def forget() -> None:
            self._application.reset()
            self._application.script = None

        self._in_loop(forget)

    def configure(self, **changes: object) -> None:
        """Change any of the settings that the constructor takes, but for the server's own, in mid-run.

        Raises:
            ValueError, TypeError: a setting does not exist or does not fit.
        """

        def apply() -> None:
            settings = self._application.settings
            if "api_key" in changes:
                settings = replace(settings, api_key=msgspec.convert(changes["api_key"], str | None))
            rest = {name: value for name, value in changes.items() if name != "api_key"}
            self._application.configure(changed_settings(settings, rest))

        self._in_loop(apply)

    def script(self, script: Script | None) -> None:
        """Let a function decide which fault each attempt meets; None lets the shares decide again.

        It is called in the server's thread, with the decoded request and the number of the attempt (from 1),
        and returns a `Fault`, the name of its kind, or None.
        """

        def put() -> None:
            self._application.script = script

        self._in_loop(put)

    def _in_loop(self, function: Callable[[], T]) -> T:
        """Call a function where the application's state lives."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or not thread.is_alive() or thread is threading.current_thread():
            return function()

        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), loop).result()

    async def _run(self, listener: socket.socket, ready: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        await _serve(self._application, listener, self._stop, ready, self._keep_alive_seconds)


def serve(
    endpoint: FakeEndpoint,
    *,
    announce: Callable[[str], None],
) -> None:
    """Run an endpoint in this thread, the main one, until SIGINT or SIGTERM.

    `announce` is called with the base URL as soon as requests are answered.
    """
    # A connection is a descriptor, and the usual limit of 1,024 is less than a thousand rows in flight need.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    listener = _listener(*endpoint._address)  # noqa: SLF001 (same module)

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        await _serve(
            endpoint._application,  # noqa: SLF001
            listener,
            stop,
            lambda: announce(_base_url(listener)),
            endpoint._keep_alive_seconds,  # noqa: SLF001
        )

    asyncio.run(run())


async def _serve(
    application: Application,
    listener: socket.socket,
    stop: asyncio.Event,
    ready: Callable[[], None],
    keep_alive_seconds: int,
) -> None:
    """Serve until `stop`, then drop every connection.

    uvicorn's own server looks for its end ten times a second and waits for clients to finish; a test waits
    for neither, so only uvicorn's protocol is used.
    """
    config = uvicorn.Config(
        application,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        http=WireProtocol,
        ws="none",
        timeout_keep_alive=keep_alive_seconds,
        interface="asgi3",
    )
    config.load()
    state = ServerState()
    app_state: dict[str, Any] = {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: WireProtocol(config=config, server_state=state, app_state=app_state, _loop=loop),
        sock=listener,
        backlog=BACKLOG,
    )
    try:
        ready()
        await stop.wait()
    finally:
        server.close()
        for connection in list(state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        tasks = list(state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _listener(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _base_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"
