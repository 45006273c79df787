"""The fake SageMaker as a running server: container, runtime and control plane at one address."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote

import msgspec

from corpusmill.testing.sagemaker.container import Container, encode
from corpusmill.testing.sagemaker.control import RefusedError, TransformJobs
from corpusmill.testing.sagemaker.faults import ERRORS, plain_error
from corpusmill.testing.sagemaker.jobs import Pace, Worker
from corpusmill.testing.sagemaker.runtime import Reply, Runtime, error_reply
from corpusmill.testing.sagemaker.signatures import AccessKey, verify
from corpusmill.testing.server import START_SECONDS, _listener, _serve
from corpusmill.testing.wire import TRANSPORT, Exchange

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

REGION: Final = "eu-north-1"
KEY: Final = AccessKey(key="AKIDCORPUSMILLFAKE00", secret="fake/secret+for+tests")  # noqa: S106 - it opens nothing

ControlScript = Callable[[str, int], "str | None"]
"""Called with the operation and its number from 1; gives the name of an error, `lost`, or None."""


class FakeSageMaker:
    """Amazon SageMaker on loopback, in a thread of this process.

    Args:
        container: the model behind every endpoint and job.
        endpoints: names of the endpoints that exist.
        components: names of the inference components that exist.
        models: names of the models that transform jobs may use.
        keys: the access keys that are known.
        region: the region that signatures must be made for.
        s3: an S3 client of boto3 for transform jobs; without it there are none.
        quota: the most instances that transform jobs may use at once.
        object_seconds: how long a transform job takes over each object.
        wall: what the age of signatures is measured by, Unix time.
        port: port to listen at; 0 for one that is free.
    """

    def __init__(
        self,
        *,
        container: Container | None = None,
        endpoints: Sequence[str] = ("tilde",),
        components: Sequence[str] = (),
        models: Sequence[str] = ("tildeopen-30b-64k",),
        keys: Sequence[AccessKey] = (KEY,),
        region: str = REGION,
        s3: Any = None,
        quota: int | None = None,
        object_seconds: float = 0.0,
        wall: Callable[[], float] = time.time,
        port: int = 0,
    ) -> None:
        self.container = container or Container()
        self.runtime = Runtime(
            container=self.container, endpoints=frozenset(endpoints), components=frozenset(components)
        )
        self.pace = Pace()
        self.reverse = False
        self.keys = {key.key: key for key in keys}
        self.region = region
        self.jobs = TransformJobs(self._worker, region=region, models=models, quota=quota)
        self.control_script: ControlScript | None = None
        self.operations: list[str] = []
        self._numbers: dict[str, itertools.count[int]] = {}
        self._s3 = s3
        self._object_seconds = object_seconds
        self._wall = wall
        self._port = port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._url: str | None = None

    @property
    def url(self) -> str:
        """What a client takes for `endpoint_url`, such as `http://127.0.0.1:41234`."""
        if self._url is None:
            msg = "the fake SageMaker is not running: use it as a context manager"
            raise RuntimeError(msg)
        return self._url

    def __enter__(self) -> Self:
        """Start the server and wait until it answers."""
        listener = _listener("127.0.0.1", self._port)
        ready = threading.Event()

        async def run() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await _serve(self, listener, self._stop, ready.set, 75)  # type: ignore[arg-type] # an ASGI application

        self._thread = threading.Thread(
            target=lambda: asyncio.run(run()), name="corpusmill-fake-sagemaker", daemon=True
        )
        self._thread.start()
        if not ready.wait(START_SECONDS):
            msg = "the fake SageMaker did not start"
            raise RuntimeError(msg)
        host, port = listener.getsockname()[:2]
        self._url = f"http://{host}:{port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop jobs and server at once."""
        self.jobs.close()
        loop, stop, thread = self._loop, self._stop, self._thread
        if loop is not None and stop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(stop.set)
        if thread is not None:
            thread.join()

    def fail_next_job(self, reason: str, *, after_objects: int = 0) -> None:
        """Let the next job that is created fail as a whole, after so many of its objects."""
        self.jobs.breakdowns.append((reason, after_objects))

    def _worker(self) -> Worker:
        if self._s3 is None:
            raise RefusedError("ValidationException", "this fake has no S3; give it a client as s3")
        return Worker(
            s3=self._s3,
            container=self.container,
            pace=self.pace,
            object_seconds=self._object_seconds,
            reverse=self.reverse,
        )

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one HTTP request, as an ASGI application."""
        exchange = Exchange(scope, receive, send)
        body = await exchange.body()
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        with contextlib.suppress(asyncio.CancelledError):
            await _send(exchange, scope, send, await self._route(scope, headers, body))

    async def _route(self, scope: dict[str, Any], headers: dict[str, str], body: bytes) -> Reply:
        raw_path: bytes = scope["raw_path"]
        path = raw_path.decode("latin-1").partition("?")[0]
        if path == "/ping":
            return Reply(status=200, headers=(), pieces=[b""])
        if path == "/invocations":
            answered = self.container.invoke(body, content_type=headers.get("content-type", ""))
            kind = b"application/json" if answered.events is None else b"text/event-stream"
            pieces = [answered.body if answered.events is None else answered.events]
            return Reply(status=answered.status, headers=[(b"content-type", kind)], pieces=pieces)
        denial = verify(
            method=scope["method"],
            raw_path=path.encode("latin-1"),
            query=scope["query_string"],
            headers=scope["headers"],
            body=body,
            keys=self.keys,
            region=self.region,
            now=datetime.fromtimestamp(self._wall(), UTC),
        )
        target = headers.get("x-amz-target")
        if denial is not None:
            if target is None:
                return error_reply(plain_error(403, denial.code, denial.message))
            return _json_error(RefusedError(denial.code, denial.message))
        if target is not None:
            return await self._control(target.rpartition(".")[2], body)
        steps = [unquote(step) for step in path.strip("/").split("/")]
        match steps:
            case ["endpoints", name, "invocations"]:
                return self.runtime.invoke(name, headers, body, stream=False)
            case ["endpoints", name, "invocations-response-stream"]:
                return self.runtime.invoke(name, headers, body, stream=True)
            case _:
                return error_reply(plain_error(404, "UnknownOperationException", None))

    async def _control(self, operation: str, body: bytes) -> Reply:
        self.operations.append(operation)
        number = next(self._numbers.setdefault(operation, itertools.count(1)))
        fault = self.control_script(operation, number) if self.control_script is not None else None
        if fault is not None and fault != "lost":
            error = ERRORS[fault]
            text = (error.body or {}).get("message") or (error.body or {}).get("Message")
            return _json_error(RefusedError(error.code, text or "", error.status))
        try:
            told = await asyncio.to_thread(self.jobs.call, operation, msgspec.json.decode(body or b"{}"))
        except RefusedError as error:
            return _json_error(error)
        if fault == "lost":
            return Reply(status=0, headers=(), pieces=(), reset=True)
        kind = b"application/x-amz-json-1.1"
        return Reply(status=200, headers=[(b"content-type", kind)], pieces=[encode(told)])


def _json_error(error: RefusedError) -> Reply:
    body = {"__type": error.code, "message": error.message}
    return Reply(
        status=error.status, headers=[(b"content-type", b"application/x-amz-json-1.1")], pieces=[encode(body)]
    )


async def _send(exchange: Exchange, scope: dict[str, Any], send: Any, reply: Reply) -> None:
    if reply.reset:
        scope[TRANSPORT].reset()
        await exchange.lost()
        return
    headers = [*reply.headers, (b"x-amzn-requestid", b"00000000-0000-4000-8000-000000000000")]
    if not reply.streamed:
        headers.append((b"content-length", str(sum(map(len, reply.pieces))).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    for piece in reply.pieces:
        if exchange.gone:
            return
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        if reply.streamed:
            await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b""})
